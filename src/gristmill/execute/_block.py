"""What flows through the engine: many elements, as rows or as columns, with their track."""

from dataclasses import dataclass
from typing import Any, TypeAlias, final

from gristmill._columns import Columns
from gristmill.execute._track import DenseTrack, Track, concatenate_tracks
from gristmill.types import Element, Indices

Generators: TypeAlias = list[Any]
"""Generators that go on from an earlier step: the states of ours, or a user's sampler's objects."""


@final
@dataclass(frozen=True, slots=True)
class Block:
    """Some consecutive elements of the stream."""

    data: list[Element] | Columns
    track: Track
    generators: Generators | None = None

    def __len__(self) -> int:
        return len(self.track)

    def rows(self) -> list[Element]:
        """Give the elements one by one."""
        return self.data.rows() if isinstance(self.data, Columns) else self.data

    def with_rows(self, rows: list[Element]) -> "Block":
        """Give a block of other elements in the same places, or in the first of them."""
        if len(rows) == len(self):
            return Block(rows, self.track, self.generators)
        return Block(rows, self.track[: len(rows)], (self.generators or [])[: len(rows)] or None)

    def with_columns(self, columns: Columns) -> "Block":
        """Give a block of other elements in the same places."""
        return Block(columns, self.track, self.generators)

    def take(self, chosen: Indices) -> "Block":
        """Give only some of the elements, by ascending row, as rows."""
        if len(chosen) == len(self):
            return self
        rows, kept = self.rows(), self.generators
        return Block(
            [rows[row] for row in chosen],
            self.track.sparse()[chosen],
            None if kept is None else [kept[row] for row in chosen],
        )

    def __getitem__(self, rows: slice) -> "Block":
        kept = self.generators
        return Block(self.data[rows], self.track[rows], None if kept is None else kept[rows])

    @staticmethod
    def empty() -> "Block":
        """Give a block of no elements."""
        return Block([], DenseTrack.of_records(range(0), num_flat_maps=0))


def concatenate(blocks: list[Block]) -> Block:
    """Give one block, of rows, for several that follow each other."""
    if len(blocks) == 1:
        return blocks[0]
    generators = [block.generators for block in blocks]
    return Block(
        [row for block in blocks for row in block.rows()],
        concatenate_tracks([block.track for block in blocks]),
        None if None in generators else [one for some in generators for one in some or ()],
    )
