"""Blocks: consecutive elements of a stream, as rows or as columns, with their lineage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from gristmill._base.columns import Columns
from gristmill._base.seed import GeneratorState
from gristmill._engine.blocks.lineage import DenseLineage, Lineage, concatenate_lineages
from gristmill.types import Element, Indices

Generators: TypeAlias = Sequence[GeneratorState | np.random.Generator]
"""One generator per element, for the next random step: the states of ours after their last use, or
the generators of a user's sampler."""


@final
@dataclass(slots=True, eq=False)
class Block:
    """Some consecutive elements of a stream.

    Never modified, but not `frozen`, which makes construction slower.
    """

    data: list[Element] | Columns
    lineage: Lineage
    generators: Generators | None = None

    def __len__(self) -> int:
        return len(self.lineage)

    def rows(self) -> list[Element]:
        """Return the elements one by one."""
        return self.data.rows() if isinstance(self.data, Columns) else self.data

    def with_rows(self, rows: list[Element]) -> "Block":
        """Return a block of other elements with this lineage, or with the start of it."""
        if len(rows) == len(self):
            return Block(rows, self.lineage, self.generators)
        return Block(rows, self.lineage[: len(rows)], (self.generators or [])[: len(rows)] or None)

    def with_columns(self, columns: Columns) -> "Block":
        """Return a block of other elements with this lineage."""
        return Block(columns, self.lineage, self.generators)

    def take(self, chosen: Indices) -> "Block":
        """Return the elements at some rows, in ascending order, as rows."""
        if len(chosen) == len(self):
            return self
        rows, generators = self.rows(), self.generators
        numbers: list[int] = chosen.tolist()
        return Block(
            [rows[row] for row in numbers],
            self.lineage.sparse()[chosen],
            None if generators is None else [generators[row] for row in numbers],
        )

    def __getitem__(self, rows: slice) -> "Block":
        generators = self.generators
        return Block(
            self.data[rows], self.lineage[rows], None if generators is None else generators[rows]
        )

    @staticmethod
    def empty() -> "Block":
        """Return a block without elements."""
        return Block([], DenseLineage.of_records(range(0), num_flat_maps=0))


def concatenate(blocks: list[Block]) -> Block:
    """Return one block, of rows, for several that follow each other."""
    if len(blocks) == 1:
        return blocks[0]
    generators = [block.generators for block in blocks]
    return Block(
        [row for block in blocks for row in block.rows()],
        concatenate_lineages([block.lineage for block in blocks]),
        None if None in generators else [one for some in generators for one in some or ()],
    )
