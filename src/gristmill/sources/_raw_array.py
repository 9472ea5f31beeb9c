"""Arrays that lie in files as they lie in memory, read by rows.

on this machine   mapped: only what is read is loaded, and all processes share it
in a store        the rows asked for, many ranges at a time
compressed        all of it, once in each process
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._places import Places
from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File, LastUsed, OpenFiles
from gristmill.sources._kept import Kept
from gristmill.types import Element, Indices, Span

_MOST_MAPPED = 128
"""Of each column: a map takes a file descriptor, and its file another."""


@final
@dataclass(frozen=True, kw_only=True)
class RawArray:
    """What an array holds, and where it lies in its file."""

    dtype: np.dtype[Any]
    """As it lies there."""
    record_dtype: np.dtype[Any]
    """As the records have it."""
    shape: tuple[int, ...]
    offset: int
    is_fortran: bool = False
    unpack: Callable[[File], bytes] | None = None
    """What gives the bytes that `offset` counts, where they are compressed. Can be pickled."""

    @property
    def num_bytes(self) -> int:
        """How many bytes it takes."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def kind(self) -> str:
        """What each item is, as in `uint8[28, 28]`."""
        return f"{self.dtype}{list(self.shape[1:]) or ''}"

    def check_size(self, size: int, path: str) -> None:
        """Hold the array to the bytes that are there for it, of which `offset` are before it."""
        follow = size - self.offset
        if follow < self.num_bytes:
            raise CorruptFileError(
                f"Its header announces {self.num_bytes:,} bytes, {self.dtype}{list(self.shape)}, "
                f"and {max(follow, 0):,} follow: it was cut short. Copy it anew.",
                path=path,
                offset=self.offset,
            )
        if follow > self.num_bytes:
            raise FormatError(
                f"After its array come {follow - self.num_bytes:,} more bytes, which would be "
                "lost. Save each array in a file of its own.",
                path=path,
                offset=self.offset + self.num_bytes,
            )


def check_shape(shape: Sequence[int], path: str) -> None:
    """Refuse an array without a first axis, which counts the records."""
    if not shape:
        raise FormatError(
            "It holds a scalar, and an array must have a first axis that counts the records. "
            "Save an array with one, as `np.atleast_1d` gives.",
            path=path,
        )


@final
class RawColumn:
    """The arrays of several files one after the other, as one."""

    def __init__(self, files: OpenFiles, numbers: Sequence[int], raws: Sequence[RawArray]) -> None:
        """Take which of the files they are in, and where there."""
        first = raws[0]
        for number, raw in zip(numbers, raws, strict=True):
            if (raw.dtype, raw.shape[1:]) != (first.dtype, first.shape[1:]):
                raise FormatError(
                    f"Its items are {raw.kind}, and those of the first file are {first.kind}. "
                    "All files of one array must hold the same kind: save it anew, or make a "
                    "source of each.",
                    path=files.refs[number].path,
                )
        self.dtype = first.record_dtype
        self._item_shape = first.shape[1:]
        self._made_of = files, tuple(numbers), tuple(raws)
        self._places = Places([raw.shape[0] for raw in raws])
        self._mapped = LastUsed(
            lambda at: _OpenArray(files[numbers[at]], raws[at]), most=_MOST_MAPPED
        )
        self._unpacked = Kept[_OpenArray](limit=0)  # none counts: it is unpacked once

    def __len__(self) -> int:
        return len(self._places)

    def __reduce__(self) -> tuple[Any, ...]:
        return RawColumn, self._made_of

    def as_one(self) -> NDArray[Any] | None:
        """Give the array itself if there is one: mapped, or in memory; read-only."""
        return self._array(0).as_one() if len(self._made_of[2]) == 1 else None

    def item(self, index: int) -> Element:
        """Give one item, in memory of its own."""
        number, within = self._places.locate(index)
        return self._array(number).item(within)

    def take(self, indices: Span) -> NDArray[Any]:
        """Give many items, in memory of their own; each file is read once."""
        parts = self._places.split(indices)
        if len(parts) == 1:
            return self._array(parts[0][0]).take(parts[0][1])
        made = np.empty((len(indices), *self._item_shape), self.dtype)
        for number, within, rows in parts:
            made[rows] = self._array(number).take(within)
        return made

    def _array(self, at: int) -> "_OpenArray":
        files, numbers, raws = self._made_of
        if raws[at].unpack is None:
            return self._mapped[at]
        return self._unpacked.get(at, lambda: (_OpenArray(files[numbers[at]], raws[at]), 0))


@final
class _OpenArray:
    """One array: all of it within reach, or its rows to be asked for."""

    def __init__(self, file: File, raw: RawArray) -> None:
        self._file = file
        self._raw = raw
        self._is_mapped = False
        self._all: NDArray[Any] | None = None
        if raw.num_bytes == 0:
            self._all = np.empty(raw.shape, raw.record_dtype)
        elif raw.unpack is not None:
            self._all = _unpacked(file, raw)
        elif file.ref.is_local:
            self._all = _mapped(file, raw)
            self._is_mapped = True

    def as_one(self) -> NDArray[Any] | None:
        self._check()
        is_as_recorded = self._raw.dtype == self._raw.record_dtype or not self._is_mapped
        return self._all if is_as_recorded else None

    def item(self, index: int) -> Element:
        self._check()
        if self._all is None:
            return self.take(np.array([index]))[0]
        item = self._all[index]
        if isinstance(item, np.ndarray):
            return cast("NDArray[Any]", item).astype(self._raw.record_dtype, order="C")
        return item.copy() if isinstance(item, np.void) else item

    def take(self, within: Indices) -> NDArray[Any]:
        self._check()
        if self._all is not None:
            return self._all.take(within, axis=0).astype(self._raw.record_dtype, copy=False)
        raw = self._raw
        size = raw.num_bytes // raw.shape[0]
        starts = raw.offset + within * size
        # A bytearray, as an array over it can be written to.
        data = bytearray().join(self._file.read(starts.tolist(), (starts + size).tolist()))
        rows = np.frombuffer(data, raw.dtype).reshape(len(within), *raw.shape[1:])
        return rows.astype(raw.record_dtype, copy=False)

    def _check(self) -> None:
        """Raise where the file is another by now, before its map is read."""
        if self._is_mapped:
            self._file.local_path()


def _mapped(file: File, raw: RawArray) -> NDArray[Any]:
    path = file.local_path()
    order = "F" if raw.is_fortran else "C"
    array = np.memmap(path, raw.dtype, "r", raw.offset, raw.shape, order)
    OpenFiles([file.ref])[0]  # raises where another file has taken its place meanwhile
    return np.asarray(array)  # a plain view: a memmap costs more at each access


def _unpacked(file: File, raw: RawArray) -> NDArray[Any]:
    assert raw.unpack is not None
    data = raw.unpack(file)
    raw.check_size(len(data), file.ref.path)
    array: NDArray[Any] = np.frombuffer(data, raw.dtype, math.prod(raw.shape), raw.offset)
    shaped = array.reshape(raw.shape, order="F" if raw.is_fortran else "C")
    return shaped.astype(raw.record_dtype, copy=False)
