"""`explain` of loaders, iterators and feeds, with bottlenecks that were planted."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill._metrics.explanation import explain_stats
from tests.metrics.test_bottleneck_of_runs import (
    EXECUTORS,
    SLOW_S,
    Executor,
    Records,
    run,
    slow_python,
)

THREADS = EXECUTORS[1]
FIXED = [EXECUTORS[0], THREADS, EXECUTORS[4]]


@pytest.fixture(params=FIXED, ids=lambda executor: executor.name)
def executor(request: pytest.FixtureRequest) -> Executor:
    return request.param


def test_reads_that_wait_get_more_threads(executor: Executor):
    stats = run(executor, np.negative, gm.Batch(2), source=Records(sleep_s=SLOW_S))

    explanation = explain_stats(stats, num_cores=2)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "waiting"
    threads, *_ = [one for one in explanation.changes if "ReadOptions(num_threads=" in one.action]
    assert threads.action.startswith("With `read_options=")
    assert threads.speedup > 1.1


def test_a_map_in_python_gets_workers(executor: Executor):
    stats = run(executor, slow_python, gm.Batch(2))

    explanation = explain_stats(stats, num_cores=8)

    assert explanation.bottleneck is not None
    assert explanation.bottleneck.step == "Map slow_python"
    assert explanation.changes[0].action.startswith("With `worker_count=")
    assert explanation.changes[0].speedup > 1.1
    assert "If 'Map slow_python' took no time" in str(explanation)


def test_a_consumer_is_the_bottleneck(executor: Executor):
    stats = run(executor, gm.Batch(2), consumer_s=SLOW_S)

    assert str(explain_stats(stats)).splitlines()[1].startswith("Bottleneck (consumer)")


class Same(gm.DatasetIterator[Any]):
    """Returns one batch again and again, which takes no time but must be converted for JAX."""

    def __init__(self) -> None:
        super().__init__()
        self._batch = np.ones((64, 50_000))
        self._num_left = 20

    def __next__(self) -> Any:
        if not self._num_left:
            raise StopIteration
        self._num_left -= 1
        return self._batch

    def get_state(self) -> Any:
        return {"left": self._num_left}

    def set_state(self, state: Any) -> None:
        self._num_left = state["left"]


def test_placing_batches_is_the_bottleneck_of_a_feed():
    with gm.feed(Same()) as batches:
        list(batches)  # placed in a thread, which this one only waits for
        explanation = batches.explain()

    assert explanation.stats.place_s > 0
    assert explanation.stats.host_wait_s == 0
    assert explanation.bottleneck is not None
    assert explanation.bottleneck.kind == "device"


def loader(num_records: int = 12) -> gm.DataLoader:
    return gm.load(range(num_records), num_epochs=1, batch_size=4)


def iterators() -> Iterator[Any]:
    yield iter(loader())
    yield iter(gm.MapDataset.range(12).batch(4))
    yield iter(gm.MapDataset.range(12).to_iter_dataset().batch(4))
    yield gm.feed(loader())
    yield gm.feed(gm.MapDataset.range(12).batch(4))


def test_a_training_step_is_measured_with_the_next_batch_which_is_not_lost():
    for iterator in iterators():
        with iterator:
            next(iterator)
            seen: list[Any] = []
            explanation = iterator.explain(headspace=seen.append, num_steps=3)

            assert [np.asarray(batch).tolist() for batch in seen] == [[4, 5, 6, 7]] * 4
            assert explanation.stats.num_elements == 1
            assert explanation.headspace is not None
            assert explanation.headspace.num_steps == 3
            assert np.asarray(next(iterator)).tolist() == [4, 5, 6, 7]


def test_a_dataset_measures_with_its_last_element():
    seen: list[Any] = []
    explanation = gm.MapDataset.range(12).batch(4).explain(headspace=seen.append, num_steps=2)

    assert [batch.tolist() for batch in seen] == [[8, 9, 10, 11]] * 3
    assert explanation.headspace is not None
    assert explanation.stats.num_elements == 3


def test_a_dataset_without_elements_has_no_headspace():
    with pytest.raises(gm.errors.PlanError, match="needs an element, and the dataset has none"):
        gm.MapDataset.range(0).explain(headspace=print)


def test_the_headspace_of_a_dataset_is_a_function():
    step: Any = 3
    with pytest.raises(gm.errors.PlanTypeError, match="must be a function of a batch, got 3"):
        gm.MapDataset.range(4).explain(headspace=step)


def test_a_loader_measures_with_its_first_batch():
    seen: list[Any] = []
    explanation = loader().explain(headspace=seen.append, num_steps=1)

    assert [batch.tolist() for batch in seen] == [[0, 1, 2, 3]] * 2
    assert explanation.stats.num_elements == 0


def test_a_step_that_raises_does_not_lose_the_batch():
    with iter(loader()) as iterator:
        with pytest.raises(ZeroDivisionError):
            iterator.explain(headspace=lambda batch: 1 // 0)
        assert next(iterator).tolist() == [0, 1, 2, 3]


def test_settings_of_a_feed_are_those_of_its_source():
    stats = gm.Stats(
        num_elements=8,
        elapsed_s=10.0,
        waited_s=8.0,
        busy_s=8.0,
        steps=(gm.StepStats(name="Map f", elapsed_s=8.0, cpu_s=8.0),),
    )

    class Planted(gm.DatasetIterator[Any]):
        """An iterator of the user's."""

        def __next__(self) -> Any:
            raise StopIteration

        def get_state(self) -> Any:
            return {}

        def set_state(self, state: Any) -> None:
            pass

        def stats(self) -> gm.Stats:
            return stats

    assert "mp_prefetch" in str(Planted().explain())
    assert Planted(Planted()).explain().stats == stats
    assert gm.DatasetIterator.stats(Planted()) == gm.Stats()


def test_the_argument_must_be_a_function():
    with iter(loader()) as iterator:
        step: Any = 3
        with pytest.raises(gm.errors.PlanTypeError, match="`headspace` must be a function of a ba"):
            iterator.explain(headspace=step)
        with pytest.raises(gm.errors.PlanError, match="`num_steps` must be at least 1, got 0"):
            iterator.explain(headspace=len, num_steps=0)


def test_a_batch_is_needed():
    with iter(loader(4)) as iterator:
        next(iterator)
        with pytest.raises(gm.errors.PlanError, match="needs a batch, and the iterator has none"):
            iterator.explain(headspace=len)


def test_a_dataset_is_run_for_some_seconds_and_explained():
    endless = gm.MapDataset.range(100).repeat().to_iter_dataset(gm.ReadOptions(num_threads=0))
    explanation = endless.map(slow_python).batch(2).explain(max_s=0.2)

    assert explanation.stats.num_elements > 0
    assert explanation.bottleneck is not None
    assert explanation.bottleneck.step == "Map slow_python"


def test_a_finite_dataset_is_run_to_its_end():
    assert gm.MapDataset.range(6).map(abs).batch(2).explain(max_s=60).stats.num_elements == 3


def test_the_time_for_a_dataset_is_checked():
    with pytest.raises(gm.errors.PlanError, match="`max_s` must be greater than 0 seconds, got 0"):
        gm.MapDataset.range(4).explain(max_s=0)
