"""What `stats()` of a loader and of its iterators report of real runs."""

import gc
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import gristmill as gm
from tests.faults.processes import until
from tests.policies import EAGER, with_policy

cloudpickle.register_pickle_by_value(sys.modules[__name__])

RUNS: dict[str, dict[str, Any]] = {
    "inline": {"read_options": gm.ReadOptions(num_threads=0)},
    "ahead": {"read_options": gm.ReadOptions(num_threads=1)},
    "processes": {"worker_count": 2},
}


@pytest.fixture(params=RUNS)
def arguments(request: pytest.FixtureRequest) -> dict[str, Any]:
    return RUNS[request.param]


def loader_of(source: Any, *operations: Any, **arguments: Any) -> gm.DataLoader:
    """Return a loader that prefetches in a thread from the start on, if it may."""
    sampler = gm.IndexSampler(len(source), num_epochs=1, seed=0)
    loader = gm.DataLoader(data_source=source, sampler=sampler, operations=operations, **arguments)
    return with_policy(loader, EAGER)


def double(number: int) -> int:
    return 2 * number


def test_elements_and_bytes_are_counted(arguments: dict[str, Any]):
    loader = loader_of(range(1000), double, gm.Batch(10), **arguments)

    with iter(loader) as iterator:
        for _ in iterator:
            pass
        stats = iterator.stats()

    assert stats.num_elements == 100
    assert stats.output_bytes == 8000
    assert loader.stats().num_elements == 100


@pytest.mark.parametrize("taken", [0, 1, 2, 17, 40])
def test_elements_are_those_that_were_handed_out(arguments: dict[str, Any], taken: int):
    with iter(loader_of(range(40), double, **arguments)) as iterator:
        for _ in range(taken):
            next(iterator)

        assert iterator.stats().num_elements == taken


def test_elements_that_were_not_taken_before_a_change_of_place_do_not_count(
    arguments: dict[str, Any],
):
    with iter(loader_of(range(40), **arguments)) as iterator:
        start = iterator.get_state()
        for _ in range(5):
            next(iterator)
        iterator.set_state(start)

        assert len(list(iterator)) == 40
        assert iterator.stats().num_elements == 45


def test_a_loader_counts_an_iterator_once_also_after_a_change_of_place():
    loader = loader_of(range(40))
    with iter(loader) as iterator:
        start = iterator.get_state()
        next(iterator)
        iterator.set_state(start)
        next(iterator)

        assert loader.stats().num_elements == iterator.stats().num_elements == 2


def test_steps_are_named_from_the_source_up(arguments: dict[str, Any]):
    operations = [double, lambda x: x, gm.Batch(5), np.negative]
    with iter(loader_of(range(100), *operations, **arguments)) as iterator:
        names = [step.name for step in iterator.stats().steps]
        for _ in iterator:
            pass
        steps = iterator.stats().steps

    assert names == [step.name for step in steps]
    assert names == [
        "reading range(0, 100)",
        "Map double",
        "Map <lambda>",
        "Batch(5)",
        "Map negative",
    ]
    assert all(step.elapsed_s > 0 for step in steps)


class Pause(gm.Map):
    """Stands for a slow step."""

    def map(self, element: int) -> int:
        threading.Event().wait(0.01)
        return element


def test_the_slow_step_is_seen(arguments: dict[str, Any]):
    with iter(loader_of(range(20), double, Pause(), gm.Batch(2), **arguments)) as iterator:
        for _ in iterator:
            pass
        steps = iterator.stats().steps

    slow = max(steps, key=lambda step: step.elapsed_s)
    assert slow.name.startswith("Map")
    assert "Pause" in slow.name
    assert slow.elapsed_s >= 0.2
    assert sum(step.elapsed_s for step in steps if step is not slow) < 0.1


def test_who_waits_for_data_sees_it():
    with iter(loader_of(range(10), Pause(), **RUNS["inline"])) as iterator:
        for _ in iterator:
            pass
        stats = iterator.stats()

    assert 0.1 <= stats.waited_s <= stats.elapsed_s
    assert stats.waited_share > 0.9


