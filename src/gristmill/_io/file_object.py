"""Present a `File` as a Python file object, for libraries that need one."""

import io
from typing import final

from gristmill._io.file import File


def as_file_object(file: File) -> io.RawIOBase:
    """Return a readable, seekable file object over `file`.

    Each file object has its own position, so several can share one file.
    """
    return _FileObject(file)


@final
class _FileObject(io.RawIOBase):
    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._size = file.ref.size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:  # words: the name in Python's file API
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int | None = -1, /) -> bytes:
        end = self._size if size is None or size < 0 else min(self._position + size, self._size)
        if end <= self._position:
            return b""
        data = self._file.read_one(self._position, end)
        self._position = end
        return data

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, buffer: "bytearray | memoryview[int]", /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)
