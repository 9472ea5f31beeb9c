"""Records in shared memory, which other processes attach to by name.

    | record 0 | ... | record n-1 | end of record 0 | ... | end of record n-1 | n | token | magic |
      pickled                       8 bytes each, little endian                     16      8

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

from gristmill._check import as_kind
from gristmill.errors import ClosedError, PlanError, SourceError

_WORD = 8
_TOKEN_BYTES = 16
_MAGIC = b"grist\x00\x00\x01"
_TRAILER = _WORD + _TOKEN_BYTES + len(_MAGIC)


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
        if name is not None:
            as_kind("name", name, str, remedy="Pass text, or leave it out.")
        if elements is not None:
            self._place = _Place.create(name)
            self._place.write(elements)
        elif name is not None:
            self._place = _Place.attach(name)
        else:
            raise PlanError(
                "Give `elements` to create a shared source, or `name` to attach to one."
            )
        self._memory = self._place.map()
        self._length, self._index = self._place.check(self._memory)
        self._close = weakref.finalize(self, self._place.release)

    @property
    def name(self) -> str:
        """What other processes attach by."""
        return self._place.name

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
        self._close()
        self._place.remove()

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


@final
class _Place:
    """The file behind the memory: open, and removed by who created it."""

    def __init__(self, descriptor: int, name: str, path: Path | None, token: bytes | None) -> None:
        self._descriptor = descriptor
        self.name = name
        self._path = path
        self._token = token
        self._creator = None if token is None else os.getpid()

    @staticmethod
    def create(name: str | None) -> "_Place":
        token = os.urandom(_TOKEN_BYTES)
        if name is None and hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("gristmill")
            # The token tells this memory from another one that gets the same number later.
            address = f"/proc/{os.getpid()}/fd/{descriptor}#{token.hex()}"
            return _Place(descriptor, address, None, token)
        path = _path_of(name or f"gristmill-{token.hex()}")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise PlanError(
                f"Shared memory named {name!r} exists. Attach with `name` alone, `unlink` it "
                "first, or choose another name."
            ) from None
        return _Place(descriptor, path.name, path, token)

    @staticmethod
    def attach(name: str) -> "_Place":
        is_anonymous = name.startswith("/proc/")
        path = Path(name.partition("#")[0]) if is_anonymous else _path_of(name)
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except OSError as error:
            raise _gone(name, error.strerror) from error
        return _Place(descriptor, name, None if is_anonymous else path, None)

    def write(self, elements: Sequence[Any]) -> None:
        """Fill the file; by writing, since a full disk is an error there, and kills a mapping."""
        ends: list[int] = []
        try:
            with os.fdopen(os.dup(self._descriptor), "wb") as file:
                for element in elements:
                    file.write(pickle.dumps(element, protocol=5))
                    ends.append(file.tell())
                for word in [*ends, len(ends)]:
                    file.write(word.to_bytes(_WORD, "little"))
                file.write((self._token or b"") + _MAGIC)
        except BaseException as error:
            self.release()
            if not isinstance(error, OSError):
                raise
            raise SourceError(
                f"The records do not fit into shared memory ({error.strerror} after "
                f"{len(ends)} records). Make room, or leave `name` out to use anonymous memory."
            ) from error

    def map(self) -> mmap.mmap:
        """Map the file, or say that it is not one of ours."""
        try:
            return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            self.release()
            raise _gone(self.name, "it is empty") from error

    def check(self, memory: mmap.mmap) -> tuple[int, int]:
        """Give the number of records and where their ends stand."""
        trailer = memory[-_TRAILER:]
        length = int.from_bytes(trailer[:_WORD], "little")
        index = len(memory) - _TRAILER - _WORD * length
        token = trailer[_WORD : _WORD + _TOKEN_BYTES].hex()
        wanted = self.name.partition("#")[2]
        if not trailer.endswith(_MAGIC) or index < 0 or (wanted and wanted != token):
            memory.close()
            self.release()
            raise _gone(self.name, "there is something else in its place")
        return length, index

    def release(self) -> None:
        """Close the file; remove it if this process made it."""
        os.close(self._descriptor)
        if self._creator == os.getpid():  # not a fork of it
            self.remove()

    def remove(self) -> None:
        """Remove the file, so that nobody can attach any more."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _path_of(name: str) -> Path:
    if not name.lstrip("/") or "/" in name.lstrip("/"):
        raise PlanError(f"`name` must be a plain name without slashes, got {name!r}.")
    shared = Path("/dev/shm")
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / name.lstrip("/")


def _gone(name: str, reason: str | None) -> SourceError:
    return SourceError(
        f"There is no shared memory named {name!r} ({reason}). Is the process that created it "
        "still running, and has it not been unlinked?"
    )
