"""Settings of a run: the options that the user chose."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, final

from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.executors.pools.session import PoolSession
from gristmill._engine.tuning.interpreter_probe import has_interpreter_lock
from gristmill._engine.tuning.learned import LearnedChoices
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill._plan.nodes.hints import FilterLimits
from gristmill.options import MultiprocessingOptions, ReadOptions, SkipErrors, WorkerOptions


@final
@dataclass(frozen=True, kw_only=True)
class Settings:
    """How a stream is executed. Only `on_error` changes the stream."""

    read: ReadOptions
    multiprocessing: MultiprocessingOptions
    worker: WorkerOptions
    is_tuned: bool
    """Whether the number of workers is found by measuring."""
    on_error: SkipErrors | None = None
    num_sent: int | None = None
    """How many of the lowest steps workers may run; by default, all that they can."""
    pools: PoolKeeper = field(default_factory=PoolKeeper)
    """Keeps worker processes between iterators."""
    session: PoolSession | None = None
    """Worker processes that concurrent streams share."""
    num_concurrent_streams: int = 1
    """How many streams run concurrently, and share the threads that one would have."""
    limits: FilterLimits | None = None
    """Limits on the share of elements that each filter may drop."""
    dataset_options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options that the user set for the whole pipeline, by name, for iterators of their own."""
    policy: TuningPolicy = DEFAULT_POLICY
    """The constants by which the stream adapts to what it measures."""
    learned: LearnedChoices | None = None
    """What earlier iterators have measured."""
    prints_summary: bool = False
    """Whether a summary is written to standard error at the end, for debugging."""
    has_interpreter_lock: bool = field(default_factory=has_interpreter_lock)
    """Whether threads take turns, so that only processes use several cores."""

    @property
    def runs_ahead(self) -> bool:
        """Whether anything may run in the background of this process."""
        return self.read.num_threads > 0 and self.read.prefetch_buffer_size > 0

    @property
    def idle_timeout_s(self) -> float:
        """After how long without a request a stream ends what runs in the background.

        A timeout of 0 is for workers without an iterator; here it stands for the default.
        """
        timeout_s = self.worker.idle_timeout_s or WorkerOptions().idle_timeout_s
        return min(timeout_s, threading.TIMEOUT_MAX)
