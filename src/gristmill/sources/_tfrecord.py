"""TFRecord files: their records at any index, or from any byte on.

| length | its checksum | data | its checksum |   ...      nothing in front, between or behind
  8 bytes  4                     4                          little endian
"""

import struct
from collections.abc import Iterator, Sequence
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._places import gather
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.files import File, Paths
from gristmill.options import StorageOptions
from gristmill.sources._compressed import refuse_compressed
from gristmill.sources._crc32c import masked_crcs, masked_crcs_of_rows
from gristmill.sources._indexed import IndexedFiles
from gristmill.types import Indices, Span

_LENGTH = struct.Struct("<Q")
_HEAD = 12
_TAIL = 4
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

_WINDOW = 4 * 2**20
"""Bytes to look for records in at a time."""
_WORTH_SKIPPING = 256 * 1024
"""From records of so many bytes on, reading their lengths alone is faster than reading all."""
_WORTH_ASKING = 8 * 2**20
"""The same for a remote file, where a request takes as long as reading some megabytes."""


@final
class TFRecordSource:
    """Random access to the records, as bytes, of one or more TFRecord files.

    When it is first read or asked for its length, each file is gone through once to find where
    its records are, which is kept beside the file. Every record is checked against its checksum.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.tfrecord", "wb") as file:
    ...         _ = file.write(bytes.fromhex("0300000000000000 b099490e 616263 6e57f121"))
    ...     source = TFRecordSource(f"{folder}/*.tfrecord")
    ...     len(source), source[0]
    (1, b'abc')
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._files = IndexedFiles(
            paths, storage, kind="tfrecord", build=_find_records, counted_by="starts"
        )

    def __len__(self) -> int:
        return len(self._files.places)

    def __getitem__(self, index: SupportsIndex) -> bytes:
        number, within = self._files.places.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[bytes]:
        return gather(self._files.places, indices, self._read)

    def _read(self, number: int, within: Indices) -> list[bytes]:
        file, index = self._files.files[number], self._files.index(number)
        starts = index["starts"][within]
        stops = starts + index["lengths"][within] + _TAIL
        pieces = file.read(starts, stops)
        records = [piece[:-_TAIL] for piece in pieces]
        stored = np.frombuffer(b"".join([piece[-_TAIL:] for piece in pieces]), "<u4")
        damaged = _first(masked_crcs(records) != stored)
        if damaged is not None:
            place = int(starts[damaged]) - _HEAD
            raise _damaged(file, place, int(within[damaged]))
        return records

    def __repr__(self) -> str:
        return f"TFRecordSource({self._files.tell()})"


def read_frames(file: File, start: int = 0) -> Iterator[tuple[list[bytes], list[int]]]:
    """Give the records from a byte on, block by block, and the byte at which each of them ends.

    It must be a byte where a record begins. What is before a damaged place comes before the error.
    """
    if start > file.ref.size:
        raise CorruptFileError(
            f"The file ends at byte {file.ref.size:,}, and was to be read from byte {start:,} on: "
            "it was cut short, or is another one. Copy it anew.",
            path=file.ref.path,
            offset=start,
        )
    base = start  # where the bytes begin that are held
    count = None if start else 0
    held: list[bytes] = []
    missing = 0
    for chunk in file.chunks(start):
        held.append(chunk)
        missing -= len(chunk)
        if missing > 0:
            continue  # a record of several chunks is put together once
        data = b"".join(held)
        begins, lengths, error = _walk(file, data, base, count)
        ends = begins + (_HEAD + _TAIL) + lengths
        num_whole = int((ends <= len(data)).sum())  # all but perhaps the last
        bounds = zip((begins + _HEAD).tolist(), (ends - _TAIL).tolist(), strict=True)
        records = [data[begin:end] for begin, end in bounds][:num_whole]
        tails = np.frombuffer(data, np.uint8)[ends[:num_whole, None] + np.arange(-_TAIL, 0)]
        damaged = _first(masked_crcs(records) != tails.view("<u4")[:, 0])
        if damaged is not None:
            error = _damaged(file, base + int(begins[damaged]), _plus(count, damaged))
            num_whole = damaged
        if num_whole:
            yield records[:num_whole], (base + ends[:num_whole]).tolist()
        if error is not None:
            raise error
        missing = int(ends[-1]) - len(data) if num_whole < len(ends) else 0
        done = int(ends[num_whole - 1]) if num_whole else 0
        held = [data[done:]]
        base += done
        count = _plus(count, num_whole)


def _find_records(file: File) -> dict[str, Indices]:
    """Give the `starts` of the data of all records, and their `lengths`."""
    size = file.ref.size
    wide, worth_skipping = _WINDOW, _WORTH_SKIPPING
    if not file.ref.is_local:
        wide, worth_skipping = max(wide, file.ref.storage.read_ahead_bytes), _WORTH_ASKING
    starts, all_lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    at = count = 0
    window = wide
    while at < size:
        data = file.read_one(at, min(at + window, size))
        begins, lengths, error = _walk(file, data, at, count)
        if error is not None:
            raise error
        starts.append(begins + (at + _HEAD))
        all_lengths.append(lengths)
        step = int(begins[-1] + lengths[-1]) + _HEAD + _TAIL
        window = _HEAD if step > worth_skipping * len(begins) else wide
        at += step
        count += len(begins)
    return {"starts": np.concatenate(starts), "lengths": np.concatenate(all_lengths)}


def _walk(
    file: File, data: bytes, base: int, count: int | None
) -> tuple[Indices, Indices, FileError | None]:
    """Find the records that begin in some bytes of a file, their lengths, and what ends them.

    The bytes are those from `base` on, in front of which there are `count` records. The last one
    may end behind the bytes, but not behind the file.
    """
    places: list[int] = []
    at, last = 0, len(data) - _HEAD
    length_at = _LENGTH.unpack_from
    while at <= last:
        places.append(at)
        at += _HEAD + _TAIL + length_at(data, at)[0]
    begins = np.array(places, np.int64)
    heads = np.frombuffer(data, np.uint8)[begins[:, None] + np.arange(_HEAD)]
    lengths = np.ascontiguousarray(heads[:, :8]).view("<i8")[:, 0]
    stored = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]
    wrong = _first(masked_crcs_of_rows(heads[:, :8]) != stored)
    size = file.ref.size
    error = None
    if wrong is not None:
        place = base + places[wrong]
        error = _not_a_record(file, place, _plus(count, wrong))
        begins, lengths = begins[:wrong], lengths[:wrong]
    elif base + at > size:
        error = _cut_short(file, base + places[-1], _plus(count, len(places) - 1))
        begins, lengths = begins[:-1], lengths[:-1]
    elif base + len(data) == size and at < len(data):
        error = _cut_short(file, base + at, _plus(count, len(places)))
    if error is not None and not base and not len(begins):
        refuse_compressed(data, file.ref.path)
        _refuse_zlib(data, file.ref.path)
    return begins, lengths.astype(np.int64), error


def _first(is_so: NDArray[np.bool_]) -> int | None:
    return int(is_so.argmax()) if is_so.any() else None


def _plus(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _refuse_zlib(head: bytes, path: str) -> None:
    """Raise for the other compression that TensorFlow writes such files with."""
    if head.startswith(_ZLIB):
        raise FormatError(
            "The file is compressed with zlib, so that no record can be read without all before "
            "it. Decompress it first, for instance with `zlib.decompress` in Python.",
            path=path,
            offset=0,
        )


def _not_a_record(file: File, place: int, record: int | None) -> FileError:
    if place == 0:
        return FormatError(
            "The file is not a TFRecord file: it does not begin with the length of a record and "
            "its checksum. Check the path.",
            path=file.ref.path,
            offset=0,
        )
    return CorruptFileError(
        "No record begins here, or its length is damaged: the checksum differs. "
        "Copy the file anew.",
        path=file.ref.path,
        offset=place,
        record=record,
    )


def _cut_short(file: File, place: int, record: int | None) -> FileError:
    return CorruptFileError(
        f"The file ends at byte {file.ref.size:,}, inside the record that begins here: it was cut "
        "short. Copy it anew.",
        path=file.ref.path,
        offset=place,
        record=record,
    )


def _damaged(file: File, place: int, record: int | None) -> FileError:
    return CorruptFileError(
        "The record that begins here is damaged: the checksum of its data differs. "
        "Copy the file anew.",
        path=file.ref.path,
        offset=place,
        record=record,
    )
