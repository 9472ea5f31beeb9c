"""A pool is kept between iterators, and used again only for exactly the plan that it has loaded."""

import gc
import os
import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.pools.job import Job
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.executors.processes.pool import ProcessPool
from gristmill._engine.executors.serialization.packed_list import MIN_MAPPED_RECORDS
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters
from gristmill.options import ReadOptions, WorkerOptions
from tests.faults.processes import gone, kill_quietly, num_descriptors, until, workers_of
from tests.time_limits import PATIENCE_S

Take = Callable[..., ProcessPool]


@pytest.fixture(autouse=True)
def _only_what_this_test_starts() -> None:
    gc.collect()
    _of_others.clear()
    _of_others.update(workers_of(os.getpid()))
    _other_threads[:] = threading.enumerate()


TRIM_AFTER_S = 0.01


@pytest.fixture
def keeper() -> Iterator[PoolKeeper]:
    keeper = PoolKeeper(TuningPolicy(trim_after_s=TRIM_AFTER_S))
    yield keeper
    keeper.close()


@pytest.fixture
def take(keeper: PoolKeeper, make_cut: Callable[..., Cut]) -> Iterator[Take]:
    """Return a function that takes a pool of two started workers for a plan over a source."""
    taken: list[ProcessPool] = []

    def take_one(
        source: Any, *operations: Any, num_workers: int = 2, **options: Any
    ) -> ProcessPool:
        jobs = [Job(make_cut(source, *operations), ReadOptions())]
        pool = keeper.take(jobs, num_workers=num_workers, options=WorkerOptions(**options))
        assert isinstance(pool, ProcessPool)
        pool.begin_session(jobs, Counters())
        pool.start()
        until(lambda: pool.is_ready, "the workers have started")
        taken.append(pool)
        return pool

    yield take_one
    for pool in taken:
        if pool in keeper._in_use.as_list():
            keeper.put_back(pool)


_of_others: set[int] = set()
_other_threads: list[threading.Thread] = []
"""What earlier tests in this process left."""


def mine() -> set[int]:
    return set(workers_of(os.getpid())) - _of_others


def idle_threads() -> list[threading.Thread]:
    """Return the threads of pools that are idle, apart from those of other tests."""
    named = [each for each in threading.enumerate() if each.name == "gristmill-idle-workers"]
    return [thread for thread in named if thread not in _other_threads]


def test_an_equal_plan_gets_the_same_workers(keeper: PoolKeeper, take: Take):
    source = [1, 2, 3]
    pool = take(source, abs)
    workers = mine()
    keeper.put_back(pool)

    assert take(source, abs) is pool
    assert mine() == workers


@pytest.mark.parametrize(
    "change",
    [lambda source: source.append(4), lambda source: source.__setitem__(0, 5)],
    ids=["appended", "assigned"],
)
def test_a_stale_plan_is_never_used(
    keeper: PoolKeeper, take: Take, change: Callable[[list[int]], None]
):
    source = [1, 2, 3]
    pool = take(source)
    before = mine()
    keeper.put_back(pool)

    change(source)

    assert take(source) is not pool
    assert not mine() & before


def test_an_array_that_was_changed_in_place_is_noticed(keeper: PoolKeeper, take: Take):
    source = np.zeros(100_000)
    pool = take(source)
    keeper.put_back(pool)

    source[77_777] = 1.0

    assert take(source) is not pool


def test_a_list_that_is_unchanged_is_not_packed_again(keeper: PoolKeeper, take: Take):
    source = [str(number) for number in range(50_000)]
    pool = take(source)
    (kept,) = pool.packed_sources
    assert kept.packed[777] == "777"

    second = take(source)  # while the first is in use
    (own,) = second.packed_sources
    assert second is not pool
    assert own.records is kept.records
    assert not np.shares_memory(own.packed.arrays[0], kept.packed.arrays[0])
    keeper.put_back(pool)
    assert take(source) is pool

    source[777] = "changed"
    (changed,) = take(source).packed_sources
    assert changed.packed[777] == "changed"
    assert kept.packed[777] == "777"