def test_who_is_busy_does_not_wait():
    with iter(loader_of(range(10), **RUNS["inline"])) as iterator:
        for _ in iterator:
            threading.Event().wait(0.01)
        stats = iterator.stats()

    assert stats.elapsed_s > 0.02
    assert stats.waited_share < 0.5


def test_the_executor_is_reported():
    found = {}
    for name, arguments in RUNS.items():
        with iter(loader_of(range(10), **arguments)) as iterator:
            next(iterator)
            stats = iterator.stats()
            found[name] = stats.executor, stats.num_workers, stats.num_threads
    assert found == {
        "inline": ("inline", 0, 0),
        "ahead": ("inline", 0, 0),
        "processes": ("processes", 2, 0),
    }


def test_the_loader_adds_up_its_iterators_also_those_that_are_gone(arguments: dict[str, Any]):
    loader = loader_of(range(30), double, **arguments)
    for _ in range(3):
        assert len(list(loader)) == 30
    gc.collect()
    assert loader.stats().num_elements == 90

    with iter(loader) as iterator:
        assert len(list(iterator)) == 30
        assert loader.stats().num_elements == 120
        assert iterator.stats().num_elements == 30
        assert sum(step.elapsed_s for step in loader.stats().steps) > sum(
            step.elapsed_s for step in iterator.stats().steps
        )


def test_a_loop_that_is_left_counts_what_it_took():
    loader = loader_of(range(1000), **RUNS["inline"])
    for _ in range(10):
        for number in loader:
            if number == 4:
                break
    gc.collect()

    assert loader.stats().num_elements == 50


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Return a file that exists once a worker has killed itself."""
    return tmp_path / "killed"


def test_workers_that_die_are_counted(victim: Path):
    def die_once(number: int) -> int:
        if number == 13 and not victim.exists():
            victim.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    loader = loader_of(range(100_000), die_once, worker_count=2)
    with iter(loader) as iterator:
        assert list(iterator) == list(range(100_000))
        assert iterator.stats().num_restarts == 1
    assert loader.stats().num_restarts == 1


def test_shared_memory_and_buffers_are_reported_while_they_are_there():
    source = gm.ArraySource(np.zeros((40, 200_000)))
    with iter(loader_of(source, gm.Batch(2), worker_count=2)) as iterator:
        batches = [next(iterator) for _ in range(5)]
        stats = iterator.stats()

        assert stats.shared_memory_bytes >= sum(batch.nbytes for batch in batches)
        assert 1 <= stats.num_blocks_ready + stats.num_blocks_in_flight <= 200


def test_shared_memory_that_idle_workers_have_returned_is_not_counted():
    source = gm.ArraySource(np.zeros((40, 200_000)))
    loader = loader_of(source, gm.Batch(2), worker_count=2)
    iterator = iter(loader)
    for _ in range(20):
        assert next(iterator).nbytes <= iterator.stats().shared_memory_bytes
    iterator.close()

    until(lambda: not loader.stats().shared_memory_bytes, "the memory is returned")
    assert iterator.stats().shared_memory_bytes == 0
    loader.close()
    assert loader.stats().num_elements == 20


def test_skipped_records_are_counted_once():
    def fail(number: int) -> int:
        if number % 10 == 3:
            raise ValueError(number)
        return number

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logging.getLogger("gristmill"), "disabled", True)
        loader = loader_of(range(50), fail, gm.Batch(30), on_error=gm.SkipErrors(4))
        with iter(loader) as iterator:
            assert next(iterator)[-1] == 32
            for _ in range(3):  # the fifth is one too many; the fourth is met time after time
                with pytest.raises(ValueError, match="43"):
                    next(iterator)
            assert iterator.stats().num_skipped in (3, 4)


def test_a_loader_can_be_sent_to_another_process_with_its_numbers_at_zero():
    loader = loader_of(range(10), **RUNS["inline"])
    assert len(list(loader)) == 10

    copy = cloudpickle.loads(cloudpickle.dumps(loader))

    assert copy.stats().num_elements == 0
    assert len(list(copy)) == 10
    assert copy.stats().num_elements == 10
    assert loader.stats().num_elements == 10
