"""Reductions of arrays for pickle: memory goes out of band, files by name, and flags survive."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

Reduction: TypeAlias = tuple[Any, ...]
"""The result of `__reduce__`: a function, its arguments, perhaps a state."""

AnyArray: TypeAlias = NDArray[Any]


def reduce_array(array: AnyArray) -> Reduction:
    """Reduce an array so that its memory goes out of band and its flags survive.

    By default NumPy copies arrays into the pickle that are not contiguous, or whose dtype has no
    buffer in Python (times, bfloat16). They are loaded as writeable, in the byte order of the
    machine.

    >>> make, (raw, *rest) = reduce_array(np.array(["2020-01-01"], "M8[D]"))
    >>> raw.dtype, make(raw, *rest)
    (dtype('uint8'), array(['2020-01-01'], dtype='datetime64[D]'))
    """
    flags = array.flags
    if array.dtype.hasobject or not array.itemsize:
        plain = cast(Reduction, array.__reduce__())
        return plain if flags.writeable else (_frozen, (array.copy(),))
    make, arguments = _reduce_memory(array if flags.forc else array.copy(order="C"))
    if flags.writeable:
        return make, arguments
    return _make_frozen, (make, arguments)  # explicitly: the buffer that is loaded is writeable


_KINDS_WITH_BUFFER = "biufcSU"
"""Kinds of dtype that usually have a buffer in Python. To try it with the others costs a copy."""


def _reduce_memory(array: AnyArray) -> Reduction:
    if array.dtype.kind in _KINDS_WITH_BUFFER:
        reduction = cast(Reduction, array.__reduce_ex__(5))
        if isinstance(reduction[1][0], PickleBuffer):
            return reduction
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return _from_bytes, (raw, array.dtype, array.shape)


def reduce_plain_subclass(array: AnyArray) -> Reduction:
    """Reduce an array of a class that adds no state; an `np.memmap` loses its file."""
    return _as_subclass, (np.asarray(array), type(array))


def reduce_memoryview(view: memoryview) -> Reduction:
    """Reduce a `memoryview` to one of the same format, shape and writability."""
    raw = view if view.c_contiguous else bytearray(view.tobytes())
    arguments = (PickleBuffer(raw), view.format, view.shape or (), view.readonly)
    _view(*arguments)  # a foreign byte order fails here, not when it is loaded
    return _view, arguments


@final
@dataclass(frozen=True)
class MappedFile:
    """A range of a file, which is pickled by name and loaded as an array of the mapped bytes."""

    path: str
    offset: int
    num_bytes: int
    is_writeable: bool

    def __reduce__(self) -> Reduction:
        return _map_file, (self.path, self.offset, self.num_bytes, self.is_writeable)


def reduce_mapped(array: AnyArray, files: dict[int, MappedFile | None]) -> Reduction | None:
    """Reduce an array in a mapped file to a call that maps that file.

    Args:
        array: The array.
        files: Mappings that were found before in the same pickle, by id. Updated here, so that ten
            thousand rows of one file open it once.

    Returns:
        The reduction, or `None` if the array is elsewhere or its file has other content.
    """
    kind = type(array)
    root = _mapping_under(array)
    if root is None or not array.nbytes or kind not in (np.ndarray, np.memmap, np.recarray):
        return None
    if id(root) not in files:
        files[id(root)] = _file_of(root)
    file = files[id(root)]
    offset = _address(array) - _address(root)
    low, high = _bounds(array)
    if file is None or offset + low < 0 or offset + high > file.num_bytes:
        return None
    layout = (array.shape, array.dtype, offset, array.strides, array.flags.writeable)
    return _on_file, (kind, file, *layout)


def _mapping_under(array: AnyArray) -> "np.memmap[Any, Any] | None":
    """Return the `np.memmap` that opened the file, below a chain of views; `None` without one."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    if not isinstance(root, np.memmap) or root.filename is None or root.base is None:
        return None
    return cast("np.memmap[Any, Any]", root)


def _address(array: AnyArray) -> int:
    return array.__array_interface__["data"][0]


def _bounds(array: AnyArray) -> tuple[int, int]:
    """Return the offsets of the lowest and the highest byte from the first element."""
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + array.itemsize


def _file_of(root: "np.memmap[Any, Any]") -> MappedFile | None:
    """Return the file of a mapping, if a process that maps it again finds the same bytes."""
    path, end = str(root.filename), root.offset + root.nbytes
    try:
        if os.stat(path).st_size < end:
            return None
    except OSError:
        return None  # deleted since, as temporary files are
    start = _address(root)
    if root.mode == "c" and not _is_unwritten(start, start + root.nbytes):
        return None
    return MappedFile(path, root.offset, root.nbytes, is_writeable=root.mode != "r")


def _is_unwritten(start: int, end: int) -> bool:
    """Return whether a copy-on-write mapping still has the bytes of its file.

    Linux reports how many pages became private copies. Other systems do not, so the array is sent
    by content: slow if it is large, but never wrong.
    """
    try:
        lines = Path("/proc/self/smaps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    is_inside = False
    for line in lines:
        head, _, rest = line.partition(" ")
        if not head.endswith(":"):
            low, _, high = head.partition("-")
            is_inside = int(low, 16) < end and start < int(high, 16)
        elif is_inside and head in ("Anonymous:", "Swap:") and rest.split()[0] != "0":
            return False
    return True


# Functions that pickles refer to by name


def _frozen(array: AnyArray) -> AnyArray:
    array.flags.writeable = False
    return array


def _make_frozen(make: Callable[..., AnyArray], arguments: tuple[Any, ...]) -> AnyArray:
    return _frozen(make(*arguments))


def _from_bytes(raw: AnyArray, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    return raw.view(dtype).reshape(shape)


def _as_subclass(array: AnyArray, kind: type[AnyArray]) -> AnyArray:
    return array.view(kind)


def _view(buffer: Any, code: str, shape: tuple[int, ...], is_readonly: bool) -> memoryview:
    flat: Any = memoryview(buffer).cast("B")
    view = flat if (code, shape) == ("B", flat.shape) else flat.cast(code, shape)
    return view.toreadonly() if is_readonly else view


def _map_file(path: str, offset: int, num_bytes: int, is_writeable: bool) -> AnyArray:
    mode = "c" if is_writeable else "r"  # a worker's writes are private, as with memory it was sent
    return np.memmap(path, np.uint8, mode, offset, (num_bytes,))


def _on_file(
    kind: type[AnyArray],
    file: "np.memmap[Any, Any]",
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    offset: int,
    strides: tuple[int, ...],
    is_writeable: bool,
) -> AnyArray:
    array: Any = np.ndarray(shape, dtype, buffer=file, offset=offset, strides=strides)
    if kind is not np.ndarray:
        array = array.view(kind)
    if kind is np.memmap:
        array.filename, array.offset, array.mode = file.filename, file.offset, file.mode
    return array if is_writeable else _frozen(array)
