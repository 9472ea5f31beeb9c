"""Flat maps: several elements for each, one after the other or at fixed indices."""

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TypeAlias

import numpy as np

from gristmill._base.indices import as_indices, split_epochs
from gristmill._engine.access.context import ReadContext, Reader, RunStep, result_at
from gristmill._engine.access.filter import run_on_present
from gristmill._engine.access.skip_errors import leaves_out_bad_records, leaving_out
from gristmill._engine.blocks.block import BadRecord, Block, BlockResult
from gristmill._engine.blocks.error_notes import call_each
from gristmill._metrics.profiler import named
from gristmill._plan.nodes.steps import FanOutNode, FlatMapNode
from gristmill._plan.traverse import num_flat_maps
from gristmill.errors import PlanError
from gristmill.types import Element, Span

Split: TypeAlias = Callable[[Block], tuple[list[list[Element]], BaseException | None]]


def flat_map_step(node: FlatMapNode, context: ReadContext) -> RunStep:
    """Return the function that replaces the elements of a block by their outputs."""
    split = _splitter(node)
    level = num_flat_maps(node)

    def run(block: Block) -> BlockResult:
        groups, error = split(block)
        counts = np.array([len(group) for group in groups], dtype=np.int64)
        lineage = block.lineage[: len(groups)].sparse().split(counts, level=level)
        outputs = Block([output for group in groups for output in group], lineage)
        if node.resumed_at and len(outputs):
            outputs = outputs.take(np.flatnonzero(~lineage.is_before(node.resumed_at)))
        return BlockResult(outputs, error, row=len(groups))

    return run


def padded_flat_map_reader(node: FanOutNode, context: ReadContext, read_parent: Reader) -> Reader:
    """Return the reader of a flat map that has `max_fan_out` indices for each element.

    Output k of the element at index i is at index `i * max_fan_out + k`; indices without an output
    are absent.
    """
    split = _splitter(node)

    def run(block: Block) -> BlockResult:
        groups, error = split(block)
        return BlockResult(block.with_rows(groups), error, row=len(groups))

    run_split: RunStep = partial(run_on_present, named(node.label, run))
    if leaves_out_bad_records(node, context):
        run_split = leaving_out(node, run_split)

    def read(indices: Span) -> BlockResult:
        parents, outputs = split_epochs(as_indices(indices), node.max_fan_out)
        # Each parent is read once, in the order of the indices, so that the first error is raised.
        unique, firsts, inverse = np.unique(parents, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        result = read_parent(unique[order]).then(run_split, is_timed=False)
        groups = result.block.rows()
        ranks = np.argsort(order)[inverse]
        rows: list[Element] = []
        bad_by_rank: dict[int, list[BadRecord]] = {}
        for bad in result.bad_records:
            bad_by_rank.setdefault(bad.row, []).append(bad)
        bad_records: list[BadRecord] = []
        for rank, output in zip(ranks.tolist(), outputs.tolist(), strict=True):
            if rank >= len(groups):
                return result_at(indices, rows, result.error, bad_records)
            if not output:  # once for all outputs
                bad_records += [bad.at(len(rows)) for bad in bad_by_rank.get(rank, ())]
            group = groups[rank]
            rows.append(group[output] if group is not None and output < len(group) else None)
        return result_at(indices, rows, None, bad_records)

    return read


def _splitter(node: FlatMapNode | FanOutNode) -> Split:
    """Return the function that splits the elements of a block, and refuses too many outputs."""

    def split_one(element: Element) -> list[Element]:
        outputs = list(islice(node.function(element), node.max_fan_out + 1))
        if len(outputs) > node.max_fan_out:
            raise PlanError(
                f"{node.label} returned more than {node.max_fan_out} elements for one, which is "
                "its `max_fan_out`. Raise it, or split the record into fewer."
            )
        return outputs

    return lambda block: call_each(node, block.lineage, split_one, block.rows())
