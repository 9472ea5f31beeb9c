"""A base class for sources over arrays that a library reads in chunks: HDF5 and Zarr."""

import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, SupportsIndex, TypeAlias

import numpy as np

from gristmill._base.indices import as_indices, check_index
from gristmill._base.memory.aligned_alloc import mapped_empty
from gristmill._base.trees.columns import Columns, split_rows
from gristmill._data.sources.record_locator import RecordLocator
from gristmill._data.sources.tables.chunk_cache import ChunkCache
from gristmill.errors import FormatError
from gristmill.types import AnyArray, AnyDType, Element, Indices, Span

DEFAULT_CACHE_BYTES = 2**27

_UNCHUNKED_BYTES = 2**14
"""Bytes that are read at a time of an array that is not stored in chunks."""

_MAX_UNIT_BYTES = 2**30
"""What a chunk or an item may take in memory, unless the file itself is larger. Nothing is
allocated for a header that announces more."""

_OBJECT_BYTES = 100
"""A guess of the size of an item whose size is not known."""


class ChunkedArray(Protocol):
    """An array that is read by ranges of its first axis."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> AnyDType: ...

    @property
    def chunk_rows(self) -> int | None:
        """Items of the first axis in a chunk, if the array is stored in chunks."""
        ...

    def read(self, start: int, stop: int) -> AnyArray:
        """Return the items `[start, stop)`."""
        ...


Arrays: TypeAlias = Mapping[str, ChunkedArray]
"""The arrays of a file, by name. They have the same length."""


class ChunkedSource(ABC):
    """Random access to dicts of the items of arrays. Threads may share it.

    Chunks are read as a whole. Each process keeps the most recently used ones.

    Args:
        cache_bytes: How much memory each process uses for chunks.
    """

    def __init__(self, cache_bytes: int) -> None:
        self._cache_bytes = cache_bytes
        self._reset()

    def _reset(self) -> None:
        """Create the attributes that a pickled copy does not contain."""
        self._lock = threading.Lock()
        self._cache = ChunkCache[AnyArray](self._cache_bytes)
        self._loaded: tuple[RecordLocator, list[Arrays]] | None = None

    @abstractmethod
    def _open_files(self) -> list[tuple[str, Arrays]]:
        """Open all files, and return their paths and arrays."""

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns (numbers and times) instead of records."""
        return all(_is_dense(array.dtype) for array in self._load()[1][0].values())

    def read_columns(self, indices: Span) -> Columns:
        """Return many records as columns, if `is_columnar`.

        Args:
            indices: The records, all of them in bounds.
        """
        return Columns.of_new(self._take(as_indices(indices)))

    def __len__(self) -> int:
        return len(self._load()[0])

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__(np.array([check_index(index, len(self))]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        span = as_indices(indices)
        columns = self._take(span)
        if self.is_columnar:
            return split_rows(columns, len(span))
        values = [
            column.tolist() if column.dtype.kind in "OT" else list(column)
            for column in columns.values()
        ]
        return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]

    def __getstate__(self) -> dict[str, object]:
        excluded = ("_loaded", "_lock", "_cache")
        return {name: value for name, value in vars(self).items() if name not in excluded}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state)
        self._reset()

    def _load(self) -> tuple[RecordLocator, list[Arrays]]:
        if self._loaded is None:
            with self._lock:  # one thread opens the files while the others wait
                if self._loaded is None:
                    opened = self._open_files()
                    for path, arrays in opened:
                        _check_same(path, arrays, opened[0][1])
                    lengths = [next(iter(arrays.values())).shape[0] for _, arrays in opened]
                    self._loaded = RecordLocator(lengths), [arrays for _, arrays in opened]
        return self._loaded

    def _take(self, span: Any) -> dict[str, AnyArray]:
        """Return the items at some indices of each array, in new arrays."""
        locator, files = self._load()
        selections = locator.split(span)
        taken: dict[str, AnyArray] = {}
        for column, (name, first) in enumerate(files[0].items()):
            out = mapped_empty((len(span), *first.shape[1:]), first.dtype)
            for file, within, rows in selections:
                key = (file * len(files[0]) + column) << 40
                self._fill(files[file][name], key, within, out, rows)
            taken[name] = out
        return taken

    def _fill(
        self, array: ChunkedArray, key: int, within: Indices, out: AnyArray, rows: Indices
    ) -> None:
        """Copy the items `within` an array to some rows of `out`, chunk by chunk."""
        step = array.chunk_rows or max(1, _UNCHUNKED_BYTES // _row_bytes(array))
        numbers = within // step
        order = np.argsort(numbers, kind="stable")
        heads = np.flatnonzero(np.diff(numbers[order], prepend=-1))
        for some in np.split(order, heads[1:]) if len(order) else ():
            number = int(numbers[some[0]])
            start = number * step
            stop = min(start + step, array.shape[0])

            def load(start: int = start, stop: int = stop) -> tuple[AnyArray, int]:
                return array.read(start, stop), (stop - start) * _row_bytes(array)

            chunk = self._cache.get(key + number, load)
            out[rows[some]] = chunk[within[some] - start]


def check_arrays(arrays: Mapping[str, ChunkedArray], path: str, file_bytes: int = 0) -> None:
    """Raise unless there are arrays of one length, whose chunks fit into memory.

    Args:
        arrays: The selected arrays, by name.
        path: The file, for the error.
        file_bytes: Its size, or 0 if it is not known.
    """
    if not arrays:
        raise FormatError("The file holds no array with a first axis.", path=path)
    lengths = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r}: {length}" for name, length in lengths.items())
        raise FormatError(
            "The arrays must have the same length along the first axis, got "
            f"{listed}. Select some of them with `columns`.",
            path=path,
        )
    for name, array in arrays.items():
        rows = min(array.chunk_rows or 1, array.shape[0])
        num_bytes = rows * _row_bytes(array)
        if num_bytes > max(_MAX_UNIT_BYTES, file_bytes):
            raise FormatError(
                f"A chunk of {name!r} takes {num_bytes:,} bytes in memory, but at most "
                f"{_MAX_UNIT_BYTES:,} are read at once. If the file is not damaged, write it with "
                "smaller chunks.",
                path=path,
            )


