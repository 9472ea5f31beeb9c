"""Records in shared memory, which other processes attach to by name.

    | record 0 | ... | record n-1 | end of record 0 | ... | end of record n-1 | n |
      pickled                       8 bytes each, little endian

Without a name of the user's the memory is anonymous (memfd): it needs no room in /dev/shm, lives
as long as somebody has it open, and is reached through its creator's /proc entry. With a name it
is a file in /dev/shm (elsewhere, in the folder for temporary files) that the process which
created it removes: at `unlink`, when the source is collected, or at exit.
"""

import mmap
import os
import pickle
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, SupportsIndex, final

from gristmill.errors import ClosedError, PlanError, SourceError

_WORD = 8


@final
class SharedMemoryDataSource:
    """A sequence of any picklable records, stored once for all processes.

    Give `elements` to create it, under `name` or anonymously; give only the `name` to attach to
    one that exists. A pickled source attaches where it is unpickled.

    >>> with SharedMemoryDataSource(["a", {"b": 1}, None]) as source:
    ...     len(source), source[1]
    (3, {'b': 1})
    """

    def __init__(self, elements: Sequence[Any] | None = None, *, name: str | None = None) -> None:
        self.name: str
        if elements is None:
            if name is None:
                raise PlanError(
                    "Give `elements` to create a shared source, or `name` to attach to one."
                )
            descriptor, self.name, path = _open(name)
        else:
            descriptor, self.name, path = _create(name)
        try:
            if elements is not None:
                _write(descriptor, elements)
            self._memory = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ)
        except BaseException:
            _release(descriptor, path)
            raise
        self._length = int.from_bytes(self._memory[-_WORD:], "little")
        self._index = len(self._memory) - _WORD * (self._length + 1)
        self._unlink = weakref.finalize(self, _release, descriptor, path)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: SupportsIndex) -> Any:
        index = position.__index__()
        if not 0 <= index < self._length:
            raise IndexError(f"`position` must be in [0, {self._length}), got {index}.")
        if self._memory.closed:
            raise ClosedError("This shared source was closed. Attach to it anew by its name.")
        start = self._end_of(index - 1) if index else 0
        return pickle.loads(self._memory[start : self._end_of(index)])

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self._length))

    def count(self, value: Any) -> int:
        """Count the records equal to `value`."""
        return sum(record == value for record in self)

    def index(self, value: Any) -> int:
        """Find the first record equal to `value`."""
        for index, record in enumerate(self):
            if record == value:
                return index
        raise ValueError(f"{value!r} is not among the records.")

    def close(self) -> None:
        """Let go of this process's mapping; other processes keep theirs."""
        self._memory.close()

    def unlink(self) -> None:
        """Let nobody attach any more; who has it mapped keeps it."""
        self._unlink()

    def __enter__(self) -> "SharedMemoryDataSource":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.unlink()

    def __reduce__(self) -> tuple[Any, ...]:
        return _attach, (self.name,)

    def __repr__(self) -> str:  # goes into checkpoints: without the name, which may be another
        return f"InMemoryDataSource(<{self._length} records>)"

    def __str__(self) -> str:
        return f"InMemoryDataSource(name={self.name}, len={self._length})"

    def _end_of(self, index: int) -> int:
        place = self._index + _WORD * index
        return int.from_bytes(self._memory[place : place + _WORD], "little")


def _attach(name: str) -> SharedMemoryDataSource:
    return SharedMemoryDataSource(name=name)


def _named(name: str) -> Path:
    shared = Path("/dev/shm")
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / name.lstrip("/")


def _create(name: str | None) -> tuple[int, str, Path | None]:
    """Open new memory: its descriptor, the name to attach by, and the file to remove, if any."""
    if name is None and hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("gristmill")
        return descriptor, f"/proc/{os.getpid()}/fd/{descriptor}", None
    path = _named(name or f"gristmill-{os.getpid()}-{os.urandom(8).hex()}")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise PlanError(
            f"Shared memory named {name!r} exists. Attach with `name` alone, `unlink` it first, "
            "or choose another name."
        ) from None
    return descriptor, path.name, path


def _open(name: str) -> tuple[int, str, Path | None]:
    path = Path(name) if name.startswith("/proc/") else _named(name)
    try:
        return os.open(path, os.O_RDONLY), name, None
    except OSError as error:
        raise SourceError(
            f"There is no shared memory named {name!r} ({error.strerror}). Is the process that "
            "created it still running, and has it not been unlinked?"
        ) from error


def _write(descriptor: int, elements: Sequence[Any]) -> None:
    ends: list[int] = []
    try:
        with os.fdopen(os.dup(descriptor), "wb") as file:  # by writing: a full disk is an error
            for element in elements:  # here, and a signal that kills the process through a mapping
                file.write(pickle.dumps(element, protocol=5))
                ends.append(file.tell())
            for word in [*ends, len(ends)]:
                file.write(word.to_bytes(_WORD, "little"))
    except OSError as error:
        raise SourceError(
            f"The records do not fit into shared memory ({error.strerror} after "
            f"{len(ends)} records). Make room, or leave `name` out to use anonymous memory."
        ) from error


def _release(descriptor: int, path: Path | None) -> None:
    os.close(descriptor)
    if path is not None:
        path.unlink(missing_ok=True)
