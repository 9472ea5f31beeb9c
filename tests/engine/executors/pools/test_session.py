"""A session shares a pool among streams that run side by side, and ends with the last of them."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.pools.executor import PooledExecutor
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.executors.pools.session import PoolSession
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._metrics.counters import Counters
from gristmill.options import ReadOptions, WorkerOptions
from tests.faults.processes import num_descriptors, until, workers_of

MakeCut = Callable[..., Cut]
OpenStream = Callable[..., PooledExecutor]


@pytest.fixture
def keeper() -> Iterator[PoolKeeper]:
    keeper = PoolKeeper()
    yield keeper
    keeper.close()


@pytest.fixture
def session(keeper: PoolKeeper) -> PoolSession:
    return new_session(keeper)


def new_session(keeper: PoolKeeper, **options: Any) -> PoolSession:
    return PoolSession(keeper, num_workers=2, options=WorkerOptions(**options), counters=Counters())


@pytest.fixture
def open_stream(session: PoolSession, make_cut: MakeCut) -> Iterator[OpenStream]:
    """Return a function that adds a stream to the session; they are closed after the test."""
    opened: list[PooledExecutor] = []

    def open_one(*operations: Any) -> PooledExecutor:
        executor = PooledExecutor(
            make_cut(range(100), *operations),
            session,
            buffer_size=1,
            read=ReadOptions(num_threads=0),
            policy=DEFAULT_POLICY,
        )
        opened.append(executor)
        return executor

    yield open_one
    for end in (PooledExecutor.close, PooledExecutor.dispose):
        for executor in opened:
            end(executor)


def collect(executor: PooledExecutor) -> list[Any]:
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
    until(lambda: len(set(workers_of(os.getpid())) - before) == 2, "both workers run")


def test_each_stream_keeps_its_share_of_the_workers_busy(open_stream: OpenStream):
    def num_submitted(executor: PooledExecutor) -> int:
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


def test_the_pool_is_returned_with_the_last_stream(
    keeper: PoolKeeper, session: PoolSession, open_stream: OpenStream
):
    before = set(workers_of(os.getpid()))
    first, second = open_stream(), open_stream()
    first.submit(range(10))
    assert collect(first) == list(range(10))

    first.close()
    first.dispose()
    until(lambda: len(set(workers_of(os.getpid())) - before) == 2, "both workers run")
    second.submit(range(10))
    assert collect(second) == list(range(10))
    second.close()
    second.dispose()
    keeper.retire()
    assert set(workers_of(os.getpid())) <= before


def test_no_stream_is_added_once_the_plans_were_sent(session: PoolSession, open_stream: OpenStream):
    assert session.accepts_streams
    stream = open_stream()
    assert session.accepts_streams

    stream.submit(range(10))

    assert not session.accepts_streams


def test_no_stream_is_added_after_one_was_closed(session: PoolSession, open_stream: OpenStream):
    open_stream().close()

    assert not session.accepts_streams


def test_a_session_without_tasks_holds_no_descriptor(keeper: PoolKeeper, open_stream: OpenStream):
    before = num_descriptors(os.getpid())
    sessions = [new_session(keeper) for _ in range(10)]
    open_stream()

    assert num_descriptors(os.getpid()) == before
    assert len(sessions) == 10


def test_a_session_that_had_no_task_ends_without_workers(open_stream: OpenStream):
    before = set(workers_of(os.getpid()))
    stream = open_stream()

    stream.close()
    stream.dispose()

    assert set(workers_of(os.getpid())) <= before


def test_the_next_session_does_not_get_the_replies_of_the_last(
    keeper: PoolKeeper, make_cut: MakeCut
):
    cut = make_cut(range(100))
    before = set(workers_of(os.getpid()))
    workers: list[set[int]] = []
    for first in (0, 50, 20):
        executor = PooledExecutor(
            cut,
            new_session(keeper),
            buffer_size=1,
            read=ReadOptions(num_threads=0),
            policy=DEFAULT_POLICY,
        )
        for number in range(first, first + 40, 10):
            executor.submit(range(number, number + 10))
        assert collect(executor) == list(range(first, first + 10))  # three more are not collected
        until(lambda: len(set(workers_of(os.getpid())) - before) == 2, "both workers run")
        workers.append(set(workers_of(os.getpid())) - before)
        executor.close()
        executor.dispose()

    assert workers[0] == workers[1] == workers[2]


def test_a_failure_ends_the_pool(keeper: PoolKeeper, make_cut: MakeCut):
    def fail(number: int, num_workers: int) -> None:
        raise ValueError("no device")

    for _ in range(2):
        session = new_session(keeper, worker_init_fn=fail)
        executor = PooledExecutor(
            make_cut(range(5)), session, buffer_size=1, read=ReadOptions(), policy=DEFAULT_POLICY
        )
        executor.submit(range(5))

        result = executor.collect(has_more=False)

        assert result is not None
        assert str(result.error) == "no device"
        executor.close()
        executor.dispose()
