"""Open the stages of one segment of a plan: an executor below the cut, a stage per step above."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

from gristmill._base.threads.cores import num_cores
from gristmill._engine.access.cut import Cut, cut_plan
from gristmill._engine.access.reader import open_cut
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.executors.inline import InlineExecutor
from gristmill._engine.executors.pools.executor import PooledExecutor
from gristmill._engine.executors.pools.session import PoolSession
from gristmill._engine.executors.threads import ThreadExecutor, with_reader_name
from gristmill._engine.settings import Settings
from gristmill._engine.stages.base import Stage
from gristmill._engine.stages.batch import stack_stages
from gristmill._engine.stages.batch_alignment import SegmentBuilder
from gristmill._engine.tuning.autotune import AutotunedStage, ExecutionStrategy
from gristmill._metrics.counters import Counters
from gristmill._plan.nodes.base import Node
from gristmill.options import RayOptions


@final
@dataclass(frozen=True, kw_only=True)
class Segment(SegmentBuilder):
    """Steps that follow each other on the records of a source or dataset, and how to run them."""

    plan: Node
    """The highest step."""
    settings: Settings
    counters: Counters
    first_step: int
    """The number of the lowest step in `counters`."""

    def open(self, *, in_order: bool) -> Stage:
        settings = self.settings
        if settings.runs_ahead:
            self.counters.max_threads = max(self.counters.max_threads, settings.read.num_threads)
        num_workers = settings.multiprocessing.num_workers
        if num_workers:
            is_remote = isinstance(settings.worker, RayOptions)
            self.counters.executor = "ray" if is_remote else "processes"
            return self._open_processes(num_workers, in_order=in_order)[0]
        cut = self._cut(in_order=in_order)
        inline = self._stack(cut, InlineExecutor(self._reader(cut), policy=settings.policy))
        strategies = [ExecutionStrategy(kind="inline", size=1, open=lambda: (inline, None))]
        if settings.runs_ahead:
            strategies += self._thread_strategies(in_order=in_order)
        if settings.runs_ahead and settings.is_tuned and settings.has_interpreter_lock:
            strategies += self._process_strategies(in_order=in_order)
        if len(strategies) == 1:
            return inline
        start = (0,) * (1 + cut.num_flat_maps)
        learned = settings.learned
        known = tuple(one.strategy for one in strategies)
        return AutotunedStage(
            strategies,
            start,
            self.counters,
            policy=settings.policy,
            learned=learned and learned.recall(self.first_step, known),
            remember=partial(learned.remember, self.first_step) if learned else None,
        )

    def _thread_strategies(self, *, in_order: bool) -> list[ExecutionStrategy]:
        """Return a strategy for each number of threads. They share one executor."""
        read = self.settings.read
        sizes = _powers_of_two(read.num_threads // self.settings.num_concurrent_streams)
        if not sizes:
            return []
        cut = self._cut(in_order=in_order, below_batches=True)
        threads = ThreadExecutor(
            self._reader(cut),
            most_positions_ahead=read.prefetch_buffer_size,
            policy=self.settings.policy,
        )
        stage = self._stack(cut, threads)
        return [
            ExecutionStrategy(kind="threads", size=size, open=lambda: (stage, threads))
            for size in sizes
        ]

    def _process_strategies(self, *, in_order: bool) -> list[ExecutionStrategy]:
        """Return a strategy for each number of workers, all cores first. None is open yet."""
        max_workers = self.settings.policy.max_tried_workers or num_cores()
        return [
            ExecutionStrategy(
                kind="processes",
                size=size,
                open=partial(self._open_processes, size, in_order=in_order),
            )
            for size in _powers_of_two(max_workers)[::-1] or [1]
        ]

    def _open_processes(self, num_workers: int, *, in_order: bool) -> tuple[Stage, PooledExecutor]:
        settings = self.settings
        cut = self._cut(in_order=in_order, max_read=settings.num_sent)
        session = settings.session
        if session is None or not session.accepts_streams:
            session = PoolSession(
                settings.pools,
                num_workers=num_workers,
                options=settings.worker,
                counters=self.counters,
            )
        executor = PooledExecutor(
            cut,
            session,
            buffer_size=settings.multiprocessing.per_worker_buffer_size,
            read=settings.read,
            policy=settings.policy,
        )
        return self._stack(cut, executor, needs_thread=True), executor

    def _reader(self, cut: Cut) -> Callable[[range], BlockResult]:
        read = open_cut(cut, policy=self.settings.policy)
        return with_reader_name(read, num_threads=self.settings.read.num_threads)

    def _cut(
        self, *, in_order: bool, below_batches: bool = False, max_read: int | None = None
    ) -> Cut:
        return cut_plan(
            self.plan,
            skips_errors=self.settings.on_error is not None,
            below_batches=below_batches,
            in_order=in_order,
            max_read=max_read,
        )

    def _stack(self, cut: Cut, executor: Executor, *, needs_thread: bool = False) -> Stage:
        return stack_stages(
            cut, executor, self.counters, self.first_step, needs_thread=needs_thread
        )


def _powers_of_two(maximum: int) -> list[int]:
    """Return 2, 4, 8 and so on below `maximum`, and `maximum` itself; nothing if it is 1 or less.

    >>> _powers_of_two(6)
    [2, 4, 6]
    """
    powers = [2**exponent for exponent in range(1, maximum.bit_length()) if 2**exponent < maximum]
    return [*powers, maximum] if maximum > 1 else []
