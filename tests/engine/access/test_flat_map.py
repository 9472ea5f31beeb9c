"""Flat maps: outputs one after the other in a stream, at fixed indices in a dataset."""

from typing import Any

import numpy as np

from gristmill import DataLoader, FlatMap, MapDataset, SequentialSampler
from gristmill._engine.access.cut import cut_plan
from gristmill._engine.access.reader import open_cut, open_dataset
from gristmill._engine.blocks.block import BlockResult
from gristmill.errors import PlanError
from gristmill.experimental import FlatMapMapDataset


class Letters(FlatMap):
    """The letters of a string, at most 3."""

    max_fan_out = 3

    def flat_map(self, element: str) -> list[str]:
        return list(element)


WORDS = ["ab", "", "cde", "f", "ghij"]


def streamed(positions: Any, *operations: Any) -> BlockResult:
    loader = DataLoader(
        data_source=WORDS, sampler=SequentialSampler(5), operations=operations or [Letters()]
    )
    return open_cut(cut_plan(loader._plan_node, skips_errors=False, below_batches=False))(positions)


def by_index(span: Any) -> BlockResult:
    dataset: Any = FlatMapMapDataset(MapDataset.source(WORDS), Letters())
    return open_dataset(dataset._plan_node)(span)


def test_outputs_of_a_stream_follow_each_other_with_their_cursors():
    block = streamed(range(4)).block

    assert block.rows() == ["a", "b", "c", "d", "e", "f"]
    cursors = [block.lineage.after(row) for row in range(len(block))]
    assert cursors == [(0, 1), (1, 0), (2, 1), (2, 2), (3, 0), (4, 0)]


def test_outputs_of_outputs_have_a_cursor_entry_per_flat_map():
    class Twice(FlatMap):
        max_fan_out = 2

        def flat_map(self, element: str) -> list[str]:
            return [element, element.upper()]

    block = streamed(range(1), Letters(), Twice()).block

    assert block.rows() == ["a", "A", "b", "B"]
    assert block.lineage.sparse().ends.tolist() == [[0, 0, 1], [0, 1, 0], [0, 1, 1], [1, 0, 0]]


def test_outputs_of_a_dataset_are_at_fixed_indices():
    result = by_index(range(12))

    expected = ["a", "b", None, None, None, None, "c", "d", "e", "f", None, None]
    assert result.block.rows() == expected
    assert by_index(np.array([6, 1, 7, 6])).block.rows() == ["c", "b", "d", "c"]


def test_too_many_outputs_are_an_error_after_the_elements_before():
    stream, dataset = streamed(range(3, 5)), by_index(np.array([9, 2, 13, 0]))

    assert stream.block.rows() == ["f"]
    assert dataset.block.rows() == ["f", None]
    for result in (stream, dataset):
        assert isinstance(result.error, PlanError)
        assert "Letters returned more than 3 elements for one" in str(result.error)


def test_an_error_comes_where_its_element_is_requested():
    # The element that fails has the lowest index, and is requested last.
    dataset: Any = FlatMapMapDataset(MapDataset.source(["long word", "ab", "cd"]), Letters())

    result = open_dataset(dataset._plan_node)(np.array([6, 3, 0]))

    assert result.block.rows() == ["c", "a"]
    assert isinstance(result.error, PlanError)
