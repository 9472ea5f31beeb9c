"""Samples of a run: bounded in number, from its start to now."""

import numpy as np

import gristmill as gm
from gristmill._metrics.history import INTERVAL_S, MAX_SAMPLES, History
from gristmill._metrics.memory import WORKERS, worker_memory
from tests.faults.processes import until


def test_samples_are_taken_when_they_are_due():
    history = History()
    for number in range(10):
        history.add(0.0, number * INTERVAL_S / 4, number, 0.0)

    assert [sample.num_elements for sample in history.samples] == [0, 4, 8]


def test_a_long_run_keeps_a_bounded_number_of_samples_from_start_to_end():
    history = History()
    for number in range(10_000):
        history.add(0.0, number * INTERVAL_S * 1.001, number, 0.0)
        assert len(history.samples) < MAX_SAMPLES

    counts = [sample.num_elements for sample in history.samples]
    assert counts == sorted(counts)
    assert counts[0] < 100
    assert counts[-1] > 9_900
    assert len(counts) > MAX_SAMPLES / 3


def test_samples_contain_the_memory_of_the_process():
    history = History()
    history.add(0.0, 1.0, 1, 0.0)

    assert history.samples[0].memory_bytes == 0 or history.samples[0].memory_bytes > 1_000_000


def allocate(number: int) -> int:
    """Hold 40 MB in a worker, as a decoder with a large table would."""
    HELD.append(np.ones(5_000_000))
    return number


HELD: list[object] = []


def test_samples_contain_the_memory_of_worker_processes():
    with gm.load(range(4), num_epochs=2, transformations=[allocate], worker_count=1) as loader:
        assert len(list(loader)) == 8
        list(loader)
        sample = loader.stats().recent[-1]
    assert sample.worker_memory_bytes == 0 or sample.worker_memory_bytes > 40_000_000
    until(lambda: not WORKERS, "the workers have ended")


def test_workers_that_have_ended_are_not_counted():
    assert worker_memory([2**22 + 7]) == 0
