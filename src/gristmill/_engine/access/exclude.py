"""The reader of a dataset in which some records are left out."""

import numpy as np

from gristmill._base.indices import as_indices
from gristmill._engine.access.context import ReadContext, Reader, result_at
from gristmill._engine.access.records import is_among
from gristmill._engine.blocks.block import BlockResult
from gristmill._plan.nodes.exclude import ExcludeNode
from gristmill.types import Element, Span


def exclude_reader(node: ExcludeNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of a dataset in which some elements are absent. They are not read."""
    excluded, length = node.indices, node.length()

    def read(indices: Span) -> BlockResult:
        numbers = as_indices(indices)
        kept = np.flatnonzero(~is_among(excluded, as_indices(numbers % length)))
        if len(kept) == len(numbers):
            return read_parent(indices)
        rows: list[Element] = [None] * len(numbers)
        if not len(kept):
            return result_at(indices, rows, None)
        result = read_parent(numbers[kept])
        found = result.block.rows()
        for row, element in zip(kept.tolist(), found, strict=False):
            rows[row] = element
        end = len(rows) if result.error is None else int(kept[len(found)])
        bad_records = [bad.at(int(kept[bad.row])) for bad in result.bad_records]
        return result_at(indices, rows[:end], result.error, bad_records)

    return read
