"""What users' own datasets of TFRecord files import of Grain: they replace the open file.

MaxText does so to read from Google Cloud Storage.
"""

import struct
from typing import Any, BinaryIO

from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._data.sources.records.crc32c import masked_crcs
from gristmill.errors import CorruptFileError

_LENGTH_BYTES = 8
_CRC_BYTES = 4
_CHUNK_BYTES = 1 << 24


class TFRecordReader:
    """Reads the records of a TFRecord file one by one, with verified checksums.

    Args:
        path: The path of a file. A subclass may instead store a file object in `_reader`.
    """

    _reader: BinaryIO

    def __init__(self, path: str) -> None:
        self._reader = open(path, "rb")  # noqa: SIM115 - closed when it is collected

    def __next__(self) -> bytes:
        start = self.tell()  # words: a method of files
        head = self._read(_LENGTH_BYTES + _CRC_BYTES)
        if not head:
            raise StopIteration
        (length,) = struct.unpack("<Q", _check(head, _LENGTH_BYTES, start))
        return _check(self._read(length + _CRC_BYTES), length, start)

    def _read(self, size: int) -> bytes:
        """Return the next bytes, fewer at the end, and allocate no more than there are."""
        chunks: list[bytes] = []
        while size and (chunk := self._reader.read(min(size, _CHUNK_BYTES))):
            chunks.append(chunk)
            size -= len(chunk)
        return b"".join(chunks)

    def seek(self, offset: int) -> None:
        """Continue at a byte of the file."""
        self._reader.seek(offset)

    def tell(self) -> int:  # words: a method of files
        """Return the byte at which the next record begins."""
        return self._reader.tell()  # words: a method of files


def _check(data: bytes, length: int, start: int) -> bytes:
    """Return the first `length` bytes, which a checksum follows."""
    content, tail = data[:length], data[length:]
    if len(tail) != _CRC_BYTES or struct.unpack("<I", tail)[0] != masked_crcs([content])[0]:
        raise CorruptFileError("Not a valid TFRecord: it is damaged or cut off.", offset=start)
    return content


class TFRecordDatasetIterator(DatasetIterator[bytes]):
    """Yields the records of a `TFRecordReader`.

    Args:
        path: The path of a file.
    """

    _reader: TFRecordReader

    def __init__(self, path: str) -> None:
        super().__init__()
        self._reader = TFRecordReader(path)

    def __next__(self) -> bytes:
        return next(self._reader)

    def get_state(self) -> dict[str, Any]:
        """Return the byte at which the next record begins, as Grain does."""
        return {"reader_offset": self._reader.tell()}  # words: a method of files

    def set_state(self, state: Any) -> None:
        """Continue at the byte of a state."""
        self._reader.seek(state["reader_offset"])
