"""Executor that computes each range when its result is requested, in the thread that asks."""

import time
from collections import deque
from collections.abc import Callable
from typing import final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.tuning.measure import computed_stats, count_collections
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.timeline import Work, current_track


@final
class InlineExecutor(Executor):
    """Computes a range when its result is requested."""

    def __init__(self, read: Callable[[range], BlockResult], *, policy: TuningPolicy) -> None:
        super().__init__(policy)
        self._read = read
        self._submitted: deque[range] = deque()

    @property
    def target_block_s(self) -> float:
        return self.policy.inline_block_s

    @property
    def has_room(self) -> bool:
        return not self._submitted

    def submit(self, positions: range) -> None:
        self._submitted.append(positions)

    def collect(self, *, has_more: bool) -> BlockResult | None:
        positions = self._submitted.popleft()
        num_collections = count_collections()
        began_at = time.perf_counter()
        result = self._read(positions)
        result.work = (Work(current_track(), began_at, result.step_times),)
        result.stats = computed_stats(
            num_elements=len(result.block),
            num_positions=len(positions),
            wall_s=result.seconds,
            has_waited=result.has_waited,
            num_collections=count_collections() - num_collections,
        )
        return result

    def cancel(self) -> None:
        self._submitted.clear()
