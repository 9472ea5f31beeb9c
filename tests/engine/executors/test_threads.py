"""Ranges computed in threads: at the same time, given back in order, and ended when asked to."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gristmill._base.threads.background import Background
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage
from gristmill._engine.executors import threads as _threads
from gristmill._engine.executors.threads import ThreadExecutor
from gristmill._engine.tuning.measure import has_mostly_waited
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill._metrics.timeline import UNFINISHED
from gristmill.errors import ClosedError
from tests.time_limits import PATIENCE_S

Read = Callable[[range], BlockResult]


def block_of(positions: range, rows: list[Any] | None = None) -> Block:
    track = DenseLineage.of_records(positions, num_flat_maps=0)
    return Block(list(positions) if rows is None else rows, track)


def read_at_once(positions: range) -> BlockResult:
    return BlockResult(block_of(positions))


@pytest.fixture
def open_executor() -> Iterator[Callable[..., ThreadExecutor]]:
    """Yield a function that opens an executor; after the test its threads must be gone."""
    before = set(threading.enumerate())
    opened: list[ThreadExecutor] = []

    def open_one(read: Read, num_threads: int, most_ahead: int = 500) -> ThreadExecutor:
        executor = ThreadExecutor(read, most_positions_ahead=most_ahead, policy=DEFAULT_POLICY)
        executor.resize(num_threads)
        opened.append(executor)
        return executor

    yield open_one
    for executor in opened:
        executor.close()
    for thread in {one for one in own_threads() if one not in before}:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


OpenExecutor = Callable[..., ThreadExecutor]


def own_threads() -> list[threading.Thread]:
    running = [one for one in threading.enumerate() if isinstance(one, Background)]
    return [one for one in running if one.role.startswith("gristmill-read")]


def collect(executor: ThreadExecutor) -> list[Any]:
    outcome = executor.collect(has_more=False)
    assert outcome is not None
    return outcome.block.rows()


def fill(executor: ThreadExecutor, first: int = 0, size: int = 1) -> int:
    """Submit ranges as long as there is room; return how many."""
    count = 0
    while executor.has_room:
        executor.submit(range(first + count * size, first + (count + 1) * size))
        count += 1
    return count


@pytest.mark.parametrize("num_threads", [1, 2, 3, 16])
def test_ranges_come_back_in_the_order_they_were_submitted(
    open_executor: OpenExecutor, num_threads: int
):
    executor = open_executor(read_at_once, num_threads)
    for first in range(0, 300, 3):
        executor.submit(range(first, first + 3))

    rows = [row for _ in range(100) for row in collect(executor)]

    assert rows == list(range(300))


def test_a_range_that_is_done_early_waits_for_its_turn(open_executor: OpenExecutor):
    may_go_on, second_is_done = threading.Event(), threading.Event()

    def read(positions: range) -> BlockResult:
        if positions.start == 0:
            assert may_go_on.wait(PATIENCE_S)
        else:
            second_is_done.set()
        return read_at_once(positions)

    executor = open_executor(read, 2)
    executor.submit(range(1))
    executor.submit(range(1, 2))
    assert second_is_done.wait(PATIENCE_S)
    may_go_on.set()

    assert [collect(executor), collect(executor)] == [[0], [1]]


@pytest.mark.parametrize("num_threads", [2, 7, 16])
def test_as_many_ranges_are_computed_at_a_time_as_there_are_threads(
    open_executor: OpenExecutor, num_threads: int
):
    everybody = threading.Barrier(num_threads)  # opens when that many are in it together

    def read(positions: range) -> BlockResult:
        everybody.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, num_threads)
    for first in range(2 * num_threads):
        executor.submit(range(first, first + 1))

    assert [collect(executor) for _ in range(2 * num_threads)] == [
        [first] for first in range(2 * num_threads)
    ]


def test_with_one_thread_it_is_the_callers(open_executor: OpenExecutor):
    readers: list[threading.Thread] = []

    def read(positions: range) -> BlockResult:
        readers.append(threading.current_thread())
        return read_at_once(positions)

    executor = open_executor(read, 1)
    assert fill(executor) == 1
    assert readers == []

    assert collect(executor) == [0]
    assert readers == [threading.current_thread()]
    assert own_threads() == []


def test_no_thread_is_started_before_there_is_work(open_executor: OpenExecutor):
    executor = open_executor(read_at_once, 8)
    assert own_threads() == []

    executor.submit(range(1))

    assert len(own_threads()) == 8
    assert collect(executor) == [0]


def test_two_ranges_for_each_thread_are_taken_on_at_most(open_executor: OpenExecutor):
    gate = threading.Event()

    def read(positions: range) -> BlockResult:
        assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 3)

    assert fill(executor) == 6
    gate.set()


@pytest.mark.parametrize(("size", "expected"), [(1, 5), (2, 3), (100, 1)])
def test_no_more_positions_are_ahead_than_asked_for(
    open_executor: OpenExecutor, size: int, expected: int
):
    executor = open_executor(read_at_once, 16, most_ahead=5)

    assert fill(executor, size=size) == expected  # the one that reaches the limit is the last
    assert collect(executor) == list(range(size))
    assert executor.has_room


def test_when_others_get_done_before_the_first_there_is_room_for_more(
    open_executor: OpenExecutor,
):
    gate = threading.Event()

    def read(positions: range) -> BlockResult:
        if positions.start == 0:
            assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 2)
    submitted = fill(executor)
    while submitted < 100:  # all of them pass by the first, which is still at it
        assert executor.collect(has_more=True) is None
        submitted += fill(executor, first=submitted)
    gate.set()

    assert [collect(executor)[0] for _ in range(submitted)] == list(range(submitted))


def test_an_error_takes_its_place_in_the_order(open_executor: OpenExecutor):
    def read(positions: range) -> BlockResult:
        if positions.start == 1:
            return BlockResult(Block.empty(), ValueError("one"))
        if positions.start == 2:
            raise SystemExit(3)  # not even this goes by unnoticed
        return read_at_once(positions)

    executor = open_executor(read, 4)
    for first in range(4):
        executor.submit(range(first, first + 1))

    outcomes = [executor.collect(has_more=False) for _ in range(4)]
    errors = [outcome and outcome.error for outcome in outcomes]
    assert [type(error) for error in errors] == [type(None), ValueError, SystemExit, type(None)]


def test_what_was_collected_is_held_by_nobody(open_executor: OpenExecutor):
    class Row:
        pass

    last = threading.Event()

    def read(positions: range) -> BlockResult:
        if positions.start == 199:
            last.set()
        return BlockResult(block_of(positions, [Row()]))

    executor = open_executor(read, 2)
    for first in range(200):
        executor.submit(range(first, first + 1))
    assert last.wait(PATIENCE_S)  # the threads are ahead of the consumer, as they should be

    rows = [weakref.ref(collect(executor)[0]) for _ in range(200)]

    gc.collect()
    assert sum(row() is not None for row in rows) <= 2


def test_more_and_fewer_threads_may_be_used_at_any_time(open_executor: OpenExecutor):
    executor = open_executor(read_at_once, 4)
    seen: list[int] = []
    submitted = 0
    for num_threads in (4, 1, 8, 2, 1, 16, 3):
        executor.resize(num_threads)
        for _ in range(5):
            submitted += fill(executor, first=submitted)
            seen += collect(executor)
        expected = num_threads if num_threads > 1 else 0
        assert len(executor._threads) == expected
    while len(seen) < submitted:
        seen += collect(executor)

    assert seen == list(range(submitted))


def test_threads_that_are_not_needed_any_more_end(open_executor: OpenExecutor):
    executor = open_executor(read_at_once, 16)
    executor.submit(range(1))
    collect(executor)
    threads = own_threads()
    assert len(threads) == 16

    executor.resize(1)

    for thread in threads:
        thread.join(PATIENCE_S)
    assert own_threads() == []


def test_what_is_cancelled_is_not_begun(open_executor: OpenExecutor):
    gate, begun = threading.Event(), list[int]()
    both_at_work = threading.Barrier(3)

    def read(positions: range) -> BlockResult:
        begun.append(positions.start)
        if positions.start < 2:
            both_at_work.wait(PATIENCE_S)
            assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 2)
    assert fill(executor) == 4
    both_at_work.wait(PATIENCE_S)
    executor.cancel()
    assert executor.has_room
    executor.submit(range(10, 11))
    gate.set()

    assert collect(executor) == [10]
    assert sorted(begun) == [0, 1, 10]


def wait_in_a_thread(executor: ThreadExecutor) -> tuple[threading.Thread, list[BaseException]]:
    """Collect in another thread; return that, and what it will have raised."""
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            executor.collect(has_more=False)
        except BaseException as error:
            raised.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    return waiter, raised


def test_an_interrupt_ends_the_wait_of_another_thread(open_executor: OpenExecutor):
    gate, is_in = threading.Event(), threading.Event()

    def read(positions: range) -> BlockResult:
        is_in.set()
        assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 2)
    executor.submit(range(1))
    waiter, raised = wait_in_a_thread(executor)
    assert is_in.wait(PATIENCE_S)
    executor.interrupt()
    waiter.join(PATIENCE_S)

    assert [type(error) for error in raised] == [ClosedError]
    executor.cancel()
    gate.set()
    executor.submit(range(5, 6))
    assert collect(executor) == [5]  # it continues after it has a position


@pytest.mark.parametrize("end", [ThreadExecutor.interrupt, ThreadExecutor.close])
def test_an_interrupt_just_before_the_wait_ends_it(
    open_executor: OpenExecutor, end: Callable[[ThreadExecutor], None]
):
    gate = threading.Event()

    def read(positions: range) -> BlockResult:
        assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 2)
    executor.submit(range(1))
    end(executor)
    waiter, raised = wait_in_a_thread(executor)
    waiter.join(2.0)

    assert [type(error) for error in raised] == [ClosedError]
    gate.set()


def test_an_interrupt_that_nobody_waits_for_is_forgotten_when_cancelled(
    open_executor: OpenExecutor,
):
    executor = open_executor(read_at_once, 2)
    executor.interrupt()
    executor.cancel()
    executor.submit(range(3))

    assert collect(executor) == [0, 1, 2]


def test_closing_ends_the_threads_and_begins_nothing_more(open_executor: OpenExecutor):
    gate, begun = threading.Event(), list[int]()
    both_at_work = threading.Barrier(3)

    def read(positions: range) -> BlockResult:
        begun.append(positions.start)
        both_at_work.wait(PATIENCE_S)
        assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 2)
    assert fill(executor) == 4
    both_at_work.wait(PATIENCE_S)
    threads = own_threads()

    executor.close()
    executor.close()
    gate.set()

    for thread in threads:
        thread.join(PATIENCE_S)
    assert own_threads() == []
    assert sorted(begun) == [0, 1]


def test_a_thread_that_is_started_while_another_one_closes_ends_too(
    open_executor: OpenExecutor, monkeypatch: pytest.MonkeyPatch
):
    executor = open_executor(read_at_once, 3)
    started: list[Background] = []

    def closed_meanwhile(*arguments: Any, **options: Any) -> Background:
        started.append(thread := Background(*arguments, **options))
        executor.close()  # as the consumer's thread may do, just now
        return thread

    with monkeypatch.context() as patch:
        patch.setattr(_threads, "Background", closed_meanwhile)
        executor.submit(range(1))

    for thread in started:
        thread.join(1.0)
    stuck = [thread for thread in started if thread.is_alive()]
    executor._todo.put(None)
    assert stuck == []


def has_waited(executor: ThreadExecutor) -> bool:
    """Collect a result, and return whether its block mostly waited."""
    result = executor.collect(has_more=False)
    assert result is not None
    assert result.stats is not None
    return has_mostly_waited(result.stats, DEFAULT_POLICY)


@pytest.mark.parametrize("num_threads", [1, 2])
def test_it_measures_whether_a_block_waited(open_executor: OpenExecutor, num_threads: int):
    executor = open_executor(_read_that_waits, num_threads)
    executor.submit(range(1))

    assert has_waited(executor)


def test_computing_in_one_thread_is_not_waiting(open_executor: OpenExecutor):
    executor = open_executor(_read_that_computes, 1)
    seen: list[bool] = []
    for first in range(10):  # on a busy machine another thread may keep it waiting now and then
        executor.submit(range(first, first + 1))
        seen.append(has_waited(executor))

    assert not all(seen)


def test_taking_turns_at_the_interpreter_lock_is_not_waiting(open_executor: OpenExecutor):
    all_at_work = threading.Barrier(4)

    def read(positions: range) -> BlockResult:
        all_at_work.wait(PATIENCE_S)
        return _read_that_computes(positions)

    executor = open_executor(read, 4)
    for first in range(4):
        executor.submit(range(first, first + 1))
    results = [executor.collect(has_more=False) for _ in range(4)]
    stats = [result.stats for result in results if result is not None]

    for num_concurrent, block in enumerate(stats, start=1):
        assert block is not None
        explained_s = num_concurrent * block.cpu_s
        assert block.waited_s == pytest.approx(max(0.0, block.wall_s - explained_s))


def test_it_is_idle_once_cancelled_ranges_that_had_begun_are_done(open_executor: OpenExecutor):
    begun, gate = threading.Barrier(3), threading.Event()

    def read(positions: range) -> BlockResult:
        begun.wait(PATIENCE_S)
        assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, 2)
    assert executor.is_idle
    for first in range(4):
        executor.submit(range(first, first + 1))
    begun.wait(PATIENCE_S)
    executor.cancel()
    assert not executor.is_idle

    threads = own_threads()
    gate.set()
    executor.resize(1)  # the threads end after what they have begun
    for thread in threads:
        thread.join(PATIENCE_S)
    assert executor.is_idle


def _read_that_waits(positions: range) -> BlockResult:
    threading.Event().wait(0.02)  # stands for a disk or a network
    return read_at_once(positions)


def _read_that_computes(positions: range) -> BlockResult:
    sum(number * number for number in range(300_000))
    return read_at_once(positions)


def test_what_threads_have_begun_and_computed_is_pending_until_it_is_collected(
    open_executor: OpenExecutor,
):
    gate, begun = threading.Event(), threading.Semaphore(0)

    def read(positions: range) -> BlockResult:
        begun.release()
        if positions.start:
            assert gate.wait(PATIENCE_S)
        return read_at_once(positions)

    executor = open_executor(read, num_threads=3)
    for start in range(3):
        executor.submit(range(start, start + 1))
    for _ in range(3):
        assert begun.acquire(timeout=PATIENCE_S)
    assert executor.collect(has_more=False) is not None

    running = executor.pending_work()
    assert [work.first_step for work in running] == [UNFINISHED] * 2
    assert len({work.track for work in running}) == 2
    gate.set()
    assert executor.collect(has_more=False) is not None
    assert executor.collect(has_more=False) is not None
    assert executor.pending_work() == []
