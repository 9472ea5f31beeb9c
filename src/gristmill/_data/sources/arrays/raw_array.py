"""Read rows of arrays that files store in their in-memory layout.

on this machine   memory-mapped: only the rows that are read are loaded, and processes share them
in a store        the requested rows, many ranges per request
compressed        the whole array, once in each process
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np

from gristmill._data.sources.record_locator import RecordLocator
from gristmill._data.sources.tables.chunk_cache import ChunkCache
from gristmill._io.file import File
from gristmill._io.open_files import LruCache, OpenFiles
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.types import AnyArray, AnyDType, Element, Indices, Span

_MAX_MAPPED = 128
"""Mapped files of each column. A map needs a file descriptor, and its open file another one."""

_MAX_AXES = 32
_MAX_BYTES = 2**62


@final
@dataclass(frozen=True, kw_only=True)
class RawArray:
    """The type and shape of an array, and where its file stores it."""

    dtype: AnyDType
    """The type in the file."""
    record_dtype: AnyDType
    """The type of the records."""
    shape: tuple[int, ...]
    offset: int
    """Bytes before the first item, in the file or in the decompressed data."""
    is_fortran: bool = False
    decompress: Callable[[File], AnyArray] | None = None
    """Returns the decompressed bytes; `None` if the array is not compressed. Can be pickled."""

    @property
    def num_bytes(self) -> int:
        """The size of the array, not compressed."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def item_type(self) -> str:
        """The type and shape of an item, such as `uint8[28, 28]`."""
        return f"{self.dtype}{list(self.shape[1:]) or ''}"

    def check_size(self, size: int, path: str) -> None:
        """Raise unless the array ends exactly where its data end.

        Args:
            size: Bytes of data, including the `offset` bytes before the array.
            path: The file, for the error.
        """
        num_following = size - self.offset
        if num_following < self.num_bytes:
            raise CorruptFileError(
                f"The header announces {self.num_bytes:,} bytes, {self.dtype}{list(self.shape)}, "
                f"but {max(num_following, 0):,} follow: the file is truncated. Copy it again.",
                path=path,
                offset=self.offset,
            )
        if num_following > self.num_bytes:
            # Compressed data are not read to their end to count the bytes.
            count = "" if self.decompress else f"{num_following - self.num_bytes:,} "
            raise FormatError(
                f"The array is followed by {count}more bytes, which would be lost. Save each "
                "array in a file of its own.",
                path=path,
                offset=self.offset + self.num_bytes,
            )


def check_shape(shape: Sequence[int], itemsize: int, path: str) -> None:
    """Raise unless NumPy can hold an array and it has a first axis, which counts the records.

    Args:
        shape: The shape that the header of a file announces.
        itemsize: The size of an item in bytes.
        path: The file, for the error.
    """
    if not shape:
        raise FormatError(
            "The array is a scalar, but it must have a first axis that counts the records. "
            "Save an array with one axis or more, for example with `np.atleast_1d`.",
            path=path,
        )
    if len(shape) > _MAX_AXES:
        raise FormatError(
            f"The array has {len(shape)} axes, more than the {_MAX_AXES} that every version of "
            "NumPy supports.",
            path=path,
        )
    if not itemsize:
        raise FormatError("The items of the array have no bytes. Save another type.", path=path)
    if math.prod(length or 1 for length in shape) * itemsize > _MAX_BYTES:
        raise CorruptFileError(
            f"The header announces an array of shape {list(shape)}, which no computer can hold. "
            "Copy the file again.",
            path=path,
        )


