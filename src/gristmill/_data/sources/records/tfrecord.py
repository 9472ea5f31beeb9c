"""Read TFRecord files, by index, or sequentially from any record.

| length | its checksum | data | its checksum |   ...      no header, padding or footer
  8 bytes  4                     4                          little endian
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._data.sources.file_head import refuse_compressed
from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import gather
from gristmill._data.sources.records.crc32c import masked_crcs, masked_crcs_of_rows
from gristmill._data.sources.records.indexed_files import IndexedFiles
from gristmill._io.file import File
from gristmill._io.index_checks import is_of_offsets
from gristmill._io.paths import Paths
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.options import StorageOptions
from gristmill.types import AnyArray, Indices, Span

_LENGTH = struct.Struct("<Q")
_HEAD_BYTES = 12
_TAIL_BYTES = 4
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")

_WINDOW_BYTES = 4 * 2**20
"""Bytes that are read and searched for records at a time."""
_MIN_SKIPPED_BYTES = 256 * 1024
"""If records are larger than this, reading only their lengths is faster than reading all bytes."""
_MIN_SKIPPED_REMOTE_BYTES = 8 * 2**20
"""The same for a remote file, where a request takes as long as reading some megabytes."""


@final
class TFRecordSource:
    """Random access to the records, as bytes, of TFRecord files.

    The first use of a file finds where its records begin, and stores that in an index file. The
    checksum of every record is verified.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/a.tfrecord", "wb") as file:
    ...         _ = file.write(bytes.fromhex("0300000000000000 b099490e 616263 6e57f121"))
    ...     source = TFRecordSource(f"{folder}/*.tfrecord")
    ...     len(source), source[0]
    (1, b'abc')

    Args:
        paths: A path, a URL such as `gs://bucket/train.tfrecord`, a pattern with `*`, or a list of
            them.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        FormatError: When records are first read, if a file is not a TFRecord file.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(self, paths: Paths, *, storage: StorageOptions | None = None) -> None:
        self._files = IndexedFiles(
            paths, storage, kind="tfrecord", build=_index_records, count_by="starts", fits=_fits
        )

    def __len__(self) -> int:
        return len(self._files.locator)

    def __getitem__(self, index: SupportsIndex) -> bytes:
        number, within = self._files.locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[bytes]:
        return gather(self._files.locator, indices, self._read)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        found = self._files.location(index, "starts")
        return found._replace(offset=(found.offset or 0) - _HEAD_BYTES)

    def _read(self, number: int, within: Indices) -> list[bytes]:
        file, index = self._files.files[number], self._files.index(number)
        starts = index["starts"][within]
        stops = starts + index["lengths"][within] + _TAIL_BYTES
        frames = file.read(starts, stops)
        records = [frame[:-_TAIL_BYTES] for frame in frames]
        stored = np.frombuffer(b"".join([frame[-_TAIL_BYTES:] for frame in frames]), "<u4")
        damaged = _first_true(masked_crcs(records) != stored)
        if damaged is not None:
            offset = int(starts[damaged]) - _HEAD_BYTES
            raise _damaged_record(file, offset, int(within[damaged]))
        return records

    def __repr__(self) -> str:
        return f"TFRecordSource({self._files.describe()})"


def read_frames(file: File, start: int = 0) -> Iterator[tuple[list[bytes], list[int]]]:
    """Yield blocks of the records from byte `start` on, with the byte at which each record ends.

    The records before a damaged one are yielded before the error is raised.

    Args:
        file: A TFRecord file.
        start: A byte at which a record begins.
    """
    if start > file.ref.size:
        raise CorruptFileError(
            f"The file ends at byte {file.ref.size:,}, before byte {start:,}, where reading was to "
            "start: the file is truncated, or has been replaced. Copy it again.",
            path=file.ref.path,
            offset=start,
        )
    base = start  # offset of the buffered bytes
    count = None if start else 0  # records before them, if known
    buffered: list[bytes] = []
    num_missing = 0
    for chunk in file.chunks(start):
        buffered.append(chunk)
        num_missing -= len(chunk)
        if num_missing > 0:
            continue  # the chunks of a large record are joined only once
        data = b"".join(buffered)
        begins, lengths, error = _find_records(file, data, base, count)
        ends = begins + (_HEAD_BYTES + _TAIL_BYTES) + lengths
        num_complete = int((ends <= len(data)).sum())  # all but perhaps the last
        bounds = zip((begins + _HEAD_BYTES).tolist(), (ends - _TAIL_BYTES).tolist(), strict=True)
        records = [data[begin:end] for begin, end in bounds][:num_complete]
        tails = np.frombuffer(data, np.uint8)[
            ends[:num_complete, None] + np.arange(-_TAIL_BYTES, 0)
        ]
        damaged = _first_true(masked_crcs(records) != tails.view("<u4")[:, 0])
        if damaged is not None:
            error = _damaged_record(file, base + int(begins[damaged]), _add(count, damaged))
            num_complete = damaged
        if num_complete:
            yield records[:num_complete], (base + ends[:num_complete]).tolist()
        if error is not None:
            raise error
        num_missing = int(ends[-1]) - len(data) if num_complete < len(ends) else 0
        num_done = int(ends[num_complete - 1]) if num_complete else 0
        buffered = [data[num_done:]]
        base += num_done
        count = _add(count, num_complete)


