"""A filter of a stream leaves elements out; one of a dataset leaves `None` at their indices."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gristmill import ArraySource, DataLoader, Filter, MapDataset, SequentialSampler
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.filter import (
    AbsentElementError,
    may_hold_absent,
    present_rows,
    run_on_present,
)
from gristmill._engine.access.reader import open_cut, open_dataset
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import lineage_of


class Odd(Filter):
    """Raises for 7, and returns what has no truth value for 12."""

    def filter(self, element: int) -> Any:
        if element == 7:
            raise ValueError("seven")
        return np.array([True, True]) if element == 12 else element % 2 == 1


def streamed(positions: range) -> BlockResult:
    loader = DataLoader(data_source=range(20), sampler=SequentialSampler(20), operations=[Odd()])
    return open_cut(cut_plan(loader._plan_node, skips_errors=False, below_batches=False))(positions)


def by_index(positions: range) -> BlockResult:
    return open_dataset(MapDataset.range(20).filter(Odd())._plan_node)(positions)


@pytest.mark.parametrize(
    ("positions", "kept", "row", "message"),
    [
        (range(5), [1, 3], 5, "None"),
        (range(4, 9), [5], 3, "seven"),
        (range(10, 15), [11], 2, "The truth value"),
    ],
)
def test_both_kinds_of_filter_keep_the_same_elements(
    positions: range, kept: list[int], row: int, message: str
):
    stream, dataset = streamed(positions), by_index(positions)

    assert stream.block.rows() == kept
    assert stream.block.lineage.positions().tolist() == kept
    expected = [number if number in kept else None for number in positions[:row]]
    assert dataset.block.rows() == expected
    assert dataset.block.lineage.positions().tolist() == list(positions[:row])
    for result in (stream, dataset):
        assert str(result.error).startswith(message)


def test_rows_that_hold_an_element_are_found():
    assert present_rows([]) is None
    assert present_rows([0, False, ""]) is None
    assert present_rows([None, 1, None, 2]) == [1, 3]


def negate_below_three(block: Block) -> BlockResult:
    rows = [-row for row in block.rows()]
    bad = next((number for number, row in enumerate(rows) if row <= -3), None)
    if bad is None:
        return BlockResult(block.with_rows(rows))
    return BlockResult(block.with_rows(rows[:bad]), ValueError("three"), row=bad)


def test_a_step_passes_over_absent_elements_and_an_error_keeps_those_before_it():
    def run(*rows: int | None) -> BlockResult:
        return run_on_present(negate_below_three, Block([*rows], lineage_of(range(len(rows)))))

    assert run(1, None, 2).block.rows() == [-1, None, -2]
    assert run(None, None).block.rows() == [None, None]
    failed = run(None, 1, None, 3, None, 2)
    assert failed.block.rows() == [None, -1, None]
    assert failed.row == 3


def test_only_sources_of_numbers_and_arrays_are_known_to_be_complete():
    numbers = MapDataset.range(5)
    arrays = MapDataset.source(ArraySource(np.arange(5)))

    assert not may_hold_absent(numbers._plan_node)
    assert not may_hold_absent(arrays.seed(1).shuffle()[1:].repeat(2)._plan_node)
    assert may_hold_absent(MapDataset.source([1, None])._plan_node)
    assert may_hold_absent(numbers.map(lambda x: None)._plan_node)


def stream_of(dataset: Any, *, stops_at_absent: bool, keeps_none: bool = False) -> BlockResult:
    stream: Any = dataset.to_iter_dataset(allow_nones=keeps_none)
    plan = stream._plan_node.parent  # below the read options
    if stops_at_absent:
        plan = replace(stream.batch(2)._plan_node, parent=plan)
    cut = cut_plan(plan, skips_errors=False, below_batches=True)
    assert cut.stops_at_absent is stops_at_absent
    return open_cut(cut)(range(6))


def test_absent_elements_are_left_out_of_a_stream_or_stop_the_read():
    dataset = MapDataset.source([0, 1, None, 3, None, 5])

    assert stream_of(dataset, stops_at_absent=False).block.rows() == [0, 1, 3, 5]
    kept = stream_of(dataset, stops_at_absent=False, keeps_none=True)
    assert kept.block.rows() == [0, 1, None, 3, None, 5]
    stopped = stream_of(dataset, stops_at_absent=True)
    assert stopped.block.rows() == [0, 1]
    assert isinstance(stopped.error, AbsentElementError)
