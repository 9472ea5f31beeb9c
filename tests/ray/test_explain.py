"""The verdict on a run on Ray names the bottleneck that was planted."""

import time
from typing import Any

import pytest

import gristmill as gm
from gristmill._metrics.explanation import Explanation, explain_stats
from tests.equivalence.executors import by_value
from tests.metrics.test_bottleneck_of_runs import since
from tests.ray.clusters import ray_options

by_value(__name__)

pytestmark = pytest.mark.usefixtures("cluster")


def wait(number: int) -> int:
    time.sleep(0.02)
    return number


def compute(number: int) -> int:
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        sum(range(500))
    return number


def explained(step: Any) -> Explanation:
    """Run a loader for some batches, and explain what happened after the start of its actor."""
    return explain_stats(stats_of(step))


def stats_of(step: Any, *, consumer_s: float = 0.0) -> gm.Stats:
    """Run a loader for some batches, and return what happened after the start of its actor."""
    loader = gm.load(
        range(10_000),
        num_epochs=1,
        batch_size=4,
        transformations=[step],
        worker_count=1,
        worker_options=ray_options(),
        read_options=gm.ReadOptions(num_threads=1),
    )
    with loader, iter(loader) as batches:
        next(batches)
        before = batches.stats()
        for _ in range(30):
            next(batches)
            time.sleep(consumer_s)
        return since(before, batches.stats())


@pytest.mark.parametrize(("step", "kind"), [(wait, "waiting"), (compute, "computing")])
def test_a_slow_step_is_named_and_gets_more_actors(step: Any, kind: str):
    explanation = explained(step)

    assert explanation.bottleneck is not None
    assert (explanation.bottleneck.kind, explanation.bottleneck.step) == (
        kind,
        f"Map {step.__name__}",
    )
    actions = [change.action for change in explanation.changes]
    assert any("worker_count=8` and as many cores in the cluster" in one for one in actions)


def test_a_slow_consumer_is_named_and_the_network_is_not():
    stats = stats_of(abs, consumer_s=0.2)
    bottleneck = explain_stats(stats).bottleneck

    assert bottleneck is not None
    assert bottleneck.kind == "consumer"
    (worker,) = stats.workers
    assert worker.network_wait_s < stats.elapsed_s / 2
    assert worker.output_bytes > 0
