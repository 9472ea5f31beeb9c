"""What flows through the engine: many elements, as rows or as columns, with their track."""

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np

from gristmill._columns import Columns
from gristmill._tree import builder, children
from gristmill.execute._track import DenseTrack, Track, concatenate_tracks
from gristmill.types import Element, Indices, Tree

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
        """Give only some of the elements, by ascending row."""
        data, kept = self.data, self.generators
        return Block(
            data.take(chosen) if isinstance(data, Columns) else [data[row] for row in chosen],
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
    """Give one block for several that follow each other."""
    blocks = [block for block in blocks if len(block)] or blocks[:1]
    if len(blocks) == 1:
        return blocks[0]
    generators: list[Any] | None = []
    for block in blocks:
        if block.generators is None:
            generators = None
            break
        generators.extend(block.generators)
    columns = [block.data for block in blocks if isinstance(block.data, Columns)]
    if len(columns) == len(blocks):
        arrays = _concatenate_trees([column.gather() for column in columns])
        data = Columns.of(arrays, range(sum(map(len, columns))))
    else:
        data = [row for block in blocks for row in block.rows()]
    return Block(data, concatenate_tracks([block.track for block in blocks]), generators)


def _concatenate_trees(trees: list[Tree]) -> Tree:
    inner = children(trees[0])
    if inner is None:
        return np.concatenate(trees)
    lists = zip(*[(children(tree) or ([], []))[1] for tree in trees], strict=True)
    return builder(trees[0])([_concatenate_trees(list(same)) for same in lists])
