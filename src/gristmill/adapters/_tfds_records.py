"""The bytes of the records of a TFDS split, from the files that it consists of."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gristmill.errors import CorruptFileError, FileError
from gristmill.sources import ArrayRecordDataSource, TFRecordSource
from gristmill.types import Indices


@final
@dataclass
class Part:
    """Some records of a file, in TFDS's words; the names are those of its file instructions."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


@final
class SplitRecords:
    """Random access to the bytes of the records of a split, in the order of its files."""

    def __init__(self, parts: Sequence[Part], file_format: str) -> None:
        self._parts = [part for part in parts if part.take]
        takes = np.array([part.take for part in self._parts], np.int64)
        self._ends = np.cumsum(takes)
        self._starts = self._ends - takes
        self._source: Any = None
        self._shifts = np.zeros(len(self._parts), np.int64)
        """What makes an index here one of the source, for each part."""
        if self._parts and file_format == "array_record":
            self._source = ArrayRecordDataSource(self._parts)
        elif self._parts:
            counts = {part.filename: part.examples_in_shard for part in self._parts}
            firsts = dict(zip(counts, np.cumsum([0, *counts.values()]), strict=False))
            self._source = TFRecordSource(list(counts))
            begins = [int(firsts[part.filename]) + part.skip for part in self._parts]
            self._shifts += np.array(begins, np.int64) - self._starts
            self._expected = sum(counts.values())

    def __len__(self) -> int:
        return int(self._ends[-1]) if self._parts else 0

    def read(self, indices: Indices) -> list[bytes]:
        """Give the bytes of some records, all of which are in bounds."""
        if not len(indices):
            return []
        if isinstance(self._source, TFRecordSource):
            self._check_count(self._source)
            indices = indices + self._shifts[self._part_of(indices)]
        try:
            return self._source.__getitems__(indices)
        except FileError as error:
            if error.record is not None or len(indices) == 1:
                raise
        return [self._source[index] for index in indices]  # finds the damaged one, to name it

    def place(self, index: int) -> tuple[str, int]:
        """Give the file that a record is in, and its number there."""
        number = int(self._part_of(np.array([index]))[0])
        part = self._parts[number]
        return part.filename, index - int(self._starts[number]) + part.skip

    def _part_of(self, indices: Indices) -> Indices:
        return np.searchsorted(self._ends, indices, side="right")

    def _check_count(self, source: TFRecordSource) -> None:
        if len(source) != self._expected:
            raise CorruptFileError(
                f"The files of the split hold {len(source):,} records, and TFDS counted "
                f"{self._expected:,} when it prepared them. Prepare the dataset anew.",
                path=self._parts[0].filename,
            )
