"""A file of ours as a Python file object, for libraries that want one."""

import io
from typing import final

from gristmill.files._file import File


def as_stream(file: File) -> io.RawIOBase:
    """Give a file object over a file.

    Positions are its own: several may be over one file.
    """
    return _Stream(file)


@final
class _Stream(io.RawIOBase):
    def __init__(self, file: File) -> None:
        super().__init__()
        self._file = file
        self._size = file.ref.size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
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
