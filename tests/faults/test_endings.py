"""However a loop ends, its workers are gone at once, and so is everything else.

That is, those of a loader that is dropped or closed, or does not keep workers for the next loop.
"""

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill import Batch, DataLoader, DataLoaderIterator, WorkerOptions
from gristmill._base.threads.background import Background
from gristmill.errors import ClosedError, WorkerError
from tests.faults.gates import Gate
from tests.faults.processes import (
    is_idle,
    is_worker,
    num_descriptors,
    shared_mappings,
    until,
    workers_of,
)

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture
def make_endless(make_loader: MakeLoader) -> Callable[..., DataLoaderIterator]:
    """Return a function that begins to iterate over more than anyone will read."""

    def begin(*operations: Any, **arguments: Any) -> DataLoaderIterator:
        steps = operations or (lambda x: np.full(5000, x), Batch(4))
        iterator = iter(make_loader(range(10**7), *steps, **arguments))
        next(iterator)
        return iterator

    return begin


Begin = Callable[..., DataLoaderIterator]


def assert_all_gone() -> None:
    """Wait until all is gone."""
    me = os.getpid()
    began = time.monotonic()
    until(lambda: not workers_of(me), "the workers are gone")
    until(lambda: not _own_threads(), "the threads are gone")
    until(lambda: not shared_mappings(me), "the shared memory is unmapped")
    assert time.monotonic() - began < 1


def _own_threads() -> list[str]:
    running = (thread for thread in threading.enumerate() if isinstance(thread, Background))
    return [thread.role for thread in running]


def _listens() -> bool:
    """Return whether our thread waits for a worker, and has for a moment."""
    running = [each for each in threading.enumerate() if isinstance(each, Background)]
    (thread,) = [each for each in running if each.role == "gristmill-stream"]
    for _ in range(20):
        frame = sys._current_frames()[thread.ident or 0]
        if not frame.f_code.co_filename.endswith("processes/pool.py"):
            return False
        time.sleep(0.001)
    return True


def test_close_ends_the_workers_before_it_returns(make_endless: Begin):
    iterator = make_endless()
    assert len(workers_of(os.getpid())) == 2

    iterator.close()

    assert workers_of(os.getpid()) == []
    with pytest.raises(ClosedError):
        next(iterator)
    assert_all_gone()


def test_close_twice_does_no_harm(make_endless: Begin):
    iterator = make_endless()

    iterator.close()
    iterator.close()

    assert_all_gone()


def test_close_does_not_wait_for_workers_that_are_busy(make_endless: Begin, tmp_path: Path):
    gate = Gate(tmp_path / "gate")

    def hold(element: int) -> int:
        if element > 1:
            gate.wait(element)
        return element

    iterator = make_endless(hold)
    until(lambda: len(gate.arrived) == 2, "both workers are busy")
    began = time.monotonic()

    iterator.close()

    assert time.monotonic() - began < 1
    assert_all_gone()


def test_close_frees_what_was_made_ahead_without_the_garbage_collector(
    make_loader: MakeLoader, tmp_path: Path
):
    gate = Gate(tmp_path / "gate")

    def hold(element: int) -> np.ndarray:
        if element == 2:
            gate.wait(element)
        return np.full(20_000, element)

    iterator = iter(make_loader(range(40), hold))
    next(iterator)
    until(lambda: gate.arrived, "a worker holds up the stream")
    until(lambda: len(shared_mappings(os.getpid())) >= 3, "the elements before it are made")
    until(_listens, "our thread waits for it")
    gc.disable()
    try:
        iterator.close()
        assert_all_gone()
    finally:
        gc.enable()


def test_close_while_the_workers_start_leaves_nothing(make_loader: MakeLoader):
    for _ in range(3):
        iterator = iter(make_loader(range(10**6)))
        iterator.start_prefetch()
        until(lambda: workers_of(os.getpid()), "a worker is started")
        iterator.close()
        assert workers_of(os.getpid()) == []
    assert_all_gone()


def test_close_right_after_the_start_leaves_nothing(make_loader: MakeLoader):
    for _ in range(10):
        iterator = iter(make_loader(range(10**6)))
        iterator.start_prefetch()
        iterator.close()
    assert_all_gone()


def test_with_ends_the_workers(make_endless: Begin):
    with make_endless() as iterator:
        next(iterator)
        assert len(workers_of(os.getpid())) == 2

    assert workers_of(os.getpid()) == []
    assert_all_gone()


def test_an_iterator_that_nobody_holds_ends_its_workers(make_endless: Begin):
    iterator = make_endless()
    assert len(workers_of(os.getpid())) == 2

    del iterator

    assert_all_gone()


def test_an_iterator_in_a_cycle_ends_its_workers_when_it_is_collected(make_endless: Begin):
    cycle: list[Any] = [make_endless()]
    cycle.append(cycle)

    del cycle
    gc.collect()

    assert_all_gone()


