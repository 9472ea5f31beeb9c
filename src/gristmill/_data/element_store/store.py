"""Elements in files, by index: written once, in any order, by any number of processes.

    layout     JSON: how many elements there is room for, and the layout of the columns
    entries    for each element: whether it is stored, where, and a checksum
    columns    one array for each leaf, for elements that have the layout
    bytes      the other elements, one after the other
    lock       held by the process that writes
    in-use     held by all processes that have the store open

An entry is written after its element, so a process that is killed leaves no half-written element
behind. Each process compares an element with its checksum when it first reads it; one that does not
match, as after a power failure, is the same as one that was never stored. Files have holes where
nothing is stored yet. They are written with system calls, because a full disk ends a process that
writes to a map.
"""

import fcntl
import json
import mmap
import os
import sys
import threading
import weakref
import zlib
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from gristmill._base.log_once import log_once
from gristmill._base.trees.columns import Columns
from gristmill._data.element_store.codec import PLAIN_CODEC, Codec, CodecError
from gristmill._data.element_store.layout import ElementLayout, layout_of, parse_layout
from gristmill._io.folders.file_lock import lock_exclusively
from gristmill.errors import FileError, PlanError
from gristmill.types import AnyArray, Element, Indices

_ENTRY = np.dtype([("crc", "<u4"), ("state", "<u4"), ("start", "<u8"), ("size", "<u8")])
_ABSENT, _IN_COLUMNS, _IN_BYTES = 1, 2, 3
_MAX_LAYOUT_BYTES = 2**24
_ALIGNMENT = 64
_OVERHEAD_BYTES = 2**16
"""More than the layout, and what files are rounded up to."""

_MADV_POPULATE_READ = 22
"""Of Linux; the constant is not in Python's module `mmap`."""
_MIN_MAPPED_BYTES = 2**16
"""Linux maps as much with each page fault."""

FILES = ("layout", "entries", "columns", "bytes", "lock", "in-use")
"""The names of the files of a store."""