def _fits(index: Mapping[str, AnyArray], size: int) -> bool:
    """Return whether the records of an index fill a file of `size` bytes, one after the other."""
    if set(index) != {"starts", "lengths"}:
        return False
    starts, lengths = index["starts"], index["lengths"]
    are_offsets = is_of_offsets(starts) and is_of_offsets(lengths) and starts.shape == lengths.shape
    if not are_offsets or (lengths > size).any():
        return False
    ends = np.cumsum(lengths + (_HEAD_BYTES + _TAIL_BYTES))
    fills_file = (int(ends[-1]) if len(ends) else 0) == size
    return fills_file and bool((starts == ends - lengths - _TAIL_BYTES).all())


def _index_records(file: File) -> dict[str, Indices]:
    """Return the `starts` of the data of all records, and their `lengths`."""
    size = file.ref.size
    full_window, min_skipped = _WINDOW_BYTES, _MIN_SKIPPED_BYTES
    if not file.ref.is_local:
        full_window = max(full_window, file.ref.storage.read_ahead_bytes)
        min_skipped = _MIN_SKIPPED_REMOTE_BYTES
    starts, all_lengths = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    offset = count = 0
    window = full_window
    while offset < size:
        data = file.read_one(offset, min(offset + window, size))
        begins, lengths, error = _find_records(file, data, offset, count)
        if error is not None:
            raise error
        starts.append(begins + (offset + _HEAD_BYTES))
        all_lengths.append(lengths)
        num_passed = int(begins[-1] + lengths[-1]) + _HEAD_BYTES + _TAIL_BYTES
        window = _HEAD_BYTES if num_passed > min_skipped * len(begins) else full_window
        offset += num_passed
        count += len(begins)
    return {"starts": np.concatenate(starts), "lengths": np.concatenate(all_lengths)}


def _find_records(
    file: File, data: bytes, base: int, count: int | None
) -> tuple[Indices, Indices, FileError | None]:
    """Find the records that begin in `data`.

    The last record may end after `data`, but not after the file.

    Args:
        file: The file that `data` is read from.
        data: Some bytes of the file that begin with a record.
        base: The offset of `data` in the file.
        count: The number of records before `data`, if known.

    Returns:
        Where the records begin in `data`, the lengths of their contents, and the error that ends
        them, if there is one.
    """
    offsets: list[int] = []
    at, last = 0, len(data) - _HEAD_BYTES
    length_at = _LENGTH.unpack_from
    while at <= last:
        offsets.append(at)
        at += _HEAD_BYTES + _TAIL_BYTES + length_at(data, at)[0]
    begins = np.array(offsets, np.int64)
    heads = np.frombuffer(data, np.uint8)[begins[:, None] + np.arange(_HEAD_BYTES)]
    lengths = np.ascontiguousarray(heads[:, :8]).view("<i8")[:, 0]
    stored = np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]
    wrong = _first_true(masked_crcs_of_rows(heads[:, :8]) != stored)
    size = file.ref.size
    error = None
    if wrong is not None:
        error = _not_a_record(file, base + offsets[wrong], _add(count, wrong))
        begins, lengths = begins[:wrong], lengths[:wrong]
    elif base + at > size:
        error = _truncated(file, base + offsets[-1], _add(count, len(offsets) - 1))
        begins, lengths = begins[:-1], lengths[:-1]
    elif base + len(data) == size and at < len(data):
        error = _truncated(file, base + at, _add(count, len(offsets)))
    if error is not None and not base and not len(begins):
        refuse_compressed(data, file.ref.path)
        _refuse_zlib(data, file.ref.path)
    return begins, lengths.astype(np.int64), error


def _first_true(mask: NDArray[np.bool_]) -> int | None:
    return int(mask.argmax()) if mask.any() else None


def _add(count: int | None, more: int) -> int | None:
    return None if count is None else count + more


def _refuse_zlib(head: bytes, path: str) -> None:
    """Raise for the other compression that TensorFlow supports for TFRecord files."""
    if head.startswith(_ZLIB):
        raise FormatError(
            "The file is compressed with zlib, so no record can be read without reading all "
            "records before it. Decompress it first, for example with `zlib.decompress` in Python.",
            path=path,
            offset=0,
        )


def _not_a_record(file: File, offset: int, record: int | None) -> FileError:
    if offset == 0:
        return FormatError(
            "The file is not a TFRecord file: it does not begin with the length of a record and "
            "its checksum. Check the path.",
            path=file.ref.path,
            offset=0,
        )
    return CorruptFileError(
        "No record begins here, or its length is damaged: the checksum does not match. "
        "Copy the file again.",
        path=file.ref.path,
        offset=offset,
        record=record,
    )


def _truncated(file: File, offset: int, record: int | None) -> FileError:
    return CorruptFileError(
        f"The file ends at byte {file.ref.size:,}, inside the record that begins here: it is "
        "truncated. Copy it again.",
        path=file.ref.path,
        offset=offset,
        record=record,
    )


def _damaged_record(file: File, offset: int, record: int | None) -> FileError:
    return CorruptFileError(
        "The record that begins here is damaged: the checksum of its data does not match. "
        "Copy the file again.",
        path=file.ref.path,
        offset=offset,
        record=record,
    )
