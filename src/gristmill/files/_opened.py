"""The files of a source, opened in each process when they are read."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, final

from gristmill.files._file import File, FileRef
from gristmill.files._local import LocalFile
from gristmill.files._stores import open_remote

MOST_OPEN = 256
"""Of each source: a process may mostly have 1,024 files open."""

T = TypeVar("T")


def open_file(ref: FileRef) -> File:
    """Open a file, wherever it is."""
    return LocalFile(ref) if ref.is_local else open_remote(ref)


@final
class LastUsed(Generic[T]):
    """Things by number, made when first asked for; only the last used are kept.

    >>> squares = LastUsed(lambda number: number**2)
    >>> squares[3]
    9
    """

    def __init__(self, make: Callable[[int], T], *, most: int = MOST_OPEN) -> None:
        self._make = make
        self._most = most
        self._kept: OrderedDict[int, T] = OrderedDict()
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> T:
        with self._lock:
            if number in self._kept:
                self._kept.move_to_end(number)
                return self._kept[number]
        made = self._make(number)  # not under the lock: a store takes its time
        with self._lock:
            made = self._kept.setdefault(number, made)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)  # who still reads it in another thread holds it
        return made


@final
class OpenFiles:
    """Files by number, the last used of them open; pickled, it is just their refs.

    >>> import tempfile
    >>> from gristmill.files import find_files
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     _ = file.write(b"some bytes"), file.flush()
    ...     OpenFiles(find_files(file.name))[0].read_one(5, 10)
    b'bytes'
    """

    def __init__(self, refs: Sequence[FileRef]) -> None:
        self.refs = tuple(refs)
        self._forget()

    def __len__(self) -> int:
        return len(self.refs)

    def __getitem__(self, number: int) -> File:
        if self._process != os.getpid():  # a fork, where no thread runs that a store needs
            self._forget()
        return self._open[number]

    def _forget(self) -> None:
        self._open = LastUsed(lambda number: open_file(self.refs[number]))
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenFiles, (self.refs,)