def select_arrays(
    found: Mapping[str, ChunkedArray], columns: Sequence[str] | None, path: str
) -> dict[str, ChunkedArray]:
    """Return the selected arrays; by default all that have a first axis."""
    if columns is None:
        return {name: array for name, array in found.items() if array.shape}
    for name in columns:
        if name not in found:
            known = ", ".join(map(repr, found)) or "none"
            raise FormatError(
                f"`columns` selects {name!r}, but the arrays of the file are {known}.", path=path
            )
        if not found[name].shape:
            raise FormatError(
                f"`columns` selects {name!r}, which is a scalar. Select arrays with a first axis.",
                path=path,
            )
    return {name: found[name] for name in columns}


def _check_same(path: str, arrays: Arrays, first: Arrays) -> None:
    kinds = {name: (array.dtype, array.shape[1:]) for name, array in arrays.items()}
    expected = {name: (array.dtype, array.shape[1:]) for name, array in first.items()}
    if kinds != expected:
        raise FormatError(
            f"The items are {_describe(kinds)}, but those of the first file are "
            f"{_describe(expected)}. All files of a source must hold the same arrays.",
            path=path,
        )


def _describe(kinds: Mapping[str, tuple[AnyDType, tuple[int, ...]]]) -> str:
    return ", ".join(f"{name}: {dtype}{list(shape)}" for name, (dtype, shape) in kinds.items())


def _row_bytes(array: ChunkedArray) -> int:
    size = _OBJECT_BYTES if array.dtype.kind in "OT" else array.dtype.itemsize
    return max(1, math.prod(array.shape[1:]) * size)


def _is_dense(dtype: AnyDType) -> bool:
    return dtype.kind in "biufcmM"
