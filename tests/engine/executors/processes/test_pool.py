"""A pool is shared by streams that run side by side, and ends with the last of them."""

import os
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.processes.executor import ProcessExecutor
from gristmill._engine.executors.processes.pool import WorkerPool
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._metrics.counters import Counters
from gristmill.options import ReadOptions, WorkerOptions
from tests.faults.processes import num_descriptors, workers_of

MakeCut = Callable[..., Cut]
OpenStream = Callable[..., ProcessExecutor]


@pytest.fixture
def pool() -> WorkerPool:
    return WorkerPool(num_workers=2, options=WorkerOptions(), counters=Counters())


@pytest.fixture
def open_stream(pool: WorkerPool, make_cut: MakeCut) -> Iterator[OpenStream]:
    """Return a function that adds a stream to the pool; they are closed after the test."""
    opened: list[ProcessExecutor] = []

    def open_one(*operations: Any) -> ProcessExecutor:
        executor = ProcessExecutor(
            make_cut(range(100), *operations),
            pool,
            buffer_size=1,
            read=ReadOptions(num_threads=0),
            policy=DEFAULT_POLICY,
        )
        opened.append(executor)
        return executor

    yield open_one
    for end in (ProcessExecutor.close, ProcessExecutor.dispose):
        for executor in opened:
            end(executor)


def collect(executor: ProcessExecutor) -> list[Any]:
    result = executor.collect(has_more=False)
    assert result is not None
    assert result.error is None
    return result.block.rows()


def test_streams_that_run_side_by_side_share_the_workers(open_stream: OpenStream):
    before = set(workers_of(os.getpid()))
    plain, doubled = open_stream(), open_stream(lambda x: 2 * x)
    for first in (0, 10, 20):
        plain.submit(range(first, first + 10))
        doubled.submit(range(first, first + 10))

    assert [collect(doubled) for _ in range(3)] == [
        list(range(2 * first, 2 * first + 20, 2)) for first in (0, 10, 20)
    ]
    assert [collect(plain) for _ in range(3)] == [
        list(range(first, first + 10)) for first in (0, 10, 20)
    ]
    assert len(set(workers_of(os.getpid())) - before) == 2


def test_each_stream_keeps_its_share_of_the_workers_busy(open_stream: OpenStream):
    def num_submitted(executor: ProcessExecutor) -> int:
        count = 0
        while executor.has_room:
            executor.submit(range(10 * count, 10 * count + 10))
            count += 1
        return count

    first, second = open_stream(), open_stream()

    assert (num_submitted(first), num_submitted(second)) == (4, 4)
    first.cancel()
    assert collect(second) == list(range(10))


def test_what_one_stream_cancels_is_computed_for_the_other(open_stream: OpenStream):
    first, second = open_stream(), open_stream()
    first.submit(range(10))
    second.submit(range(10, 20))
    first.submit(range(20, 30))
    second.submit(range(30, 40))

    first.cancel()

    assert [collect(second), collect(second)] == [list(range(10, 20)), list(range(30, 40))]


def test_the_workers_end_with_the_last_stream(open_stream: OpenStream):
    before = set(workers_of(os.getpid()))
    first, second = open_stream(), open_stream()
    first.submit(range(10))
    assert collect(first) == list(range(10))

    first.close()
    assert len(set(workers_of(os.getpid())) - before) == 2
    second.submit(range(10))
    assert collect(second) == list(range(10))
    second.close()
    assert set(workers_of(os.getpid())) <= before


def test_no_stream_is_added_once_the_plans_were_sent(pool: WorkerPool, open_stream: OpenStream):
    assert pool.accepts_streams
    stream = open_stream()
    assert pool.accepts_streams

    stream.submit(range(10))

    assert not pool.accepts_streams


def test_a_pool_without_a_stream_holds_no_descriptor():
    before = num_descriptors(os.getpid())
    pools = [
        WorkerPool(num_workers=2, options=WorkerOptions(), counters=Counters()) for _ in range(10)
    ]

    assert num_descriptors(os.getpid()) == before
    assert len(pools) == 10


def test_wake_ends_a_wait_in_another_thread(pool: WorkerPool, open_stream: OpenStream):
    open_stream()
    thread = threading.Thread(target=pool.wait)
    thread.start()

    pool.wake()

    thread.join(20)
    assert not thread.is_alive()


def test_a_wake_before_the_wait_is_not_lost(pool: WorkerPool, open_stream: OpenStream):
    open_stream()
    pool.wake()

    thread = threading.Thread(target=pool.wait)
    thread.start()

    thread.join(20)
    assert not thread.is_alive()


def test_a_failure_is_returned_once(pool: WorkerPool, make_cut: MakeCut):
    def fail(number: int, num_workers: int) -> None:
        raise ValueError("no device")

    pool = WorkerPool(
        num_workers=1, options=WorkerOptions(worker_init_fn=fail), counters=Counters()
    )
    executor = ProcessExecutor(
        make_cut(range(5)), pool, buffer_size=1, read=ReadOptions(), policy=DEFAULT_POLICY
    )
    executor.start()
    assert executor.wait_until_ready(20.0)

    failure = executor.take_failure()

    assert isinstance(failure, ValueError)
    assert str(failure) == "no device"
    assert executor.take_failure() is None
    executor.close()
    executor.dispose()