def make_folder(count: int = MIN_MAPPED_RECORDS) -> Any:
    """Return a dataset as users write them, of a class that workers do not import."""

    class Folder:
        def __init__(self) -> None:
            self.samples = [(f"{number}.jpeg", number) for number in range(count)]

        def __len__(self) -> int:
            return len(self.samples)

        def __getitem__(self, index: int) -> Any:
            return self.samples[index]

    return Folder()


def test_a_list_in_an_object_is_packed_once_and_its_changes_are_noticed(
    keeper: PoolKeeper, take: Take
):
    folder = make_folder()
    pool = take(folder)
    (kept,) = pool.packed_sources
    keeper.put_back(pool)
    assert take(folder) is pool
    assert pool.packed_sources[0] is kept
    keeper.put_back(pool)

    folder.samples[777] = (folder.samples[777][0], 1)

    other = take(folder)
    assert other is not pool
    assert other.packed_sources[0].packed[777] == ("777.jpeg", 1)


def test_a_list_is_packed_that_was_short_at_first(keeper: PoolKeeper, take: Take):
    folder = make_folder(10)
    pool = take(folder)
    assert pool.packed_sources == ()
    keeper.put_back(pool)

    folder.samples *= 1000

    assert len(take(folder).packed_sources) == 1


def test_the_items_of_a_long_list_are_not_in_the_memory_of_each_worker(take: Take):
    few, many = make_folder(10), make_folder()
    sizes: list[int] = []
    for folder in (few, many):
        known = mine()
        take(folder)
        sizes.append(max(private_bytes(pid) for pid in mine() - known))

    plain = len(many.samples) * (sys.getsizeof(many.samples[0]) + sys.getsizeof("12345.jpeg"))
    assert sizes[1] - sizes[0] < plain / 3


def private_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:"))


@pytest.mark.parametrize(
    "other",
    [{"num_workers": 1}, {"idle_timeout_s": 30.0}, {"worker_init_fn": max}],
    ids=["workers", "options", "init"],
)
def test_other_options_get_other_workers(keeper: PoolKeeper, take: Take, other: dict[str, Any]):
    pool = take([1, 2, 3])
    keeper.put_back(pool)

    assert take([1, 2, 3], **other) is not pool


def test_a_pool_that_is_in_use_is_not_given_twice(keeper: PoolKeeper, take: Take):
    first, second = take([1]), take([1])
    assert first is not second
    assert len(mine()) == 4

    keeper.put_back(first)
    keeper.put_back(second)

    until(lambda: len(mine()) == 2, "only one of two equal pools is kept")
    assert take([1]) is second


def test_a_pool_that_lost_a_worker_while_idle_is_replaced(keeper: PoolKeeper, take: Take):
    pool = take([1], max_restarts=0)
    keeper.put_back(pool)
    victim = min(mine())
    kill_quietly([victim])
    until(gone([victim]), "it is dead")
    until(lambda: pool.has_lost_workers, "the pool can notice")

    other = take([1], max_restarts=0)

    assert other is not pool
    assert other.take_failure() is None


def test_idle_workers_end_after_the_timeout(keeper: PoolKeeper, take: Take):
    pool = take([1], idle_timeout_s=0.01)
    descriptors = num_descriptors(os.getpid())
    pool.wake()  # as the end of an iterator does

    keeper.put_back(pool)

    until(lambda: not mine(), "the workers are gone")
    until(lambda: not idle_threads(), "the thread has ended")
    assert num_descriptors(os.getpid()) < descriptors
    assert not pool.is_usable


def test_with_a_timeout_of_zero_nothing_is_kept(keeper: PoolKeeper, take: Take):
    keeper.put_back(take([1], idle_timeout_s=0))

    assert mine() == set()


