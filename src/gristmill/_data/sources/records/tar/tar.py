"""A source over tar archives in the WebDataset format."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import gather
from gristmill._data.sources.records.indexed_files import Index, IndexedFiles
from gristmill._data.sources.records.tar.members import ENCODING, read_members
from gristmill._data.sources.records.tar.names import KEY, name_members
from gristmill._io.file import File
from gristmill._io.index_checks import is_in_order, is_of_offsets
from gristmill._io.paths import Paths
from gristmill.options import StorageOptions
from gristmill.types import AnyArray, Element, Indices, Span


@final
class TarSource:
    """Random access to the records of WebDataset shards.

    Consecutive files of an archive that have the same path up to the first dot of the name form one
    record: a dict of their bytes by extension, in lower case, and the common path as `__key__`. As
    in WebDataset, members that are not files, files without an extension, and files in a folder
    such as `__meta__` are not part of any record; nor are hidden files.

    The first use of a shard reads the headers in it, and stores the locations of the records in an
    index file.

    >>> import io, tarfile, tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".tar") as shard:
    ...     with tarfile.open(shard.name, "w") as archive:
    ...         for name in ["cat.jpg", "cat.cls", "dog.jpg", "dog.cls"]:
    ...             archive.addfile(tarfile.TarInfo(name))
    ...     source = TarSource(shard.name)
    ...     len(source), source[1]
    (2, {'__key__': 'dog', 'jpg': b'', 'cls': b''})

    Args:
        paths: A path, a URL such as `s3://bucket/train-000.tar`, a pattern with `*`, or a list of
            them.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        FormatError: When records are first read, if a file is not a tar archive.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._files = IndexedFiles(
            paths, storage, kind="tar", build=index_tar, count_by="key_stops", fits=_fits
        )
        self._extensions: dict[int, list[str]] = {}

    def __len__(self) -> int:
        return len(self._files.locator)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Element]:
        number, within = self._files.locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Element]]:
        return gather(self._files.locator, indices, self._read)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        number, within = self._files.locator.locate(index)
        files = self._files.index(number)
        first_member = int(files["edges"][within])
        offset = int(files["starts"][first_member])
        return self._files.location(index)._replace(offset=offset)

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        return f"TarSource({self._files.describe()})"

    def _read(self, number: int, within: Indices) -> list[dict[str, Element]]:
        index = self._files.index(number)
        counts = index["edges"][within + 1] - index["edges"][within]
        members = _concatenate_ranges(index["edges"][within], counts)
        # The headers between the members of a record are so short that this is one read anyway.
        data = self._files.files[number].read(index["starts"][members], index["stops"][members])
        extensions = self._load_extensions(number, index)
        extension_numbers: list[int] = index["extensions"][members].tolist()
        fields = zip([extensions[i] for i in extension_numbers], data, strict=True)
        records: list[dict[str, Element]] = []
        for key, count in zip(_decode_keys(index, within), counts.tolist(), strict=True):
            record: dict[str, Element] = {KEY: key}
            record.update(islice(fields, count))
            records.append(record)
        return records

    def _load_extensions(self, number: int, index: Index) -> list[str]:
        if number not in self._extensions:
            stops = index["extension_stops"]
            self._extensions[number] = _decode(index["extension_names"], _starts_of(stops), stops)
        return self._extensions[number]


def index_tar(file: File) -> Index:
    """Find the records of an archive.

    Returns:
        `edges`: the number of the first member of each record, and the number of members;
        `starts` and `stops`: the bytes of each member; `extensions`: the extension of each member,
        as a number of a name in `extension_names`; `key_names` and `extension_names`: all names,
        concatenated as bytes; `key_stops` and `extension_stops`: where each name ends.
    """
    keys: list[str] = []
    edges: list[int] = []
    extensions: dict[str, int] = {}
    members: list[tuple[int, int, int]] = []
    for record, key, field, member in name_members(read_members(file), file.ref.path):
        if record == len(keys):
            edges.append(len(members))
            keys.append(key)
        members.append((member.start, member.stop, extensions.setdefault(field, len(extensions))))
    columns = np.array(members, dtype=np.int64).reshape(-1, 3)
    key_names, key_stops = _encode(keys)
    extension_names, extension_stops = _encode(list(extensions))
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


_ARRAYS = {
    "edges",
    "starts",
    "stops",
    "extensions",
    "key_names",
    "key_stops",
    "extension_names",
    "extension_stops",
}


def _fits(index: Mapping[str, AnyArray], size: int) -> bool:
    """Return whether arrays can be the index of an archive of `size` bytes, see `index_tar`."""
    if set(index) != _ARRAYS or not is_in_order(index["starts"], index["stops"], size):
        return False
    if not (
        _is_table(index["key_names"], index["key_stops"])
        and _is_table(index["extension_names"], index["extension_stops"])
        and is_of_offsets(index["edges"])
        and is_of_offsets(index["extensions"])
    ):
        return False
    edges, extensions, num_members = index["edges"], index["extensions"], len(index["starts"])
    return (
        len(edges) == len(index["key_stops"]) + 1
        and (int(edges[0]), int(edges[-1])) == (0, num_members)
        and not (np.diff(edges) <= 0).any()
        and len(extensions) == num_members
        and not (extensions >= len(index["extension_stops"])).any()
    )


def _is_table(names: AnyArray, stops: AnyArray) -> bool:
    """Return whether names end at `stops`, the last one at the end of the bytes."""
    if names.ndim != 1 or names.dtype != np.uint8 or not is_of_offsets(stops):
        return False
    is_sorted = not (np.diff(stops) < 0).any()
    return is_sorted and (int(stops[-1]) if len(stops) else 0) == len(names)


def _encode(names: list[str]) -> tuple[NDArray[np.uint8], Indices]:
    """Return all names as one array of bytes, and where each ends."""
    encoded = [name.encode(*ENCODING) for name in names]
    stops = np.cumsum([len(name) for name in encoded], dtype=np.int64)
    return np.frombuffer(b"".join(encoded), dtype=np.uint8), stops


def _decode(names: NDArray[np.uint8], starts: Indices, stops: Indices) -> list[str]:
    data = names.data
    return [
        str(data[start:stop], *ENCODING)
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]


def _decode_keys(index: Index, within: Indices) -> list[str]:
    stops = index["key_stops"]
    return _decode(index["key_names"], np.where(within > 0, stops[within - 1], 0), stops[within])


def _starts_of(stops: Indices) -> Indices:
    return np.concatenate([[0], stops[:-1]]) if len(stops) else stops


def _concatenate_ranges(firsts: Indices, counts: Indices) -> Indices:
    """Concatenate ranges of some lengths that begin at `firsts`.

    >>> _concatenate_ranges(np.array([7, 2]), np.array([2, 3]))
    array([7, 8, 2, 3, 4])
    """
    ends = np.cumsum(counts)
    return np.repeat(firsts - (ends - counts), counts) + np.arange(ends[-1] if len(ends) else 0)
