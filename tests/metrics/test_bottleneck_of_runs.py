"""The bottleneck that `stats()` names is the one that was planted, under each executor."""

import hashlib
import sys
import time
from dataclasses import dataclass, field, replace
from typing import Any

import cloudpickle
import numpy as np
import pytest

import gristmill as gm
from tests.policies import EAGER, fixed_blocks, with_policy

cloudpickle.register_pickle_by_value(sys.modules[__name__])

QUICK_S = 0.0002
SLOW_S = 0.01
"""More than ten times as long as all else that happens for an element."""

BUFFER = bytes(2_000_000)


def compute_s(seconds: float) -> None:
    """Hold the interpreter lock, for some CPU time: on a busy machine it takes longer."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        sum(range(500))


def compress_s(seconds: float) -> None:
    """Compute without the interpreter lock."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.sha256(BUFFER)


@dataclass
class Records:
    """Numbers, each of which takes some time to read."""

    sleep_s: float = QUICK_S

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> int:
        time.sleep(self.sleep_s)
        return index


def slow_python(number: int) -> int:
    compute_s(SLOW_S)
    return number


def slow_native(number: int) -> int:
    compress_s(SLOW_S)
    return number


def slow_batch(numbers: np.ndarray) -> np.ndarray:
    compute_s(3 * SLOW_S)
    return numbers


@dataclass(frozen=True)
class Executor:
    """Options of a loader, and what is known of a run with them."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    uses_threads: bool = False


EXECUTORS = [
    Executor("inline", {"read_options": gm.ReadOptions(num_threads=0)}),
    Executor("threads", {"read_options": gm.ReadOptions(num_threads=8)}, uses_threads=True),
    Executor("automatic", {"worker_count": None}),
    Executor("one worker", {"worker_count": 1, "read_options": gm.ReadOptions(num_threads=1)}),
    Executor("two workers", {"worker_count": 2, "read_options": gm.ReadOptions(num_threads=1)}),
    Executor("threads in workers", {"worker_count": 2}),
]


@pytest.fixture(params=EXECUTORS, ids=lambda executor: executor.name)
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param


def run(
    executor: Executor,
    *operations: Any,
    source: Any = None,
    consumer_s: float = 0.0,
    num_elements: int = 60,
) -> gm.Stats:
    """Run a pipeline with short blocks, so that it soon runs as it does for long."""
    source = Records() if source is None else source
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.IndexSampler(len(source), num_epochs=1, seed=0),
        operations=operations,
        **executor.arguments,
    )
    policy = replace(fixed_blocks(1, EAGER), max_tried_workers=2)
    if executor.uses_threads:  # all of them from the first element on, whatever is measured
        policy = replace(policy, waiting_share=-1.0, min_waiting_s=-1.0, quick_trial_s=1e9)
        policy = replace(policy, first_trial_s=1e9)
    with with_policy(loader, policy) as running, iter(running) as iterator:
        next(iterator)  # what follows does not include the start of workers
        before = iterator.stats()
        for _ in range(num_elements):
            next(iterator)
            if consumer_s:
                compute_s(consumer_s)
        return since(before, iterator.stats())


def since(before: gm.Stats, after: gm.Stats) -> gm.Stats:
    """Return what happened between two moments, as far as the bottleneck depends on it."""
    return replace(
        after,
        elapsed_s=after.elapsed_s - before.elapsed_s,
        waited_s=after.waited_s - before.waited_s,
    )


def planted(stats: gm.Stats) -> tuple[str, str]:
    assert stats.bottleneck is not None
    assert stats.bottleneck.explanation
    assert stats.bottleneck.remedy
    for step in stats.steps:
        parts = (step.cpu_s, step.waited_s, step.interpreter_wait_s, step.core_wait_s)
        assert all(part >= -1e-6 for part in parts), step
        assert sum(parts) == pytest.approx(step.elapsed_s)
    return stats.bottleneck.kind, stats.bottleneck.step


def test_a_read_that_sleeps(executor: Executor):
    stats = run(executor, np.negative, gm.Batch(2), source=Records(sleep_s=SLOW_S))

    kind, step = planted(stats)
    assert (kind, step[:7]) == ("waiting", "reading")


def test_a_map_that_holds_the_interpreter_lock(executor: Executor):
    stats = run(executor, slow_python, gm.Batch(2))

    kinds = {"interpreter"} if executor.uses_threads else {"computing", "interpreter"}
    kind, step = planted(stats)
    assert step == "Map slow_python"
    assert kind in kinds
    if executor.name in ("inline", "one worker", "two workers"):
        assert kind == "computing"


def test_a_map_that_releases_the_interpreter_lock(executor: Executor):
    stats = run(executor, slow_native, gm.Batch(2))

    kind, step = planted(stats)
    assert step == "Map slow_native"
    assert kind in {"computing", "interpreter"}
    # With more threads than cores, waiting for a core is taken for waiting for the lock.
    if executor.name != "automatic" and not executor.uses_threads:
        assert kind == "computing"


def test_a_function_of_batches(executor: Executor):
    stats = run(executor, gm.Batch(2), slow_batch, num_elements=30)

    kind, step = planted(stats)
    assert step == "Map slow_batch"
    assert kind in {"computing", "in order", "interpreter"}


def test_a_consumer(executor: Executor):
    stats = run(executor, gm.Batch(2), consumer_s=SLOW_S)

    assert planted(stats) == ("consumer", "")


def test_a_stage_that_runs_in_order(executor: Executor):
    stats = run(executor, is_even, gm.Batch(2), slow_batch, num_elements=30)

    kind, step = planted(stats)
    assert step == "Map slow_batch"
    if stats.executor != "inline":
        assert kind == "in order"


@dataclass
class SameArray:
    """A large array that takes no time to read: only workers must copy it."""

    def __post_init__(self) -> None:
        self._array = np.ones(2**20, np.float64)

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> np.ndarray:
        return self._array


def test_workers_that_copy_large_arrays():
    (executor,) = [one for one in EXECUTORS if one.name == "two workers"]
    stats = run(executor, source=SameArray())

    assert planted(stats) == ("transfer", "")


class IsEven(gm.Filter):
    """Whose elements only batches above the cut can hold."""

    def filter(self, element: int) -> bool:
        return element % 2 == 0


is_even = IsEven()
