"""Replies and a clock for tests of tasks."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage
from gristmill._engine.executors.pools.task import FindHolder, no_holder
from gristmill._metrics.step_time import computing


@dataclass
class FakeClock:
    """A clock that stands still until a test moves it."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now


@dataclass
class FakeReply:
    """A reply whose elements are the positions, which take `num_bytes` in all."""

    positions: range
    num_bytes: int = 0
    seconds: float = 0.0
    error: BaseException | None = None
    find_holder: FindHolder = no_holder

    def decode(self) -> BlockResult:
        lineage = DenseLineage.of_records(self.positions, num_flat_maps=0)
        block = Block(list(self.positions), lineage)
        return BlockResult(block, self.error, step_times=(computing(self.seconds),))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def make_reply() -> Callable[..., FakeReply]:
    return FakeReply