@final
class RawColumn:
    """The arrays of several files, concatenated along the first axis.

    Args:
        files: All files of the source.
        numbers: Which of them hold the arrays of this column.
        raws: The array of each of these files.
    """

    def __init__(self, files: OpenFiles, numbers: Sequence[int], raws: Sequence[RawArray]) -> None:
        first = raws[0]
        for number, raw in zip(numbers, raws, strict=True):
            if (raw.dtype, raw.shape[1:]) != (first.dtype, first.shape[1:]):
                raise FormatError(
                    f"The items are {raw.item_type}, but those of the first file are "
                    f"{first.item_type}. All files of an array must have items of the same type "
                    "and shape: save it again, or create one source per file.",
                    path=files.refs[number].path,
                )
        self.dtype = first.record_dtype
        self._item_shape = first.shape[1:]
        self._arguments = files, tuple(numbers), tuple(raws)
        self._locator = RecordLocator([raw.shape[0] for raw in raws])
        self._mapped = LruCache(
            lambda at: _OpenArray(files[numbers[at]], raws[at]), max_size=_MAX_MAPPED
        )
        # Their sizes count as 0, so that none is evicted and each is decompressed only once.
        self._decompressed = ChunkCache[_OpenArray](max_bytes=0)

    def __len__(self) -> int:
        return len(self._locator)

    def __reduce__(self) -> tuple[object, ...]:
        return RawColumn, self._arguments

    def as_single_array(self) -> AnyArray | None:
        """Return the whole array, read-only, or `None` unless it is one mapped or loaded file."""
        return self._open(0).as_single_array() if len(self._arguments[2]) == 1 else None

    def change_checks(self) -> list[Callable[[], None]]:
        """Return what raises if the file of a column that is one array changes, if it is mapped."""
        return self._open(0).change_checks()

    def item(self, index: int) -> Element:
        """Return a copy of one item."""
        file, within = self._locator.locate(index)
        return self._open(file).item(within)

    def take(self, indices: Span) -> AnyArray:
        """Return a copy of many items, with one read per file."""
        selections = self._locator.split(indices)
        if len(selections) == 1:
            return self._open(selections[0].file).take(selections[0].indices)
        items = np.empty((len(indices), *self._item_shape), self.dtype)
        for file, within, rows in selections:
            items[rows] = self._open(file).take(within)
        return items

    def _open(self, at: int) -> "_OpenArray":
        files, numbers, raws = self._arguments
        if raws[at].decompress is None:
            return self._mapped[at]
        return self._decompressed.get(at, lambda: (_OpenArray(files[numbers[at]], raws[at]), 0))


@final
class _OpenArray:
    """The array of one file: mapped, loaded, or read by rows from a store."""

    def __init__(self, file: File, raw: RawArray) -> None:
        self._file = file
        self._raw = raw
        self._is_mapped = False
        self._array: AnyArray | None = None
        """`None` where rows are read from a store."""
        if raw.num_bytes == 0:
            self._array = np.empty(raw.shape, raw.record_dtype)
        elif raw.decompress is not None:
            self._array = _load_decompressed(file, raw)
        elif file.ref.is_local:
            self._array = _map(file, raw)
            self._is_mapped = True

    def as_single_array(self) -> AnyArray | None:
        self.check_unchanged()
        has_record_dtype = self._raw.dtype == self._raw.record_dtype or not self._is_mapped
        return self._array if has_record_dtype else None

    def item(self, index: int) -> Element:
        if self._array is None:
            return self.take(np.array([index]))[0]
        self.check_unchanged()
        item = self._array[index]
        if isinstance(item, np.ndarray):
            item = cast("AnyArray", item).astype(self._raw.record_dtype, order="C")
        elif isinstance(item, np.void):
            item = item.copy()
        self.check_unchanged()
        return item

    def take(self, within: Indices) -> AnyArray:
        if self._array is not None:
            self.check_unchanged()
            taken = self._array.take(within, axis=0)
            self.check_unchanged()
            return taken.astype(self._raw.record_dtype, copy=False)
        raw = self._raw
        size = raw.num_bytes // raw.shape[0]
        starts = raw.offset + within * size
        # A bytearray, because an array over one is writable.
        data = bytearray().join(self._file.read(starts.tolist(), (starts + size).tolist()))
        rows = np.frombuffer(data, raw.dtype).reshape(len(within), *raw.shape[1:])
        return rows.astype(raw.record_dtype, copy=False)

    def change_checks(self) -> list[Callable[[], None]]:
        return [self._file.check_unchanged] if self._is_mapped else []

    def check_unchanged(self) -> None:
        """Raise if a mapped file has been changed or truncated.

        Called before its map is read, because a page after the end of a file kills the process, and
        after its items are copied, because the file may have changed in the meantime.
        """
        if self._is_mapped:
            self._file.check_unchanged()


def _map(file: File, raw: RawArray) -> AnyArray:
    path = file.local_path()
    order = "F" if raw.is_fortran else "C"
    array = np.memmap(path, raw.dtype, "r", raw.offset, raw.shape, order)
    OpenFiles([file.ref])[0]  # raises if the file was replaced in the meantime
    return np.asarray(array)  # a plain view: each access to a memmap costs more


def _load_decompressed(file: File, raw: RawArray) -> AnyArray:
    assert raw.decompress is not None
    try:
        data = raw.decompress(file)
    except MemoryError:
        raise FileError(
            f"The array takes {raw.num_bytes:,} bytes once it is decompressed, and this machine "
            "does not have as much free memory. Save it without compression.",
            path=file.ref.path,
        ) from None
    raw.check_size(len(data), file.ref.path)
    array: AnyArray = np.frombuffer(data, raw.dtype, math.prod(raw.shape), raw.offset)
    shaped = array.reshape(raw.shape, order="F" if raw.is_fortran else "C")
    loaded = shaped.astype(raw.record_dtype, copy=False)
    loaded.flags.writeable = False
    return loaded
