"""Open the files of a source on first use in each process, and close the least recently used."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, final

from gristmill._io.file import File, FileRef
from gristmill._io.local import LocalFile
from gristmill._io.stores.lazy_remote import open_remote

MAX_OPEN_FILES = 256
"""Per source. The usual limit of a process is 1,024 open files."""

T = TypeVar("T")


def open_file(ref: FileRef) -> File:
    """Open a local or remote file."""
    return LocalFile(ref) if ref.is_local else open_remote(ref)


@final
class LruCache(Generic[T]):
    """A thread-safe cache of the most recently used values, created on first access by number.

    An evicted value is not closed, because another thread may still use it: it is only dropped.

    >>> squares = LruCache(lambda number: number**2)
    >>> squares[3]
    9
    """

    def __init__(self, create: Callable[[int], T], *, max_size: int = MAX_OPEN_FILES) -> None:
        self._create = create
        self._max_size = max_size
        self._values: OrderedDict[int, T] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> T:
        with self._lock:
            if number in self._values:
                self._values.move_to_end(number)
                return self._values[number]
        created = self._create(number)  # not under the lock: opening a remote file takes time
        with self._lock:
            value = self._values.setdefault(number, created)
            while len(self._values) > self._max_size:
                self._values.popitem(last=False)
        return value


@final
class OpenFiles:
    """The files of a source by number. The most recently used ones are open.

    Only the refs are pickled, so another process opens its own files.

    >>> import tempfile
    >>> from gristmill._io.paths import find_files
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"some bytes"), file.flush()
    ...     OpenFiles(find_files(file.name))[0].read_one(5, 10)
    b'bytes'

    Args:
        refs: The files.
        open_ref: How to open one. Can be pickled.
    """

    def __init__(
        self, refs: Sequence[FileRef], open_ref: Callable[[FileRef], File] = open_file
    ) -> None:
        self.refs: tuple[FileRef, ...] = tuple(refs)
        self._open_ref = open_ref
        self._reset()

    def __len__(self) -> int:
        return len(self.refs)

    def __getitem__(self, number: int) -> File:
        if self._pid != os.getpid():  # after a fork, the threads that a store needs do not run
            self._reset()
        return self._open[number]

    def _reset(self) -> None:
        self._open = LruCache(lambda number: self._open_ref(self.refs[number]))
        self._pid = os.getpid()

    def __reduce__(self) -> tuple[object, ...]:
        return OpenFiles, (self.refs, self._open_ref)
