"""Plans, as pools of workers read them."""

import gc
from collections.abc import Callable
from typing import Any

import pytest

from gristmill._data.sampling.samplers import IndexSampler
from gristmill._engine.access.cut import Cut, cut_plan
from gristmill._plan.build import with_operation
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill.options import NoSharding
from tests.faults.processes import disregard_workers


@pytest.fixture(autouse=True)
def _only_workers_of_this_test() -> None:
    gc.collect()
    disregard_workers()


@pytest.fixture
def make_cut() -> Callable[..., Cut]:
    """Return a function that makes a plan over a source, cut as for worker processes."""

    def make(source: Any, *operations: Any, shuffle: bool = False) -> Cut:
        plan: Node = SampleNode(
            site="train.py:2",
            parent=SourceNode(site="train.py:1", source=source),
            sampler=IndexSampler(len(source), shuffle=shuffle, seed=5, num_epochs=1),
            shard=NoSharding(),
        )
        for number, operation in enumerate(operations):
            plan = with_operation(plan, operation, number=number, site=f"train.py:{10 + number}")
        return cut_plan(plan, skips_errors=False, below_batches=False)

    return make
