"""A source of pickled records in shared memory, which other processes attach to by name.

    | record 0 | ... | record n-1 | end of record 0 | ... | end of record n-1 | n | token | magic |
      pickled                       8 bytes each, little endian                     16      8

If the user chooses no name, the memory is anonymous (memfd). It needs no room in /dev/shm, exists
as long as a process has it open, and is reached through the /proc entry of the process that created
it. With a name it is a file in /dev/shm (on other systems, in the directory for temporary files).
The process that created the file removes it: in `unlink`, when the source is garbage collected, or
at exit.

Only memory of the same user, which no other user can write to, is attached to.
"""

import mmap
import os
import pickle
import re
import stat
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import SupportsIndex, final

from gristmill._base.checks import as_kind
from gristmill._base.indices import check_index
from gristmill._io.folders.safe_files import is_only_writable_by_this_user
from gristmill.errors import ClosedError, PlanError, SourceError
from gristmill.types import Element

_INT_BYTES = 8
_TOKEN_BYTES = 16
_MAGIC = b"grist\x00\x00\x01"
_ANONYMOUS = re.compile(r"/proc/[0-9]+/fd/[0-9]+#[0-9a-f]+")
_TRAILER_BYTES = _INT_BYTES + _TOKEN_BYTES + len(_MAGIC)


@final
class SharedMemoryDataSource:
    """A sequence of picklable records, stored once for all processes.

    Pass `elements` to create the memory, under `name` or anonymously. Pass only `name` to attach to
    memory that exists. A pickled source holds no records: it attaches where it is unpickled.

    >>> with SharedMemoryDataSource(["a", {"b": 1}, None]) as source:
    ...     len(source), source[1]
    (3, {'b': 1})

    Args:
        elements: The records to store.
        name: A name without slashes, by which other processes attach.

    Raises:
        PlanError: If neither `elements` nor `name` is passed.
        PlanTypeError: If an argument has the wrong type.
        SourceError: If there is no shared memory of that name.
    """

    def __init__(
        self, elements: Sequence[Element] | None = None, *, name: str | None = None
    ) -> None:
        if name is not None:
            as_kind("name", name, str, remedy="Pass a string, or leave it out.")
        if elements is not None:
            self._file = _SharedFile.create(name)
            self._file.write(elements)
        elif name is not None:
            self._file = _SharedFile.attach(name)
        else:
            raise PlanError(
                "Pass `elements` to create a shared source, or `name` to attach to one."
            )
        self._memory = self._file.map()
        self._length, self._ends_offset = self._file.read_trailer(self._memory)
        self._release = weakref.finalize(self, self._file.release)

    @property
    def name(self) -> str:
        """The name by which other processes attach."""
        return self._file.name

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, position: SupportsIndex) -> Element:
        index = check_index(position, self._length, name="position")
        if self._memory.closed:
            raise ClosedError("This shared source was closed. Attach to it again by its name.")
        start = self._end_of(index - 1) if index else 0
        return pickle.loads(self._memory[start : self._end_of(index)])

    def __iter__(self) -> Iterator[Element]:
        return (self[index] for index in range(self._length))

    def count(self, value: object) -> int:
        """Return the number of records equal to `value`."""
        return sum(record == value for record in self)

    def index(self, value: object) -> int:
        """Return the index of the first record equal to `value`.

        Raises:
            ValueError: If there is none.
        """
        for index, record in enumerate(self):
            if record == value:
                return index
        raise ValueError(f"{value!r} is not among the records.")

    def close(self) -> None:
        """Unmap the memory in this process; other processes keep their mappings."""
        self._memory.close()

    def unlink(self) -> None:
        """Remove the name, so that no process can attach any more; existing mappings stay valid."""
        self._release()
        self._file.remove()

    def __enter__(self) -> "SharedMemoryDataSource":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.unlink()

    def __reduce__(self) -> tuple[object, ...]:
        return _attach, (self.name,)

    def __repr__(self) -> str:  # part of checkpoints: without the name, which may change
        return f"InMemoryDataSource(<{self._length} records>)"

    def __str__(self) -> str:
        return f"InMemoryDataSource(name={self.name}, len={self._length})"

    def _end_of(self, index: int) -> int:
        offset = self._ends_offset + _INT_BYTES * index
        return int.from_bytes(self._memory[offset : offset + _INT_BYTES], "little")


def _attach(name: str) -> SharedMemoryDataSource:
    return SharedMemoryDataSource(name=name)


