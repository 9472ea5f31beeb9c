"""What a file is to those who read it, wherever it is.

A `FileRef` says which file, in a few words: picklable, made once, by whoever builds the pipeline.
A `File` is where its bytes come from: opened in each process that reads them.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gristmill.options import StorageOptions
from gristmill.types import Indices

CHUNK = 4 * 2**20
"""Bytes of one request to a store, or of one read from front to back."""


class File(ABC):
    """An open file: any bytes of it, many pieces at a time. Threads may share it."""

    @property
    @abstractmethod
    def ref(self) -> "FileRef":
        """What it was opened by."""

    @abstractmethod
    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        """Give the pieces `[start, stop)`, in any order, each asked for once if it can be helped.

        Raises `CorruptFileError` where the file ends before, and `ChangedFileError` where it is
        not the file that was there when the ref was made.
        """

    @abstractmethod
    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Give the bytes from front to back, some megabytes at a time, reading ahead."""

    @abstractmethod
    def local_path(self) -> Path:
        """Give a path on this machine with the same bytes; fetch them first, if need be."""

    def read_one(self, start: int, stop: int) -> bytes:
        """Give one piece."""
        return self.read([start], [stop])[0]


@final
@dataclass(frozen=True, kw_only=True)
class FileRef:
    """A file as it was found: its path or address, its size, and what tells it from a later one."""

    path: str
    size: int
    version: str
    """Changes when the file does: when it was modified, or the store's own tag."""
    is_local: bool
    storage: StorageOptions

    @property
    def name(self) -> str:
        """Its name without the folder, and without the query of an address, which may be secret."""
        path = self.path if self.is_local else self.path.partition("?")[0]
        return path.replace("\\", "/").rstrip("/").rpartition("/")[2]


def tell_files(refs: Sequence[FileRef]) -> str:
    """Say which files a source reads, in the same few words wherever they are.

    >>> ref = FileRef(path="a/b.csv", size=1, version="", is_local=True, storage=StorageOptions())
    >>> tell_files([ref]), tell_files([ref, ref])
    ("'b.csv'", "<2 files>, 'b.csv', ...")
    """
    first = repr(refs[0].name)
    return first if len(refs) == 1 else f"<{len(refs)} files>, {first}, ..."
