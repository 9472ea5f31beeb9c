"""The stages of a segment, by what the settings allow."""

from typing import Any

import numpy as np
import pytest

from gristmill import Batch
from gristmill._data.sampling.samplers import IndexSampler
from gristmill._engine.build import open_stages
from gristmill._engine.segment import Segment
from gristmill._engine.settings import Settings
from gristmill._engine.stages.base import Stage
from gristmill._engine.stages.batch_alignment import BatchAlignmentStage
from gristmill._engine.tuning.autotune import AutotunedStage
from gristmill._metrics.counters import Counters
from gristmill._plan.build import with_operation
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill.options import MultiprocessingOptions, NoSharding, ReadOptions, WorkerOptions


def plan_of(*operations: Any) -> Node:
    """Return a plan over ten numbers."""
    plan: Node = SampleNode(
        site="train.py:2",
        parent=SourceNode(site="train.py:1", source=range(10)),
        sampler=IndexSampler(10, num_epochs=1, seed=0),
        shard=NoSharding(),
    )
    for number, operation in enumerate(operations):
        plan = with_operation(plan, operation, number=number, site=f"train.py:{10 + number}")
    return plan


def settings_of(
    *, num_threads: int = 0, num_workers: int = 0, is_tuned: bool = False, **others: Any
) -> Settings:
    return Settings(
        read=ReadOptions(num_threads=num_threads),
        multiprocessing=MultiprocessingOptions(num_workers=num_workers),
        worker=WorkerOptions(),
        is_tuned=is_tuned,
        **others,
    )


def segment_of(plan: Node, settings: Settings) -> Segment:
    counters = Counters()
    first_step = counters.add_steps(["Source", "Map", "Batch"])
    return Segment(plan=plan, settings=settings, counters=counters, first_step=first_step)


def drain(stage: Stage) -> list[Any]:
    rows: list[Any] = []
    while (result := stage.pull()) is not None:
        assert result.error is None
        rows += [np.asarray(row).tolist() for row in result.block.rows()]
    stage.close()
    stage.dispose()
    return rows


BATCHES = plan_of(lambda x: 2 * x, Batch(4))
EXPECTED = [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]

SETTINGS = {
    "inline": settings_of(),
    "threads": settings_of(num_threads=4),
    "processes": settings_of(num_workers=1),
    "tuned": settings_of(num_threads=4, is_tuned=True),
    "one of several streams": settings_of(num_threads=4, num_concurrent_streams=4),
    "only the lowest step in workers": settings_of(num_workers=1, num_sent=1),
}


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=list(SETTINGS))
def test_a_segment_yields_the_same_for_all_settings(settings: Settings, in_order: bool):
    assert drain(segment_of(BATCHES, settings).open(in_order=in_order)) == EXPECTED


@pytest.mark.parametrize(
    ("name", "is_tuned"),
    [
        ("inline", False),
        ("threads", True),
        ("processes", False),
        ("tuned", True),
        ("one of several streams", False),
    ],
)
def test_there_is_something_to_measure_only_if_there_is_a_choice(name: str, is_tuned: bool):
    stage = segment_of(BATCHES, SETTINGS[name]).open(in_order=False)

    assert isinstance(stage, AutotunedStage) == is_tuned
    stage.close()
    stage.dispose()


def test_a_segment_can_be_opened_again():
    segment = segment_of(BATCHES, settings_of())

    assert drain(segment.open(in_order=False)) == drain(segment.open(in_order=True)) == EXPECTED


@pytest.mark.parametrize("is_batched", [False, True])
def test_only_batches_of_a_dense_parent_need_alignment(is_batched: bool):
    plan = BATCHES if is_batched else plan_of()

    stage = open_stages(plan, settings_of(), Counters())

    assert isinstance(stage, BatchAlignmentStage) == is_batched
