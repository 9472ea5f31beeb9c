"""Arrays as pickle takes them: memory out of band, files by name, each as writeable as it was."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

Reduction: TypeAlias = tuple[Any, ...]
"""What `__reduce__` gives: a function, its arguments, perhaps a state."""


def reduce_array(array: NDArray[Any]) -> Reduction:
    """Reduce an array so that its memory goes out of band and its flags survive.

    On its own NumPy copies what is not contiguous, and what has no buffer in Python (times,
    bfloat16), into the pickle; it comes back writeable and in the byte order of the machine.

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
    return _make_frozen, (make, arguments)  # said so: the buffer over there may be writeable


_WITH_BUFFER = "biufcSU"
"""The kinds of dtype that mostly have a buffer in Python; asking the others costs a copy."""


def _reduce_memory(array: NDArray[Any]) -> Reduction:
    if array.dtype.kind in _WITH_BUFFER:
        reduction = cast(Reduction, array.__reduce_ex__(5))
        if isinstance(reduction[1][0], PickleBuffer):
            return reduction
    raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return _of_bytes, (raw, array.dtype, array.shape)


def reduce_plain_subclass(array: NDArray[Any]) -> Reduction:
    """Reduce an array of a class that adds no state; an `np.memmap` becomes one without a file."""
    return _as_kind, (np.asarray(array), type(array))


def reduce_memoryview(view: memoryview) -> Reduction:
    """Reduce a view of memory to one of the same format, shape and writability."""
    raw = view if view.c_contiguous else bytearray(view.tobytes())
    arguments = (PickleBuffer(raw), view.format, view.shape or (), view.readonly)
    _view(*arguments)  # a foreign byte order fails here, not over there
    return _view, arguments


@final
@dataclass(frozen=True)
class MappedFile:
    """Part of a file, which pickles as its name: loaded, it is mapped again as bytes."""

    path: str
    offset: int
    num_bytes: int
    is_writeable: bool

    def __reduce__(self) -> Reduction:
        return _map_file, (self.path, self.offset, self.num_bytes, self.is_writeable)


def reduce_mapped(array: NDArray[Any], files: dict[int, MappedFile | None]) -> Reduction | None:
    """Reduce an array whose memory is a mapped file to "open that file"; `None` for any other.

    `files` holds the mappings met before in the same pickle: a source of ten thousand rows of one
    file opens it once.
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


def _mapping_under(array: NDArray[Any]) -> Any:
    """Give the `np.memmap` that opened the file below a chain of views, if that is what it is."""
    root: Any = array
    while isinstance(root.base, np.ndarray):
        root = cast(Any, root.base)
    if not isinstance(root, np.memmap):
        return None
    opened = cast(Any, root)
    return None if opened.filename is None or opened.base is None else opened


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _bounds(array: NDArray[Any]) -> tuple[int, int]:
    """Give the lowest and the highest byte of an array, seen from its first element."""
    reach = [(n - 1) * step for n, step in zip(array.shape, array.strides, strict=True)]
    return sum(min(r, 0) for r in reach), sum(max(r, 0) for r in reach) + array.itemsize


def _file_of(root: Any) -> MappedFile | None:
    """Give the file under a mapping, if who opens it again finds the same bytes."""
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
    """Tell whether nobody wrote to a copy-on-write mapping, of which the file knows nothing.

    Linux says how many pages became private copies; elsewhere nobody does, and the array is sent
    by its content: slow for a large one, never wrong.
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


# What the other side calls. These names are in the pickles.


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def _make_frozen(make: Callable[..., NDArray[Any]], arguments: tuple[Any, ...]) -> NDArray[Any]:
    return _frozen(make(*arguments))


def _of_bytes(raw: NDArray[np.uint8], dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    return raw.view(dtype).reshape(shape)


def _as_kind(array: NDArray[Any], kind: type[NDArray[Any]]) -> NDArray[Any]:
    return array.view(kind)


def _view(buffer: Any, code: str, shape: tuple[int, ...], is_frozen: bool) -> memoryview:
    flat: Any = memoryview(buffer).cast("B")
    view = flat if (code, shape) == ("B", flat.shape) else flat.cast(code, shape)
    return view.toreadonly() if is_frozen else view


def _map_file(path: str, offset: int, num_bytes: int, is_writeable: bool) -> NDArray[np.uint8]:
    mode = "c" if is_writeable else "r"  # a worker's writes are its own, as with memory it was sent
    return np.memmap(path, np.uint8, mode, offset, (num_bytes,))


def _on_file(
    kind: type[NDArray[Any]],
    file: NDArray[np.uint8],
    shape: tuple[int, ...],
    dtype: Any,
    offset: int,
    strides: tuple[int, ...],
    is_writeable: bool,
) -> NDArray[Any]:
    array: Any = np.ndarray(shape, dtype, buffer=file, offset=offset, strides=strides)
    if kind is not np.ndarray:
        array = array.view(kind)
    if kind is np.memmap:
        opened: Any = file
        array.filename, array.offset, array.mode = opened.filename, opened.offset, opened.mode
    return array if is_writeable else _frozen(array)
