"""Whenever loaders are closed, dropped or interrupted, and workers killed: nothing is left."""

import gc
import os
import random
import threading
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest

from gristmill import DataLoader, WorkerOptions
from gristmill.errors import ClosedError
from tests.faults.processes import kill_quietly, until, workers_of

MakeLoader = Callable[..., DataLoader]
pytestmark = pytest.mark.usefixtures("nothing_left")

COUNT = 1000
NUM_ROUNDS = 6


def same(number: int) -> int:
    return number


def close_the_iterator(loader: DataLoader, moment_s: float) -> None:
    iterator = iter(loader)
    iterator.start_prefetch()
    threading.Event().wait(moment_s)
    iterator.close()


def close_the_loader_from_a_thread(loader: DataLoader, moment_s: float) -> None:
    timer = threading.Timer(moment_s, loader.close)
    timer.start()
    try:
        assert list(loader) == list(range(COUNT))
    except ClosedError:
        pass
    finally:
        timer.join()


def leave_the_loop(loader: DataLoader, moment_s: float) -> None:
    for _ in range(3):
        num_taken = round(1 + 10_000 * moment_s)
        assert list(islice(loader, num_taken)) == list(range(COUNT))[:num_taken]


def kill_the_workers(loader: DataLoader, moment_s: float) -> None:
    iterator = iter(loader)
    iterator.start_prefetch()
    threading.Event().wait(moment_s)
    kill_quietly(workers_of(os.getpid()))
    assert list(iterator) == list(range(COUNT))


def drop_the_iterator(loader: DataLoader, moment_s: float) -> None:
    iterator = iter(loader)
    iterator.start_prefetch()
    threading.Event().wait(moment_s)
    del iterator


@pytest.mark.parametrize("idle_timeout_s", [0, 0.01, 60])
@pytest.mark.parametrize(
    "use",
    [
        close_the_iterator,
        close_the_loader_from_a_thread,
        leave_the_loop,
        kill_the_workers,
        drop_the_iterator,
    ],
)
def test_nothing_is_left_at_any_moment(
    make_loader: MakeLoader, use: Callable[[DataLoader, float], Any], idle_timeout_s: float
):
    moments = random.Random(0)
    options = WorkerOptions(idle_timeout_s=idle_timeout_s)
    for _ in range(NUM_ROUNDS):
        loader = make_loader(range(COUNT), same, worker_options=options)
        use(loader, moments.uniform(0.0, 0.05))
        del loader
        gc.collect()
        until(lambda: not workers_of(os.getpid()), "the workers are gone")


def test_a_loop_right_after_a_break_uses_the_same_workers(make_loader: MakeLoader):
    loader = make_loader(range(COUNT), same)
    list(loader)
    before = workers_of(os.getpid())
    for _ in range(10):
        for number in loader:
            if number == 7:
                break
        assert list(islice(loader, 3)) == [0, 1, 2]
        assert workers_of(os.getpid()) == before
    loader.close()
