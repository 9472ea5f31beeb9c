"""A source over the indexed datasets of Megatron: tokens in `NAME.bin`, located by `NAME.idx`.

magic    9 bytes, "MMIDIDX" and two zeros
version  8, which is 1
dtype    1, the code of the type of a token
counts   8 + 8: sequences, and the boundaries of documents
lengths  4 per sequence, in tokens
starts   8 per sequence, in bytes
bounds   8 per boundary of a document, in sequences
modes    1 per sequence, only in multimodal datasets
"""

import os
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple, SupportsIndex, final

import numpy as np

from gristmill._data.sources.record_locator import RecordLocator, gather
from gristmill._io.file import File, FileRef, describe_files
from gristmill._io.open_files import OpenFiles, open_file
from gristmill._io.paths import Paths, find_files
from gristmill.errors import CorruptFileError, FormatError
from gristmill.options import StorageOptions
from gristmill.types import AnyArray, AnyDType, Indices, Span

MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_DTYPES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
_BYTES_PER_SEQUENCE = 12


@final
class MegatronSource:
    """Random access to the sequences of tokens, as arrays, of Megatron's indexed datasets.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.bin", "wb") as file:
    ...         _ = file.write(np.array([5, 6, 7], "<u2").tobytes())
    ...     with open(f"{folder}/a.idx", "wb") as file:
    ...         _ = file.write(MAGIC + struct.pack("<QBQQ2i2q3q", 1, 8, 2, 3, 1, 2, 0, 2, 0, 1, 2))
    ...     MegatronSource(f"{folder}/a.idx")[1]
    array([6, 7], dtype=uint16)

    Args:
        paths: The `.idx` files, or their paths without this suffix: a path, a URL, a pattern with
            `*`, or a list of them. The `.bin` files must be beside them.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If a `.bin` or `.idx` file does not exist.
        FormatError: When records are first read, if a file is not one of Megatron's.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        several = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        indexes = [f"{os.fspath(path).removesuffix('.idx')}.idx" for path in several]
        self._indexes = find_files(indexes, storage)
        data = [f"{ref.path.removesuffix('.idx')}.bin" for ref in self._indexes]
        self._files = OpenFiles(find_files(data, storage))
        self._loaded: tuple[RecordLocator, list[_Index]] | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._load()[0])

    def __getitem__(self, index: SupportsIndex) -> AnyArray:
        number, within = self._load()[0].locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[AnyArray]:
        return gather(self._load()[0], indices, self._read)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        return f"MegatronSource({describe_files(self._indexes)})"

    def _read(self, number: int, within: Indices) -> list[AnyArray]:
        index = self._load()[1][number]
        starts = index.starts[within]
        stops = starts + index.lengths[within].astype(np.int64) * index.dtype.itemsize
        data = self._files[number].read(starts, stops)
        # A bytearray, because an array over one is writable.
        return [np.frombuffer(bytearray(tokens), index.dtype) for tokens in data]

    def _load(self) -> "tuple[RecordLocator, list[_Index]]":
        if self._loaded is None:
            with self._lock:  # one thread reads the indexes while the others wait
                if self._loaded is None:
                    pairs = zip(self._indexes, self._files.refs, strict=True)
                    indexes = [_read_index(open_file(ref), data) for ref, data in pairs]
                    counts = [len(index.starts) for index in indexes]
                    self._loaded = RecordLocator(counts), indexes
        return self._loaded


class _Index(NamedTuple):
    dtype: AnyDType
    lengths: AnyArray
    starts: AnyArray


def _read_index(file: File, data: FileRef) -> _Index:
    """Read an index, and check that all sequences are in their file."""
    path, size = file.ref.path, file.ref.size
    head = file.read_one(0, min(_HEADER.size, size))
    if not head.startswith(MAGIC):
        raise FormatError(
            "The file does not start like an index of Megatron. Pass the `.idx` files, or their "
            "paths without this suffix.",
            path=path,
            offset=0,
        )
    if len(head) < _HEADER.size:
        raise _damaged("it ends inside its header", path)
    _, version, code, count, _ = _HEADER.unpack(head)
    if version != 1 or code not in _DTYPES:
        raise FormatError(
            f"The index has version {version} and type {code}, but only version 1 and the types 1 "
            f"to {len(_DTYPES)} are known.",
            path=path,
            offset=len(MAGIC),
        )
    stop = _HEADER.size + count * _BYTES_PER_SEQUENCE
    if stop > size:
        raise _damaged(f"it announces {count:,} sequences, and ends before their locations", path)
    body = file.read_one(_HEADER.size, stop)
    lengths = np.frombuffer(body, "<i4", count)
    starts = np.frombuffer(body, "<i8", count, offset=4 * count)
    dtype = np.dtype(_DTYPES[code])
    last = data.size - lengths.astype(np.int64) * dtype.itemsize
    wrong = np.flatnonzero((lengths < 0) | (starts < 0) | (starts > last))
    if len(wrong):
        number = int(wrong[0])
        raise CorruptFileError(
            f"The index locates {int(lengths[number]):,} tokens at byte {int(starts[number]):,} of "
            f"{data.name!r}, which has {data.size:,} bytes. Copy both files again.",
            path=path,
            record=number,
        )
    return _Index(dtype, lengths, starts)


def _damaged(problem: str, path: str) -> CorruptFileError:
    return CorruptFileError(f"The index is truncated: {problem}. Copy it again.", path=path)
