"""The interface for reading the bytes of a file, local or remote.

A `FileRef` identifies a file. It is small and picklable, and is created once, when the pipeline is
built. A `File` reads its bytes. It is opened in each process that reads.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

from gristmill._addresses import strip_credentials
from gristmill.options import StorageOptions
from gristmill.types import Indices

CHUNK_BYTES = 4 * 2**20
"""Bytes of one request to a store, or of one read from front to back."""

INDEX_SUFFIX = ".gristmill-index"
"""The suffix of index files. Patterns for data files skip them."""


class File(ABC):
    """An open file that reads many byte ranges in one call. Thread-safe."""

    @property
    @abstractmethod
    def ref(self) -> "FileRef":
        """The `FileRef` that the file was opened with."""

    @abstractmethod
    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        """Return the bytes of each range `[start, stop)`, in the order of the request.

        Ranges may overlap and may be in any order. Bytes in several ranges are read once if
        possible.

        Args:
            starts: The first byte of each range.
            stops: The end of each range, exclusive.

        Raises:
            CorruptFileError: If the file ends before the end of a range.
            ChangedFileError: If the file has changed since the ref was created.
        """

    @abstractmethod
    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """Yield the bytes from front to back, a few megabytes at a time, with read-ahead."""

    @abstractmethod
    def local_path(self) -> Path:
        """Return a local path to the same bytes, downloading the file first if necessary."""

    @abstractmethod
    def check_unchanged(self) -> None:
        """Raise a `ChangedFileError` if the local file at `local_path()` is another one by now.

        Called before and after each read of a mapped file, so it has to be fast.
        """

    def read_one(self, start: int, stop: int) -> bytes:
        """Return the bytes of one range."""
        return self.read([start], [stop])[0]


@final
@dataclass(frozen=True, kw_only=True)
class FileRef:
    """A file as it was found.

    Attributes:
        path: The local path, or the address in a store, which may contain credentials.
        size: The size in bytes.
        version: A string that changes when the file changes: the modification time, or a tag of
            the store.
        is_local: Whether the file is on this machine.
        storage: How to read the file if it is not local.
    """

    path: str
    size: int
    version: str
    is_local: bool
    storage: StorageOptions

    def __repr__(self) -> str:
        return f"FileRef({self.address!r}, size={self.size}, version={self.version!r})"

    @property
    def address(self) -> str:
        """The path or address without credentials, for messages."""
        return self.path if self.is_local else strip_credentials(self.path)

    @property
    def name(self) -> str:
        """The file name, without the query of an address, which may contain secrets."""
        return self.address.replace("\\", "/").rstrip("/").rpartition("/")[2]


def describe_files(refs: Sequence[FileRef]) -> str:
    """Return a short description of the files of a source, independent of their location.

    >>> ref = FileRef(path="a/b.csv", size=1, version="", is_local=True, storage=StorageOptions())
    >>> describe_files([ref]), describe_files([ref, ref])
    ("'b.csv'", "<2 files>, 'b.csv', ...")
    """
    first = repr(refs[0].name)
    return first if len(refs) == 1 else f"<{len(refs)} files>, {first}, ..."
