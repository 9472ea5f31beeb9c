"""Loaders and datasets that run with another tuning policy than the default one."""

import contextlib
import copy
import logging
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gristmill import DataLoader
from gristmill._engine.run import Run
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy

EAGER = TuningPolicy(busy_share=0.0)
"""A background thread prefetches from the first request on, however little the consumer does."""

LAZY = TuningPolicy(busy_share=math.inf)
"""No background thread prefetches, however busy the consumer is."""


def with_policy(loader: DataLoader, policy: TuningPolicy) -> DataLoader:
    """Return a copy of a loader that runs with another policy."""
    changed: Any = copy.copy(loader)
    settings = replace(changed._pipeline.settings, policy=policy)
    changed._pipeline = replace(changed._pipeline, settings=settings)
    changed._original = loader  # whose garbage collection would end the workers
    return changed


def iterate(dataset: Any, policy: TuningPolicy) -> Any:
    """Return an iterator over a dataset that runs with another policy."""
    iterator = iter(dataset)
    run = iterator._run
    iterator._run = Run(
        run._plan,
        replace(run._settings, policy=policy),
        run._description,
        is_lockstep=run._is_lockstep,
    )
    return iterator


def fixed_blocks(size: int, policy: TuningPolicy = DEFAULT_POLICY) -> TuningPolicy:
    """Return a policy whose blocks all have the same size."""
    return replace(
        policy, first_block_positions=size, max_block_positions=size, block_shrink_above=math.inf
    )


TRIES_AT_ONCE = TuningPolicy(
    window_s=1e-9,  # a rate needs some time
    window_blocks=1,
    history_windows=1,  # windows so short always look like bursts
    min_history_s=0.0,
    warm_up_s=0.0,
    max_settle_s=0.0,
    first_trial_s=0.0,
    retry_trial_s=0.0,
    quick_trial_s=0.0,
    starved_share=-math.inf,
    trial_allowance_s=math.inf,
    ready_timeout_s=math.inf,
    keep_tried_s=math.inf,  # workers start only once
    probe_sleeps=0,
)
"""Another strategy is tried with every second block, once its workers have started."""


class _Recorder(logging.Handler):
    def __init__(self, limit: int) -> None:
        super().__init__(logging.DEBUG)
        self.strategies: list[str] = []
        self.limit = limit

    def emit(self, record: logging.LogRecord) -> None:
        if record.msg == "Running on %s: %s.":
            self.strategies.append(str(record.args[0]))  # pyright: ignore
            assert len(self.strategies) < self.limit, "the stream starts again and again"


@contextlib.contextmanager
def recorded_strategies(limit: int = 10**6) -> Iterator[list[str]]:
    """Record the strategies that streams run on, and fail if they change too often."""
    logger, recorder = logging.getLogger("gristmill"), _Recorder(limit)
    level = logger.level
    logger.addHandler(recorder)
    logger.setLevel(logging.DEBUG)
    try:
        yield recorder.strategies
    finally:
        logger.setLevel(level)
        logger.removeHandler(recorder)