def test_an_iterator_collected_in_another_thread_ends_its_workers(make_endless: Begin):
    held = [make_endless()]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()

    assert_all_gone()


def test_a_break_ends_the_workers(make_loader: MakeLoader):
    for batch in make_loader(range(10**6), Batch(5)):
        assert batch.tolist() == [0, 1, 2, 3, 4]
        break

    assert_all_gone()


def test_an_exception_in_the_users_loop_ends_the_workers(make_loader: MakeLoader):

    def train() -> None:
        for batch in make_loader(range(10**6), Batch(5)):
            if batch[0] >= 50:
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()

    gc.collect()  # the traceback held the loop
    assert_all_gone()


def test_the_end_of_the_stream_and_of_the_loop_ends_the_workers(make_loader: MakeLoader):
    assert list(make_loader(range(100))) == list(range(100))

    assert_all_gone()


def test_an_iterator_dropped_after_an_error_of_a_step_ends_its_workers(make_loader: MakeLoader):

    def run() -> None:
        list(make_loader(range(100), lambda x: 1 // (50 - x)))

    with pytest.raises(ZeroDivisionError):
        run()

    gc.collect()
    assert_all_gone()


def test_an_error_that_was_caught_holds_no_workers(make_loader: MakeLoader):
    gc.disable()  # it must do without: nothing else may make garbage for a long while
    try:
        with contextlib.suppress(ZeroDivisionError):
            list(make_loader(range(100), lambda x: 1 // (50 - x)))
        assert_all_gone()
    finally:
        gc.enable()


def test_an_iterator_dropped_after_its_workers_gave_up_leaves_nothing(
    make_loader: MakeLoader, tmp_path: Path
):

    def die_at_five(element: int) -> int:
        if element == 5:
            os._exit(1)
        return element

    def run() -> None:
        list(make_loader(range(100), die_at_five, worker_options=WorkerOptions(max_restarts=0)))

    with pytest.raises(WorkerError, match="More than 0 workers died"):
        run()

    gc.collect()
    assert_all_gone()


def test_twenty_loops_that_are_left_early_leave_nothing(make_loader: MakeLoader):
    loader = make_loader(
        range(10**6),
        lambda x: np.full(3000, x),
        Batch(8),
        worker_options=WorkerOptions(idle_timeout_s=0),
    )
    counts: list[int] = []
    for _ in range(20):
        for batch in loader:
            assert batch[:, 0].tolist() == list(range(8))
            del batch
            break
        assert_all_gone()
        counts.append(num_descriptors(os.getpid()))

    assert len(set(counts)) == 1


def test_batches_that_are_kept_outlive_the_iterator(make_loader: MakeLoader):
    with iter(make_loader(range(40), lambda x: np.full(5000, x), Batch(4))) as iterator:
        kept = list(islice(iterator, 5))
    del iterator
    gc.collect()

    assert [batch[:, 7].tolist() for batch in kept] == [
        list(range(n, n + 4)) for n in range(0, 20, 4)
    ]
    assert shared_mappings(os.getpid())
    kept.clear()
    assert_all_gone()


def test_two_loaders_at_once_do_not_disturb_each_other(make_loader: MakeLoader):
    first = iter(make_loader(range(200), lambda x: x + 1))
    second = iter(make_loader(range(200), lambda x: x * 2))
    pairs = [(next(first), next(second)) for _ in range(50)]
    first.close()

    assert pairs == [(n + 1, n * 2) for n in range(50)]
    assert list(second) == [n * 2 for n in range(50, 200)]
    second.close()
    assert_all_gone()


def test_two_iterators_in_two_threads_do_not_disturb_each_other(make_loader: MakeLoader):
    loader = make_loader(range(300), lambda x: np.full(2000, x), Batch(10))
    seen: dict[int, list[int]] = {}

    def run(number: int) -> None:
        seen[number] = [int(n) for batch in loader for n in batch[:, 0]]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert seen == {0: list(range(300)), 1: list(range(300))}
    loader.close()
    assert_all_gone()


def test_set_state_in_the_middle_keeps_the_workers(make_loader: MakeLoader):
    loader = make_loader(range(1000), lambda x: x)
    iterator = iter(loader)
    start = iterator.get_state()
    assert list(islice(iterator, 100)) == list(range(100))
    workers = workers_of(os.getpid())

    iterator.set_state(start)

    assert list(iterator) == list(range(1000))
    assert workers_of(os.getpid()) == workers
    iterator.close()


def test_signals_of_the_terminal_do_not_reach_the_workers(make_endless: Begin):
    iterator = make_endless()
    workers = workers_of(os.getpid())
    until(lambda: all(map(is_idle, workers)), "the workers are up")

    assert all(os.getpgid(worker) != os.getpgid(0) for worker in workers)
    for worker in workers:
        os.kill(worker, signal.SIGINT)
    list(islice(iterator, 200))
    assert all(map(is_worker, workers))
    iterator.close()