def _check_owner(descriptor: int, name: str) -> None:
    """Check that only this user can have written the memory: unpickling it can run any code."""
    found = os.fstat(descriptor)
    if not (stat.S_ISREG(found.st_mode) and is_only_writable_by_this_user(found)):
        raise SourceError(
            f"The shared memory named {name!r} can be written by another user, and could run any "
            "code in this process. It must belong to this user, and no other may have permission "
            "to write. Create it as this user."
        )


@final
class _SharedFile:
    """The open file behind the memory, which the process that created it removes."""

    def __init__(self, descriptor: int, name: str, path: Path | None, token: bytes | None) -> None:
        self._descriptor = descriptor
        self.name = name
        self._path = path
        self._token = token
        self._creator_pid = None if token is None else os.getpid()

    @staticmethod
    def create(name: str | None) -> "_SharedFile":
        token = os.urandom(_TOKEN_BYTES)
        if name is None and hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("gristmill")
            os.fchmod(descriptor, 0o600)
            # Another memory may get the same descriptor later. The token distinguishes the two.
            address = f"/proc/{os.getpid()}/fd/{descriptor}#{token.hex()}"
            return _SharedFile(descriptor, address, None, token)
        path = _path_of(name or f"gristmill-{token.hex()}")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise PlanError(
                f"Shared memory named {name!r} exists. Attach with `name` alone, `unlink` it "
                "first, or choose another name."
            ) from None
        return _SharedFile(descriptor, path.name, path, token)

    @staticmethod
    def attach(name: str) -> "_SharedFile":
        is_anonymous = _ANONYMOUS.fullmatch(name) is not None
        path = Path(name.partition("#")[0]) if is_anonymous else _path_of(name)
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags | (0 if is_anonymous else os.O_NOFOLLOW))
        except OSError as error:
            raise _missing(name, error.strerror) from error
        try:
            _check_owner(descriptor, name)
        except BaseException:
            os.close(descriptor)
            raise
        return _SharedFile(descriptor, name, None if is_anonymous else path, None)

    def write(self, elements: Sequence[Element]) -> None:
        """Write all records and the trailer.

        The file is written, not mapped: on a full disk a write is an error, and an access to a
        mapping kills the process.
        """
        ends: list[int] = []
        try:
            with os.fdopen(os.dup(self._descriptor), "wb") as file:
                for element in elements:
                    file.write(pickle.dumps(element, protocol=5))
                    ends.append(file.tell())  # words: a method of file objects
                for number in [*ends, len(ends)]:
                    file.write(number.to_bytes(_INT_BYTES, "little"))
                file.write((self._token or b"") + _MAGIC)
        except BaseException as error:
            self.release()
            if not isinstance(error, OSError):
                raise
            raise SourceError(
                f"The records do not fit into shared memory ({error.strerror} after "
                f"{len(ends)} records). Free some space, or leave `name` out to use anonymous "
                "memory."
            ) from error

    def map(self) -> mmap.mmap:
        """Map the file read-only."""
        try:
            return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            self.release()
            raise _missing(self.name, "it is empty") from error

    def read_trailer(self, memory: mmap.mmap) -> tuple[int, int]:
        """Return the number of records and the offset of the table of their ends.

        Raises:
            SourceError: If the memory was not written by `write`, or not under this name.
        """
        trailer = memory[-_TRAILER_BYTES:]
        length = int.from_bytes(trailer[:_INT_BYTES], "little")
        ends_offset = len(memory) - _TRAILER_BYTES - _INT_BYTES * length
        token = trailer[_INT_BYTES : _INT_BYTES + _TOKEN_BYTES].hex()
        expected_token = self.name.partition("#")[2]
        is_other = bool(expected_token) and expected_token != token
        if not trailer.endswith(_MAGIC) or ends_offset < 0 or is_other:
            memory.close()
            self.release()
            raise _missing(self.name, "the name refers to other data")
        return length, ends_offset

    def release(self) -> None:
        """Close the file, and remove it if this process created it."""
        os.close(self._descriptor)
        if self._creator_pid == os.getpid():  # false in a fork of the creator
            self.remove()

    def remove(self) -> None:
        """Remove the file, so that no process can attach any more."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _path_of(name: str) -> Path:
    if not name.lstrip("/") or "/" in name.lstrip("/"):
        raise PlanError(f"`name` must be a plain name without slashes, got {name!r}.")
    shared = Path("/dev/shm")
    return (shared if shared.is_dir() else Path(tempfile.gettempdir())) / name.lstrip("/")


def _missing(name: str, reason: str | None) -> SourceError:
    return SourceError(
        f"There is no shared memory named {name!r} ({reason}). Check that the process that created "
        "it is still running, and that it has not been unlinked."
    )
