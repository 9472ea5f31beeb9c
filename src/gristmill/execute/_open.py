"""From a plan to stages, in whichever ways the settings allow."""

import os
from dataclasses import dataclass
from typing import final

from gristmill.execute._executor import InlineExecutor
from gristmill.execute._processes import ProcessExecutor
from gristmill.execute._reader import cut_plan, open_reader
from gristmill.execute._stack import stack_stages
from gristmill.execute._stage import Stage
from gristmill.execute._threads import ThreadExecutor
from gristmill.execute._tune import TunedStage, Way
from gristmill.observe import Counters
from gristmill.options import MultiprocessingOptions, ReadOptions, SkipErrors, WorkerOptions
from gristmill.plan import Node


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a plan is to be run: what the user asked for. Only `on_error` changes the stream."""

    read: ReadOptions
    multiprocessing: MultiprocessingOptions
    worker: WorkerOptions
    is_tuned: bool
    """Whether the number of workers is to be found by measuring."""
    on_error: SkipErrors | None

    @property
    def runs_ahead(self) -> bool:
        """Whether anything may run in the background of this process."""
        return self.read.num_threads > 0 and self.read.prefetch_buffer_size > 0


def open_stages(
    plan: Node, settings: Settings, counters: Counters, *, in_order: bool = False
) -> Stage:
    """Give the top stage of a plan.

    Where batches are to be formed `in_order`, they can begin at any record.
    """
    skips = settings.on_error is not None
    high = cut_plan(plan, skips_errors=skips, below_batches=in_order)
    low = cut_plan(plan, skips_errors=skips, below_batches=True)

    def by_processes(num_workers: int) -> tuple[Stage, ProcessExecutor]:
        executor = ProcessExecutor(
            high,
            num_workers=num_workers,
            buffer_size=settings.multiprocessing.per_worker_buffer_size,
            read=settings.read,
            options=settings.worker,
            counters=counters,
        )
        return stack_stages(high, executor, counters, needs_thread=True), executor

    if settings.multiprocessing.num_workers:
        counters.executor = "processes"
        return by_processes(settings.multiprocessing.num_workers)[0]

    inline = stack_stages(high, InlineExecutor(open_reader(high)), counters)
    if not settings.runs_ahead:
        return inline
    ways = [Way(kind="inline", size=1, open=lambda: (inline, None))]
    if settings.read.num_threads > 1:
        threads = ThreadExecutor(
            open_reader(low), most_positions_ahead=settings.read.prefetch_buffer_size
        )
        stage = stack_stages(low, threads, counters)
        ways += [
            Way(kind="threads", size=size, open=lambda: (stage, threads))
            for size in _doubling(settings.read.num_threads)
        ]
    if settings.is_tuned:
        ways += [
            Way(kind="processes", size=size, open=lambda size=size: by_processes(size))
            for size in _doubling(_num_cores())[::-1] or [1]
        ]
    return TunedStage(ways, (0,) * (1 + high.num_flat_maps), counters)


def _doubling(most: int) -> list[int]:
    """Give 2, 4, 8 and so on up to `most`, which comes last."""
    sizes = [2**power for power in range(1, most.bit_length()) if 2**power < most]
    return [*sizes, most] if most > 1 else []


def _num_cores() -> int:
    """Count the cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1