@final
class ElementStore:
    """The stored elements of one dataset. Thread-safe.

    Args:
        files: The descriptors of its files, by name, which the store closes.
        location: Where they are, for messages.
        num_elements: The number of elements of the dataset.
        find_budget: Returns the bytes that the store may take, given those that it would take.
            Called when it is created.
        codec: Encodes elements without a layout.
    """

    def __init__(
        self,
        files: Mapping[str, int],
        location: Path,
        num_elements: int,
        find_budget: Callable[[int], int],
        codec: Codec = PLAIN_CODEC,
    ) -> None:
        self._files = files
        self._location = location
        self._num_elements = num_elements
        self._find_budget = find_budget
        self._codec = codec
        self._mutex = threading.Lock()
        fcntl.flock(self._files["in-use"], fcntl.LOCK_SH)
        # Unbuffered: since Python 3.13, a buffered file reports that its descriptor is closed.
        self._lock_file = os.fdopen(self._files["lock"], "r+b", buffering=0, closefd=False)
        self._opened: _Opened | None = None
        self._is_full = False
        weakref.finalize(self, _close_all, list(files.values()))

    def find(self, keys: Indices) -> AnyArray:
        """Return for each key whether its element is stored, and undamaged."""
        opened = self._opened
        if opened is None:
            with self._lock():
                opened = self._open()
            if opened is None:
                return np.zeros(len(keys), bool)
        return opened.find(keys)

    def read(self, keys: Indices) -> Columns | list[Element]:
        """Return elements that `find` has found; `None` for an absent one."""
        assert self._opened is not None
        return self._opened.read(keys)

    def write(self, keys: Indices, elements: Sequence[Element]) -> None:
        """Store elements, unless there is no room or another process has stored them.

        Raises:
            PlanError: An element holds an object that cannot be stored.
        """
        if self._is_full or not len(keys):
            return
        try:
            with self._lock():
                opened = self._open() or self._create(elements)
                if opened is not None:
                    opened.write(keys, elements)
        except OSError as error:
            self._is_full = True
            log_once(
                f"element-store {self._location}",
                "The cache %s cannot be written any more: %s. The other elements are computed.",
                self._location,
                error.strerror or error,
            )

    @contextmanager
    def _lock(self) -> Generator[None]:
        with self._mutex:
            lock_exclusively(self._lock_file, self._location)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _open(self) -> "_Opened | None":
        """Return the files if a process has created the layout. Called with the lock."""
        if self._opened is None:
            found = _parse(os.pread(self._files["layout"], _MAX_LAYOUT_BYTES, 0))
            if found is not None:
                layout, capacity, max_bytes = found
                opened = _Opened(self._files, layout, capacity, max_bytes, self._codec)
                if capacity <= self._num_elements and opened.is_complete:
                    self._opened = opened
        return self._opened

    def _create(self, elements: Sequence[Element]) -> "_Opened | None":
        """Create the layout from the first element that is present."""
        first = next((element for element in elements if element is not None), None)
        if first is None:
            return None
        layout = layout_of(first)
        element_bytes = _ENTRY.itemsize + (0 if layout is None else layout.num_bytes)
        wanted = _OVERHEAD_BYTES + element_bytes * self._num_elements
        if layout is None:
            wanted += self._num_elements * len(_encoded(first, self._codec))
        budget = self._find_budget(wanted) - _OVERHEAD_BYTES
        capacity = max(0, min(self._num_elements, budget // element_bytes))
        max_bytes = max(0, budget - capacity * element_bytes)
        os.ftruncate(self._files["bytes"], 0)
        for name, size in (
            ("entries", capacity * _ENTRY.itemsize),
            ("columns", 0 if layout is None else sum(_column_bytes(layout, capacity))),
        ):
            os.ftruncate(self._files[name], 0)  # what a damaged layout described
            os.ftruncate(self._files[name], size)
        content = {
            "capacity": capacity,
            "max_bytes": max_bytes,
            "tree": None if layout is None else layout.tree,
        }
        encoded = json.dumps(content).encode()
        os.ftruncate(self._files["layout"], 0)
        os.pwrite(self._files["layout"], b"%08x\n" % zlib.crc32(encoded) + encoded, 0)
        return self._open()


def _parse(data: bytes) -> tuple[ElementLayout | None, int, int] | None:
    checksum, _, encoded = data.partition(b"\n")
    if checksum != b"%08x" % zlib.crc32(encoded) or not encoded:
        return None
    try:
        content = cast("dict[str, Any]", json.loads(encoded))
        capacity, max_bytes, tree = (content[key] for key in ("capacity", "max_bytes", "tree"))
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    layout = None if tree is None else parse_layout(tree)
    is_known = tree is None or layout is not None
    is_bounded = all(type(number) is int and number >= 0 for number in (capacity, max_bytes))
    return (layout, capacity, max_bytes) if is_known and is_bounded else None


def _column_bytes(layout: ElementLayout, capacity: int) -> list[int]:
    """Return the bytes of each column, each of which begins at an aligned offset."""
    return [-(-leaf.num_bytes * capacity // _ALIGNMENT) * _ALIGNMENT for leaf in layout.leaves]


@final
class _Opened:
    """The files of a store whose layout is known."""

    def __init__(
        self,
        files: Mapping[str, int],
        layout: ElementLayout | None,
        capacity: int,
        max_bytes: int,
        codec: Codec,
    ) -> None:
        self._codec = codec
        self._files = files
        self._layout = layout
        self._capacity = capacity
        self._max_bytes = max_bytes
        sizes = [] if layout is None else _column_bytes(layout, capacity)
        self._starts = [sum(sizes[:number]) for number in range(len(sizes))]
        self._sizes = {"entries": capacity * _ENTRY.itemsize, "columns": sum(sizes)}
        if not self.is_complete:
            return
        self._entries = self._map_entries()
        leaves = () if layout is None else layout.leaves
        memory = (
            mmap.mmap(files["columns"], sum(sizes), access=mmap.ACCESS_READ) if sum(sizes) else b""
        )
        self._columns = [
            np.ndarray((capacity, *leaf.shape), leaf.dtype, memory, start)
            if leaf.num_bytes * capacity
            else np.zeros((capacity, *leaf.shape), leaf.dtype)
            for leaf, start in zip(leaves, self._starts, strict=True)
        ]
        self._memory = memory
        self._is_verified = np.zeros(capacity, bool)

    @property
    def is_complete(self) -> bool:
        """Whether the mapped files have their full sizes."""
        sizes = self._sizes.items()
        return all(os.fstat(self._files[name]).st_size >= size for name, size in sizes)

    def check(self) -> None:
        """Raise if a file is shorter than it was: reading its map would end the process."""
        if not self.is_complete:
            raise _changed()

    def _map_entries(self) -> AnyArray:
        if not self._capacity:
            return np.zeros(0, _ENTRY)
        with os.fdopen(os.dup(self._files["entries"]), "rb") as file:
            return np.asarray(np.memmap(file, _ENTRY, "r", 0, (self._capacity,)))

    def _map_pages(self, start: int, num_bytes: int) -> None:
        """Map what was written, in one call instead of a page fault for every few pages."""
        is_linux = sys.platform == "linux"
        if num_bytes < _MIN_MAPPED_BYTES or not is_linux or not isinstance(self._memory, mmap.mmap):
            return
        first = start // mmap.PAGESIZE * mmap.PAGESIZE
        with suppress(OSError):  # Linux before 5.14
            self._memory.madvise(_MADV_POPULATE_READ, first, start + num_bytes - first)

    def find(self, keys: Indices) -> AnyArray:
        self.check()
        is_inside = keys < self._capacity
        if not is_inside.all():
            found = np.zeros(len(keys), bool)
            found[is_inside] = self.find(keys[is_inside])
            return found
        found = self._is_verified[keys]
        if not found.all():
            unknown = np.flatnonzero(~found)
            is_stored = self._entries["state"][keys[unknown]] != 0
            for row in unknown[is_stored].tolist():
                found[row] = self._is_verified[keys[row]] = self._verify(int(keys[row]))
        return found

    def _verify(self, key: int) -> bool:
        entry = self._entries[key]
        if entry["state"] == _IN_COLUMNS and self._layout is not None:
            return entry["crc"] == _checksum([column[key] for column in self._columns])
        if entry["state"] == _IN_BYTES:
            try:
                self._codec.decode(self._load(key))
            except CodecError:
                return False
            return True
        return entry["state"] == _ABSENT and entry["crc"] == 0

    def _load(self, key: int) -> bytes:
        entry = self._entries[key]
        start, size = int(entry["start"]), int(entry["size"])
        end = os.fstat(self._files["bytes"]).st_size
        if start + size > end:
            raise CodecError("damaged bytes")
        data = os.pread(self._files["bytes"], size, start)
        if len(data) != size or zlib.crc32(data) != entry["crc"]:
            raise CodecError("damaged bytes")
        return data

    def read(self, keys: Indices) -> Columns | list[Element]:
        states = self._entries["state"][keys]
        if self._layout is not None and (states == _IN_COLUMNS).all():
            return self._as_columns(keys)
        rows: list[Element] = [None] * len(keys)
        chosen = np.flatnonzero(states == _IN_COLUMNS)
        if len(chosen):
            gathered = self._as_columns(keys[chosen]).rows()
            for row, element in zip(chosen.tolist(), gathered, strict=True):
                rows[row] = element
        for row in np.flatnonzero(states == _IN_BYTES).tolist():
            try:
                rows[row] = self._codec.decode(self._load(int(keys[row])))
            except CodecError:
                raise _changed() from None
        return rows

    def _as_columns(self, keys: Indices) -> Columns:
        layout = cast("ElementLayout", self._layout)
        columns = [layout.column(number, one) for number, one in enumerate(self._columns)]
        return Columns(columns, layout.unflatten, keys, self.check)

    def write(self, keys: Indices, elements: Sequence[Element]) -> None:
        """Write elements, each followed by its entry. Called with the lock."""
        self.check()
        for key, element in zip(keys.tolist(), elements, strict=True):
            if key < self._capacity and not (self._entries["state"][key] and self._verify(key)):
                entry = self._write_one(key, element)
                if entry is not None:
                    data = np.array([entry], _ENTRY).tobytes()
                    _write(self._files["entries"], data, key * _ENTRY.itemsize)
                    self._is_verified[key] = True

    def _write_one(self, key: int, element: Element) -> tuple[int, int, int, int] | None:
        """Write an element; return its entry, or `None` if there is no room."""
        if element is None:
            return 0, _ABSENT, 0, 0
        layout = self._layout
        leaves = None if layout is None else layout.leaves_of(element)
        if layout is not None and leaves is not None:
            for number, leaf in enumerate(leaves):
                offset = self._starts[number] + key * leaf.nbytes
                _write(self._files["columns"], leaf.data.cast("B") if leaf.nbytes else b"", offset)
                self._map_pages(offset, leaf.nbytes)
            return _checksum(leaves), _IN_COLUMNS, 0, 0
        data = _encoded(element, self._codec)
        start = os.fstat(self._files["bytes"]).st_size
        if start + len(data) > self._max_bytes:
            return None
        _write(self._files["bytes"], data, start)
        return zlib.crc32(data), _IN_BYTES, start, len(data)


def _encoded(element: Element, codec: Codec) -> bytes:
    try:
        return codec.encode(element)
    except CodecError as error:
        raise PlanError(
            f"`cache` cannot store {error}. On disk it stores arrays, numbers, strings, bytes and "
            "`None`, in dicts, lists and tuples, and in memory what can be pickled. Convert the "
            "element in a `map` before `cache`."
        ) from None


def _changed() -> FileError:
    return FileError(
        "The file of a cache was changed by another program while it was in use. Remove the "
        "folder of the cache, and start again."
    )


def _close_all(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _checksum(leaves: Sequence[Any]) -> int:
    """Return the checksum of the leaves of an element."""
    checksum = 1  # so that zeros, as in a hole of the file, have another checksum than 0
    for leaf in leaves:
        data = np.ascontiguousarray(leaf).reshape(-1).view(np.uint8)
        checksum = zlib.crc32(data.data, checksum)
    return checksum


def _write(descriptor: int, data: "bytes | memoryview[Any]", offset: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data, offset = data[written:], offset + written
