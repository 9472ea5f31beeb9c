"""Batches at multiples of their size, for as long as no element is absent."""

from dataclasses import replace
from typing import Any

import pytest

from gristmill import MapDataset
from gristmill._engine.access.nested_clock import base_step_names
from gristmill._engine.segment import Segment
from gristmill._engine.settings import Settings
from gristmill._engine.stages.base import Stage
from gristmill._engine.stages.batch_alignment import BatchAlignmentStage, SegmentBuilder
from gristmill._metrics.counters import Counters
from gristmill._plan.traverse import bottom_of
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions


class Recorded(SegmentBuilder):
    """A segment of batches that records how it was opened."""

    def __init__(self, batches: Any) -> None:
        node = batches._plan_node
        self.plan = replace(node, parent=node.parent.parent)  # without the hint between them
        self.opened: list[bool] = []

    def open(self, *, in_order: bool) -> Stage:
        self.opened.append(in_order)
        counters = Counters()
        segment = Segment(
            plan=self.plan,
            settings=Settings(
                read=ReadOptions(num_threads=0),
                multiprocessing=MultiprocessingOptions(),
                worker=WorkerOptions(),
                is_tuned=False,
            ),
            counters=counters,
            first_step=counters.add_steps([*base_step_names(bottom_of(self.plan)), "Batch"]),
        )
        return segment.open(in_order=in_order)


def numbers(absent: int | None = None) -> Any:
    """Return batches of 4 out of 10 numbers, one of which may be found to be absent."""
    dataset = MapDataset.range(10).map(lambda x: None if x == absent else x)
    return dataset.to_iter_dataset().batch(4)


def drain(stage: Stage) -> list[list[int]]:
    batches: list[list[int]] = []
    while (result := stage.pull()) is not None:
        assert result.error is None
        batches += [batch.tolist() for batch in result.block.rows()]
    return batches


def test_without_an_absent_element_batches_are_never_formed_in_order():
    segment = Recorded(numbers())

    assert drain(BatchAlignmentStage(segment)) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert segment.opened == [False]


@pytest.mark.parametrize("absent", [0, 5, 9])
def test_from_an_absent_element_on_they_are(absent: int):
    segment = Recorded(numbers(absent))
    present = [number for number in range(10) if number != absent]

    batches = drain(BatchAlignmentStage(segment))

    assert batches == [present[:4], present[4:8], present[8:]]
    assert segment.opened == [False, True]


def test_they_are_formed_in_order_after_a_seek_into_a_batch():
    segment = Recorded(numbers())
    stage = BatchAlignmentStage(segment)

    stage.seek((4,))
    assert segment.opened == [False]
    stage.seek((5,))

    assert segment.opened == [False, True]
    assert drain(stage) == [[5, 6, 7, 8], [9]]
