"""Files on this machine, read by `pread`.

Not by a memory map: what a map cannot read (a file cut short meanwhile, a network drive that is
gone) is a signal that ends the process, and not an error that somebody can act on.
"""

import errno
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    ForbiddenFileError,
    FormatError,
    MissingFileError,
)
from gristmill.files._file import CHUNK, File, FileRef
from gristmill.files._spans import cut, merge
from gristmill.options import StorageOptions
from gristmill.types import Indices

_GAP = 4096
"""Reading so many bytes in vain costs less than a second call."""


def local_ref(path: str, storage: StorageOptions) -> FileRef:
    """Look a file up, or say why there is none."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise as_file_error(error, path) from None
    if stat.S_ISDIR(found.st_mode):
        raise FormatError(
            "It is a folder. Pass the files in it, for instance with `/*` at the end.", path=path
        )
    if not stat.S_ISREG(found.st_mode):  # whose end nobody knows, and opening may wait for ever
        raise FormatError("It is a pipe or a device, and no file. Write it to a file.", path=path)
    return FileRef(
        path=path,
        size=found.st_size,
        version=str(found.st_mtime_ns),
        is_local=True,
        storage=storage,
    )


def as_file_error(error: OSError, path: str) -> FileError:
    """Give the error that says what to do about a file the system does not give."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError("There is no such file. Check the path.", path=path)
    if isinstance(error, PermissionError):
        return ForbiddenFileError(
            "This process may not read the file. Change its permissions, or run as its owner.",
            path=path,
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return FileError(
            "Too many files are open. Raise the limit with `ulimit -n`, or use fewer processes.",
            path=path,
        )
    return FileError(f"The system cannot read the file: {error.strerror or error}.", path=path)


@final
class LocalFile(File):
    """A file on this machine."""

    def __init__(self, ref: FileRef) -> None:
        self._ref = ref
        try:
            self._descriptor = os.open(ref.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise as_file_error(error, ref.path) from None
        # Closed with the last reference: who still reads in another thread holds one.
        weakref.finalize(self, os.close, self._descriptor)
        self._check()

    @property
    def ref(self) -> FileRef:
        return self._ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        runs = merge(starts, stops, gap=_GAP)
        data = [
            self._pread(start, stop - start)
            for start, stop in zip(runs.starts, runs.stops, strict=True)
        ]
        self._check()  # afterwards: it also tells what changed meanwhile
        return cut(runs, data, starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        end = self._ref.size if stop is None else stop
        for begin in range(start, end, CHUNK):
            yield self._pread(begin, min(CHUNK, end - begin))
            self._check()

    def local_path(self) -> Path:
        self._check()
        return Path(self._ref.path)

    def _pread(self, start: int, count: int) -> bytes:
        try:
            data = os.pread(self._descriptor, count, start)
            while len(data) < count:
                more = os.pread(self._descriptor, count - len(data), start + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise as_file_error(error, self._ref.path) from None
        if len(data) < count:
            self._check()
            raise CorruptFileError(
                f"The file ends at byte {start + len(data):,}, and bytes up to {start + count:,} "
                "are needed: it was cut short. Copy it anew.",
                path=self._ref.path,
                offset=start,
            )
        return data

    def _check(self) -> None:
        now = os.fstat(self._descriptor)
        if now.st_size != self._ref.size or str(now.st_mtime_ns) != self._ref.version:
            raise changed(self._ref)


def changed(ref: FileRef) -> ChangedFileError:
    """Explain that a file is another one by now."""
    return ChangedFileError(
        "The file has changed since this source found it. Make the source anew to read what is "
        "there now; a stream over files that change cannot be repeated.",
        path=ref.path,
    )
