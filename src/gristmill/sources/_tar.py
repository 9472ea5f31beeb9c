"""Tar archives in which files of the same name but for the extension make up a record."""

from collections.abc import Sequence
from itertools import islice
from typing import Any, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._places import gather
from gristmill.errors import FormatError
from gristmill.files import File, Paths
from gristmill.options import StorageOptions
from gristmill.sources._indexed import IndexedFiles
from gristmill.sources._tar_members import ENCODING, Member, read_members
from gristmill.types import Indices, Span

_KEY = "__key__"


@final
class TarSource:
    """Random access to the records of WebDataset shards.

    Files of an archive that follow each other and have the same path up to the first dot of the
    name are one record: a dict of their bytes by extension, in lower case, and the common path as
    `__key__`. As in WebDataset, what is not a file, has no extension, or is in a folder such as
    `__meta__` is no part of any record; nor are hidden files.

    The first use of a shard reads the headers in it, and keeps what it finds beside the shard.

    >>> import io, tarfile, tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".tar") as shard:
    ...     with tarfile.open(shard.name, "w") as archive:
    ...         for name in ["cat.jpg", "cat.cls", "dog.jpg", "dog.cls"]:
    ...             archive.addfile(tarfile.TarInfo(name))
    ...     source = TarSource(shard.name)
    ...     len(source), source[1]
    (2, {'__key__': 'dog', 'jpg': b'', 'cls': b''})

    Args:
        paths: A path, an address such as `s3://bucket/train-000.tar`, or a pattern with `*`; or
            several.
        storage: How files that are not on this machine are read.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._shards = IndexedFiles(
            paths, storage, kind="tar", build=index_tar, counted_by="key_stops"
        )
        self._extensions: dict[int, list[str]] = {}

    def __len__(self) -> int:
        return len(self._shards.places)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        number, within = self._shards.places.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Any]]:
        return gather(self._shards.places, indices, self._read)

    def __repr__(self) -> str:  # goes into checkpoints: without the folder, which may be another
        return f"TarSource({self._shards.tell()})"

    def _read(self, number: int, within: Indices) -> list[dict[str, Any]]:
        index = self._shards.index(number)
        counts = index["edges"][within + 1] - index["edges"][within]
        members = _ranges(index["edges"][within], counts)
        # Headers between the members of a record are so short that it is one read all the same.
        data = self._shards.files[number].read(index["starts"][members], index["stops"][members])
        names = self._names(number, index)
        numbers: list[int] = index["extensions"][members].tolist()
        fields = zip([names[i] for i in numbers], data, strict=True)
        records: list[dict[str, Any]] = []
        for key, count in zip(_keys(index, within), counts.tolist(), strict=True):
            record: dict[str, Any] = {_KEY: key}
            record.update(islice(fields, count))
            records.append(record)
        return records

    def _names(self, number: int, index: dict[str, NDArray[Any]]) -> list[str]:
        if number not in self._extensions:
            stops = index["extension_stops"]
            self._extensions[number] = _texts(index["extension_names"], _starts(stops), stops)
        return self._extensions[number]


def index_tar(file: File) -> dict[str, NDArray[Any]]:
    """Find the records of an archive.

    `edges` tells which members a record has, `starts` and `stops` where their bytes are, and
    `extensions` which of the names in `extension_names` each has. Names stand one after the other
    as bytes, up to `key_stops` and `extension_stops`.
    """
    keys: list[str] = []
    edges: list[int] = []
    extensions: dict[str, int] = {}
    members: list[tuple[int, int, int]] = []
    taken: set[str] = set()
    num_files = 0
    for member in read_members(file):
        num_files += 1
        key, extension = _split(member.name)
        if not extension or _is_meta(member.name):
            continue
        if not keys or key != keys[-1]:
            edges.append(len(members))
            keys.append(key)
            taken = {_KEY}
        field = extension[1:].lower()
        if field in taken:
            raise _twice(member, field, file.ref.path, len(keys) - 1)
        taken.add(field)
        members.append((member.start, member.stop, extensions.setdefault(field, len(extensions))))
    if num_files and not keys:
        raise FormatError(
            f"None of the {num_files:,} files in the archive is part of a record. Name them "
            "KEY.EXTENSION, such as 000017.jpg and 000017.cls.",
            path=file.ref.path,
        )
    columns = np.array(members, dtype=np.int64).reshape(-1, 3)
    key_names, key_stops = _blob(keys)
    extension_names, extension_stops = _blob(list(extensions))
    return {
        "edges": np.array([*edges, len(members)], dtype=np.int64),
        "starts": columns[:, 0].copy(),
        "stops": columns[:, 1].copy(),
        "extensions": columns[:, 2].copy(),
        "key_names": key_names,
        "key_stops": key_stops,
        "extension_names": extension_names,
        "extension_stops": extension_stops,
    }


def _split(name: str) -> tuple[str, str]:
    """Give the key, and the extension with its dot; that is empty for what has no part in records.

    >>> _split("train/a.b.jpg"), _split("train/README"), _split(".hidden.jpg")
    (('train/a', '.b.jpg'), ('', ''), ('', ''))
    """
    base = name.rfind("/") + 1
    dot = name.find(".", base)
    return (name[:dot], name[dot:]) if dot > base else ("", "")


def _is_meta(name: str) -> bool:
    top = name.partition("/")[0]
    return len(top) >= 4 and top.startswith("__") and top.endswith("__")


def _twice(member: Member, field: str, path: str, record: int) -> FormatError:
    if field == _KEY:
        problem = f"The extension of {member.name!r} is kept for the key of the record"
    else:
        problem = f"The record has two files with the extension {field!r}, {member.name!r} the last"
    return FormatError(
        f"{problem}. Give each file of a record an extension of its own.",
        path=path,
        offset=member.offset,
        record=record,
    )


def _blob(names: list[str]) -> tuple[NDArray[np.uint8], Indices]:
    encoded = [name.encode(*ENCODING) for name in names]
    stops = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), stops


def _starts(stops: Indices) -> Indices:
    return np.concatenate([[0], stops[:-1]]) if len(stops) else stops


def _texts(blob: NDArray[np.uint8], starts: Indices, stops: Indices) -> list[str]:
    data = blob.data
    return [
        str(data[start:stop], *ENCODING)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]


def _keys(index: dict[str, NDArray[Any]], within: Indices) -> list[str]:
    stops = index["key_stops"]
    return _texts(index["key_names"], np.where(within > 0, stops[within - 1], 0), stops[within])


def _ranges(firsts: Indices, counts: Indices) -> Indices:
    """Join the ranges that begin at `firsts`.

    >>> _ranges(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
