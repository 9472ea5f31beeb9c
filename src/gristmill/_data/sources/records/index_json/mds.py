"""A source over the shards of MosaicML Streaming (MDS), which `index.json` lists.

count    4 bytes: the number of records
offsets  4 per record, and 4 for the end of the last one
config   JSON, the same as in the index
records  the sizes of the columns without a fixed one, 4 bytes each; then all columns
"""

import os
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, SupportsIndex, final

import numpy as np

from gristmill._data.sources.record_locator import RecordLocator, gather
from gristmill._data.sources.records.index_json.mds_values import find_decoder
from gristmill._data.sources.records.index_json.shard_index import (
    INDEX_NAME,
    check_shard,
    read_shard_index,
)
from gristmill._io.decompress import open_decompressed
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file, find_named
from gristmill.errors import CorruptFileError, FormatError
from gristmill.options import StorageOptions
from gristmill.types import Element, Indices, Span


class _Column(NamedTuple):
    name: str
    size: int | None
    decode: Callable[[bytes], Element]


@final
class MdsSource:
    """Random access to the records, as dicts, of a dataset that MosaicML Streaming has written.

    Images stay encoded, for `DecodeImage`. Compressed shards are decompressed once, into the cache
    folder. Columns of pickles are an error, because unpickling can run any code.

    >>> import json, tempfile
    >>> shard = {"format": "mds", "version": 2, "samples": 1, "raw_data": {"basename": "0.mds"},
    ...          "column_names": ["x"], "column_encodings": ["int"], "column_sizes": [8]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/index.json", "w") as file:
    ...         json.dump({"shards": [shard]}, file)
    ...     with open(f"{folder}/0.mds", "wb") as file:
    ...         _ = file.write(struct.pack("<3Iq", 1, 12, 20, 7))
    ...     MdsSource(folder)[0]
    {'x': 7}

    Args:
        path: The folder, or its URL, that contains `index.json` and the shards.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If the folder has no such index.
        FormatError: When records are first read, if a shard has an unknown version or encoding.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, storage: StorageOptions | None = None
    ) -> None:
        folder = os.fspath(path).rstrip("/").removesuffix(f"/{INDEX_NAME}")
        self._index = find_file(f"{folder}/{INDEX_NAME}", storage)
        self._folder = self._index.path.removesuffix(f"/{INDEX_NAME}")
        self._loaded: tuple[RecordLocator, OpenFiles, list[list[_Column]]] | None = None
        self._offsets: dict[int, Indices] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._load()[0])

    def __getitem__(self, index: SupportsIndex) -> dict[str, Element]:
        number, within = self._load()[0].locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Element]]:
        return gather(self._load()[0], indices, self._read)

    def __getstate__(self) -> dict[str, object]:
        excluded = ("_lock", "_loaded", "_offsets")
        return {name: value for name, value in vars(self).items() if name not in excluded}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock(), _loaded=None, _offsets={})

    def __repr__(self) -> str:  # part of checkpoints: without the folders above, as data may move
        return f"MdsSource({self._index.address.rsplit('/', 2)[-2]!r})"

    def _read(self, number: int, within: Indices) -> list[dict[str, Element]]:
        _, files, columns = self._load()
        offsets = self._offsets.get(number)
        if offsets is None:
            count = self._counts[number]
            offsets = self._offsets[number] = _read_offsets(files[number], count)
        starts = offsets[within]
        data = files[number].read(starts, offsets[within + 1])
        records: list[dict[str, Element]] = []
        try:
            records.extend(_decode(record, columns[number]) for record in data)
        except (ValueError, KeyError, IndexError, ArithmeticError, RecursionError) as error:
            row = len(records)
            raise CorruptFileError(
                f"The record cannot be decoded ({type(error).__name__}: {error}). Copy the shard "
                "again, or skip such records with `SkipErrors`.",
                path=files.refs[number].path,
                offset=int(starts[row]),
                record=int(within[row]),
            ) from None
        return records

    def _load(self) -> tuple[RecordLocator, OpenFiles, list[list[_Column]]]:
        if self._loaded is None:
            with self._lock:  # one thread reads the index while the others wait
                if self._loaded is None:
                    shards = read_shard_index(self._index, "MDS shards", _check_index)
                    self._counts = [shard["samples"] for shard in shards]
                    names = [self._find_shard(shard) for shard in shards]
                    refs = find_named(self._folder, names, self._index.storage)
                    files = OpenFiles(refs, open_decompressed)
                    columns = [_as_columns(shard, self._index.path) for shard in shards]
                    self._loaded = RecordLocator(self._counts), files, columns
        return self._loaded

    def _find_shard(self, shard: Any) -> str:
        """Return the name of a shard. On this machine, a shard may have been decompressed."""
        name, packed = shard["raw_data"]["basename"], shard.get("zip_data")
        is_there = self._index.is_local and Path(self._folder, name).exists()
        return name if packed is None or is_there else packed["basename"]


def _check_index(index: Any) -> list[Any]:
    """Return the shards that an index lists."""
    shards = index["shards"]
    for shard in shards:
        if shard["format"] != "mds" or shard["version"] != 2:
            raise ValueError("a shard is not in version 2 of MDS")
        for info in (shard["raw_data"], shard.get("zip_data")):
            if info is not None:
                check_shard(info["basename"], shard["samples"])
    if not shards:
        raise ValueError("it lists no shards")
    return shards


def _as_columns(shard: Any, path: str) -> list[_Column]:
    columns: list[_Column] = []
    try:
        names, sizes = shard["column_names"], shard["column_sizes"]
        for name, encoding, size in zip(names, shard["column_encodings"], sizes, strict=True):
            decode = find_decoder(encoding)
            if decode is None:
                raise FormatError(
                    f"The column {name!r} is encoded as {encoding!r}, which is not read. Write it "
                    "as an array, bytes, a string or JSON.",
                    path=path,
                )
            if size is not None and (type(size) is not int or size < 0):
                raise ValueError("the size of a column is not a count")
            columns.append(_Column(str(name), size or None, decode))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(
            f"The columns of a shard cannot be read ({type(error).__name__}: {error}). Write the "
            "dataset again.",
            path=path,
        ) from None
    return columns


def _read_offsets(file: File, count: int) -> Indices:
    """Read where the records of a shard begin and end."""
    size, stop = file.ref.size, 4 * (count + 2)
    head = file.read_one(0, min(4, size))
    if stop > size or struct.unpack("<I", head)[0] != count:
        raise CorruptFileError(
            f"The shard does not hold the {count:,} records that the index announces. Copy it "
            "again.",
            path=file.ref.path,
            offset=0,
        )
    offsets = np.frombuffer(file.read_one(4, stop), "<u4").astype(np.int64)
    if (np.diff(offsets) < 0).any() or offsets[0] < stop or offsets[-1] > size:
        raise CorruptFileError(
            "The shard is damaged: its records are not where they should be. Copy it again.",
            path=file.ref.path,
            offset=4,
        )
    return offsets


def _decode(data: bytes, columns: Sequence[_Column]) -> dict[str, Element]:
    num_sizes = sum(column.size is None for column in columns)
    sizes = iter(struct.unpack_from(f"<{num_sizes}I", data) if len(data) >= 4 * num_sizes else ())
    at = 4 * num_sizes
    record: dict[str, Element] = {}
    for column in columns:
        size = column.size if column.size is not None else next(sizes, -1)
        if size < 0 or at + size > len(data):
            raise ValueError(f"the record ends before the column {column.name!r}")
        record[column.name] = column.decode(data[at : at + size])
        at += size
    if at != len(data):
        raise ValueError(f"{len(data) - at} bytes follow the last column")
    return record
