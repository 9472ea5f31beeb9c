"""A record's identity, and the record with it: what samplers speak in."""

from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np

T = TypeVar("T")


@dataclass(slots=True)
class RecordMetadata:
    """Which record stands at an index of the stream, and its random generator.

    >>> RecordMetadata(index=0, record_key=7)
    RecordMetadata(index=0, record_key=7, rng=None)
    """

    index: int
    record_key: int | None = None
    rng: np.random.Generator | None = None

    def remove_record_key(self) -> "RecordMetadata":
        """Give the same metadata without the key."""
        return self if self.record_key is None else replace(self, record_key=None)

    def __str__(self) -> str:
        return f"RecordMetadata(index={self.index}, record_key={self.record_key}, rng={self.rng})"


@dataclass(slots=True)
class Record(Generic[T]):
    """A record's data with its metadata.

    >>> Record(RecordMetadata(index=0), "data").data
    'data'
    """

    metadata: RecordMetadata
    data: T
