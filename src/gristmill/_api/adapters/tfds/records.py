"""Reads the serialized records of a TFDS split from its files."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._data.sources.records.array_record import ArrayRecordDataSource
from gristmill._data.sources.records.tfrecord import TFRecordSource
from gristmill.errors import CorruptFileError, FileError
from gristmill.types import Indices


@final
@dataclass
class FileSlice:
    """Consecutive records of a file. The names are those of TFDS file instructions."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


@final
class SplitRecords:
    """Reads the serialized records of a split by index, in the order of its files.

    Args:
        slices: The records of each file that belong to the split.
        file_format: "array_record" or "tfrecord".
    """

    def __init__(self, slices: Sequence[FileSlice], file_format: str) -> None:
        self._slices = [one for one in slices if one.take]
        counts = np.array([one.take for one in self._slices], np.int64)
        self._ends = np.cumsum(counts)
        self._starts = self._ends - counts
        self._source: ArrayRecordDataSource | TFRecordSource | None = None
        self._index_offsets = np.zeros(len(self._slices), np.int64)
        """For each slice, what to add to an index of the split to get an index of the source."""
        if self._slices and file_format == "array_record":
            self._source = ArrayRecordDataSource(self._slices)
        elif self._slices:
            file_counts = {one.filename: one.examples_in_shard for one in self._slices}
            first_records = dict(
                zip(file_counts, np.cumsum([0, *file_counts.values()]), strict=False)
            )
            self._source = TFRecordSource(list(file_counts))
            begins = [int(first_records[one.filename]) + one.skip for one in self._slices]
            self._index_offsets += np.array(begins, np.int64) - self._starts
            self._expected_count = sum(file_counts.values())

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._slices else 0

    def read(self, indices: Indices) -> list[bytes]:
        """Return the serialized records at `indices`, all of which are in bounds."""
        source = self._source
        if source is None or not len(indices):
            return []
        if isinstance(source, TFRecordSource):
            self._check_count(source)
            indices = indices + self._index_offsets[self._find_slices(indices)]
        try:
            return source.__getitems__(indices)
        except FileError as error:
            if error.record is not None or len(indices) == 1:
                raise
        return [source[index] for index in indices]  # raises an error that names the record

    def locate(self, index: int) -> tuple[str, int]:
        """Return the file of a record, and the index of the record in the file."""
        number = int(self._find_slices(np.array([index]))[0])
        found = self._slices[number]
        return found.filename, index - int(self._starts[number]) + found.skip

    def _find_slices(self, indices: Indices) -> Indices:
        return np.searchsorted(self._ends, indices, side="right")

    def _check_count(self, source: TFRecordSource) -> None:
        if len(source) != self._expected_count:
            raise CorruptFileError(
                f"The files of the split hold {len(source):,} records, but TFDS counted "
                f"{self._expected_count:,} when it prepared them. Prepare the dataset again.",
                path=self._slices[0].filename,
            )
