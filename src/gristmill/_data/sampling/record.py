"""The metadata of a record, which samplers return, and a record with its metadata."""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(slots=True, repr=False)
class RecordMetadata:
    """The record at an index of the stream, and its random generator.

    Args:
        index: Index in the stream.
        record_key: Index of the record in the source.
        rng: Random generator for random transformations of this record.

    >>> RecordMetadata(index=0, record_key=7)
    RecordMetadata(index=0, record_key=7, rng=None)
    """

    index: int
    record_key: int | None = None
    rng: np.random.Generator | None = None

    def remove_record_key(self) -> "RecordMetadata":
        """Return the same metadata without the key."""
        return self if self.record_key is None else replace(self, record_key=None)

    def __repr__(self) -> str:  # that of a generator has an address in memory
        return f"RecordMetadata(index={self.index}, record_key={self.record_key}, rng={self.rng})"


@dataclass(slots=True, repr=False)
class Record(Generic[T]):
    """A record's data with its metadata.

    >>> Record(RecordMetadata(index=0), "data").data
    'data'
    """

    metadata: RecordMetadata
    data: T

    def __repr__(self) -> str:  # without data
        return f"Record(metadata={self.metadata!r}, data=<{type(self.data).__name__}>)"