def test_idle_workers_return_their_memory(keeper: PoolKeeper, take: Take):
    pool = take(range(4), lambda n: np.full(100_000, n))
    task = pool.scheduler.submit(range(2), job=0)
    pool.assign(max_per_worker=1)
    while not task.is_done:
        pool.wait(PATIENCE_S)
    del task
    assert pool.shared_bytes
    pool.end_session()
    pool.wake()

    keeper.put_back(pool)

    until(lambda: pool.shared_bytes == 0, "the memory is returned")
    assert len(mine()) == 2
    assert take(range(4), lambda n: np.full(100_000, n)) is not pool  # another function


def test_close_ends_idle_and_busy_pools_and_allows_new_ones(keeper: PoolKeeper, take: Take):
    idle, busy = take([1]), take([2])
    keeper.put_back(idle)

    keeper.close()

    assert mine() == set()
    assert not busy.is_usable
    keeper.put_back(busy)
    again = take([1])
    assert len(mine()) == 2
    assert again is not idle


def test_a_retired_keeper_keeps_nothing(keeper: PoolKeeper, take: Take):
    idle, busy = take([1]), take([2])
    keeper.put_back(idle)

    keeper.retire()
    assert len(mine()) == 2

    keeper.put_back(busy)
    assert mine() == set()


def test_a_keeper_that_nobody_holds_ends_its_idle_pools(make_cut: Callable[..., Cut]):
    keeper = PoolKeeper()
    jobs = [Job(make_cut([1]), ReadOptions())]
    pool = keeper.take(jobs, num_workers=1, options=WorkerOptions())
    pool.start()
    keeper.put_back(pool)
    del pool

    del keeper
    gc.collect()

    until(lambda: not mine(), "the workers are gone")
    until(lambda: not idle_threads(), "the thread has ended")


def test_the_owner_of_the_pools_retires_the_keeper(take: Take, keeper: PoolKeeper):
    class Loader:
        pass

    loader = Loader()
    keeper.serve(loader)
    keeper.put_back(take([1]))
    assert len(mine()) == 2

    del loader

    until(lambda: not mine(), "the workers are gone")


def test_the_thread_of_an_idle_pool_may_collect_its_keeper(keeper: PoolKeeper, take: Take):
    # As the garbage collector does, which runs in any thread.
    pool = take([1])
    wait_until_woken = pool.wait_until_woken
    is_kept = threading.Event()

    def collect_and_wait(timeout_s: float) -> None:
        is_kept.wait(PATIENCE_S)
        keeper.retire()
        wait_until_woken(timeout_s)

    pool.wait_until_woken = collect_and_wait

    keeper.put_back(pool)
    is_kept.set()

    until(lambda: not mine(), "the workers are gone")
    until(lambda: not idle_threads(), "the thread has ended")


def test_a_copy_of_a_keeper_has_no_pools(keeper: PoolKeeper, take: Take):
    keeper.put_back(take([1]))

    copy = pickle.loads(pickle.dumps(keeper))
    del copy

    assert len(mine()) == 2


def test_pools_may_be_taken_and_given_back_in_many_threads(
    keeper: PoolKeeper, make_cut: Callable[..., Cut]
):
    jobs = [Job(make_cut([1]), ReadOptions())]
    errors: list[BaseException] = []

    def run() -> None:
        try:
            for _ in range(10):
                pool = keeper.take(jobs, num_workers=1, options=WorkerOptions())
                pool.start()
                keeper.put_back(pool)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    keeper.close()
    until(lambda: not mine(), "the workers are gone")
    until(lambda: not idle_threads(), "the threads have ended")


def test_pools_come_and_go_while_another_thread_looks_for_one(
    keeper: PoolKeeper, make_cut: Callable[..., Cut]
):
    jobs, options = [Job(make_cut([1]), ReadOptions())], WorkerOptions(idle_timeout_s=0)
    first = keeper.take(jobs, num_workers=1, options=options)
    keeper.put_back(first)

    def take_and_return() -> None:
        for _ in range(300):
            keeper.put_back(keeper.take(jobs, num_workers=1, options=options))

    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            running = [threads.submit(take_and_return) for _ in range(4)]
            while not all(each.done() for each in running):
                assert not keeper._wait_for_return(first.key)
            for each in running:
                each.result()
    finally:
        sys.setswitchinterval(interval_s)
