"""A pool starts workers, waits for their messages, and can be closed from any thread."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.pools.job import Job, pickle_jobs, write_payload
from gristmill._engine.executors.processes.pool import ProcessPool
from gristmill._metrics.counters import Counters
from gristmill.options import ReadOptions, WorkerOptions
from tests.faults.processes import num_descriptors, until, workers_of
from tests.time_limits import PATIENCE_S

MakePool = Callable[..., ProcessPool]


@pytest.fixture
def make_pool(make_cut: Callable[..., Cut]) -> Iterator[MakePool]:
    """Return a function that makes a pool; they end after the test."""
    made: list[ProcessPool] = []

    def make(*operations: Any, **options: Any) -> ProcessPool:
        settings = WorkerOptions(**options)
        jobs = [Job(make_cut(range(100), *operations), ReadOptions(num_threads=0))]
        payload = write_payload(pickle_jobs(settings.worker_init_fn, jobs))
        pool = ProcessPool(payload, "key", num_workers=2, options=settings)
        pool.begin_session(jobs, Counters())
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.close()
        pool.dispose()


def wait_in_thread(pool: ProcessPool) -> threading.Thread:
    thread = threading.Thread(target=pool.wait)
    thread.start()
    return thread


def test_wake_ends_a_wait_in_another_thread(make_pool: MakePool):
    pool = make_pool()
    thread = wait_in_thread(pool)

    pool.wake()

    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_wake_before_the_wait_is_not_lost(make_pool: MakePool):
    pool = make_pool()
    pool.wake()

    thread = wait_in_thread(pool)

    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_close_ends_a_wait_in_another_thread(make_pool: MakePool):
    pool = make_pool()
    thread = wait_in_thread(pool)

    pool.close()

    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert not pool.is_usable


def test_a_failure_is_returned_once(make_pool: MakePool):
    def fail(number: int, num_workers: int) -> None:
        raise ValueError("no device")

    pool = make_pool(worker_init_fn=fail)
    pool.start()
    until(lambda: pool.is_ready, "it has failed")
    assert not pool.is_usable

    failure = pool.take_failure()

    assert isinstance(failure, ValueError)
    assert str(failure) == "no device"
    assert pool.take_failure() is None


def test_idle_workers_return_their_memory(make_pool: MakePool):
    pool = make_pool(lambda x: np.full(100_000, x))
    pool.start()
    task = pool.scheduler.submit(range(2), job=0)
    pool.assign(max_per_worker=1)
    while not task.is_done:
        pool.wait(PATIENCE_S)
        pool.assign(max_per_worker=1)
    del task
    pool.end_session()
    assert pool.shared_bytes >= 1_600_000

    pool.trim_memory(PATIENCE_S)

    assert pool.shared_bytes == 0


def test_closed_and_disposed_a_pool_leaves_nothing(make_pool: MakePool):
    other = make_pool()
    other.start()
    until(lambda: other.is_ready, "its workers have started")
    before, descriptors = set(workers_of(os.getpid())), num_descriptors(os.getpid())
    pool = make_pool()
    pool.start()

    pool.close()
    pool.dispose()
    pool.dispose()

    until(lambda: set(workers_of(os.getpid())) <= before, "the workers are gone")
    assert num_descriptors(os.getpid()) == descriptors
