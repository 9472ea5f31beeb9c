"""Read local files with `pread`.

Memory maps are not used: if a mapped page cannot be read (because the file was truncated, or a
network drive is gone), the process is killed by a signal instead of getting an error to handle.
"""

import errno
import os
import stat
import weakref
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import final

from gristmill._io.byte_ranges import merge_ranges, sample_ranges, split_merged
from gristmill._io.file import CHUNK_BYTES, File, FileRef
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    ForbiddenFileError,
    FormatError,
    MissingFileError,
)
from gristmill.options import StorageOptions
from gristmill.types import Indices

_MAX_GAP_BYTES = 4096
"""Reading this many unneeded bytes costs less than a second call."""


def find_local(path: str, storage: StorageOptions) -> FileRef:
    """Return the ref of a local file, or raise a `FileError` that explains why not."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise as_file_error(error, path) from None
    except ValueError as error:  # a zero byte, or a character that cannot be encoded
        raise MissingFileError(f"No file can have this path: {error}.", path=path) from None
    if stat.S_ISDIR(found.st_mode):
        raise folder_error(path)
    if not stat.S_ISREG(found.st_mode):  # has no known end, and opening it may block indefinitely
        raise FormatError(
            "The path is a pipe or a device, not a regular file. Save its data to a file.",
            path=path,
        )
    return FileRef(
        path=path,
        size=found.st_size,
        version=str(found.st_mtime_ns),
        is_local=True,
        storage=storage,
    )


def folder_error(path: str) -> FormatError:
    """Return the error for a folder where a file is expected."""
    return FormatError(
        "The path is a folder. Pass the files in it, for example with `/*` at the end.", path=path
    )


def as_file_error(error: OSError, path: str) -> FileError:
    """Return a `FileError` with a remedy for an error of the operating system."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return MissingFileError("There is no such file. Check the path.", path=path)
    if isinstance(error, PermissionError):
        return ForbiddenFileError(
            "This process has no permission to read the file. Change its permissions, or run as "
            "its owner.",
            path=path,
        )
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return FileError(
            "Too many files are open. Raise the limit with `ulimit -n`, or use fewer processes.",
            path=path,
        )
    return FileError(f"The system cannot read the file: {error.strerror or error}.", path=path)


def truncated_error(ref: FileRef, *, start: int, stop: int, end: int) -> CorruptFileError:
    """Return the error for a file that ends at byte `end`, before the range `[start, stop)`."""
    return CorruptFileError(
        f"The file ends at byte {end:,}, but bytes up to {stop:,} are needed: it is truncated. "
        "Copy it again.",
        path=ref.path,
        offset=start,
    )


def changed_error(ref: FileRef) -> ChangedFileError:
    """Return the error for a file that has changed since `ref` was created."""
    return ChangedFileError(
        "The file has changed since this source was created. Create the source again to read the "
        "current content; a stream over changing files is not reproducible.",
        path=ref.path,
    )


@final
class LocalFile(File):
    """An open local file."""

    def __init__(self, ref: FileRef) -> None:
        self._ref = ref
        try:
            self._descriptor = os.open(ref.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise as_file_error(error, ref.path) from None
        self._size, self._time_ns = ref.size, int(ref.version)
        self._inode_time_ns: int | None = None
        self._samples: int | None = None
        # Closed with the last reference: another thread that still reads holds one.
        weakref.finalize(self, os.close, self._descriptor)
        self.check_unchanged()

    @property
    def ref(self) -> FileRef:
        return self._ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        merged = merge_ranges(starts, stops, max_gap=_MAX_GAP_BYTES)
        data = [
            self._pread(start, stop - start)
            for start, stop in zip(merged.starts, merged.stops, strict=True)
        ]
        self.check_unchanged()  # after reading, to notice changes during the read
        return split_merged(merged, data, starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        end = self._ref.size if stop is None else stop
        for begin in range(start, end, CHUNK_BYTES):
            yield self._pread(begin, min(CHUNK_BYTES, end - begin))
            self.check_unchanged()

    def local_path(self) -> Path:
        self.check_unchanged()
        if self._samples is None:  # first the time: a change in between is then noticed
            self._inode_time_ns = os.fstat(self._descriptor).st_ctime_ns
            self._samples = self._sample()
        return Path(self._ref.path)

    def _sample(self) -> int:
        """Return a checksum of samples of the content."""
        checksum = 0
        for start, stop in zip(*sample_ranges(self._size), strict=True):
            checksum = zlib.crc32(os.pread(self._descriptor, stop - start, start), checksum)
        return checksum

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
            self.check_unchanged()
            end = start + len(data)
            raise truncated_error(self._ref, start=start, stop=start + count, end=end)
        return data

    def check_unchanged(self) -> None:
        now = os.fstat(self._descriptor)
        if now.st_size != self._size or now.st_mtime_ns != self._time_ns:
            raise changed_error(self._ref)
        # A program can set the modification time of a file that it has overwritten, but not that of
        # the inode. The latter also changes with the permissions, the name and the number of links,
        # so samples of the content decide. Nothing else would notice a change of a mapped file.
        if self._samples is not None and now.st_ctime_ns != self._inode_time_ns:
            if self._sample() != self._samples:
                raise changed_error(self._ref)
            self._inode_time_ns = now.st_ctime_ns
