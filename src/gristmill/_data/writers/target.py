"""The interface of a format that records are written in."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from gristmill.errors import BatchError
from gristmill.types import Element

Blocks: TypeAlias = Iterable[tuple[int, Sequence[Element]]]
"""Blocks of records, each after the index of its first record."""


class Target(ABC):
    """A writer of one format, for records like those of the sample that it was created with."""

    @abstractmethod
    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        """Write a shard.

        Args:
            folder: The folder for the files of the shard.
            name: The name of the shard, without a suffix.
            count: The number of records in the shard.
            blocks: The records.
        """

    @abstractmethod
    def reading_code(self, folder: str) -> str:
        """Return the Python expression that reads the shards in a folder."""

    def finish(self, folder: Path) -> None:
        """Write the files that belong to all shards together."""
        del folder


def mismatch(difference: str, index: int) -> BatchError:
    """Return the error for a record whose types differ from those of the sample."""
    return BatchError(
        f"Record {index:,} differs from the first records: {difference}. Make the records uniform, "
        "or write ArrayRecord files (`format='array_record'`), whose records may differ."
    )
