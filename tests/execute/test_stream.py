"""When a stream begins to run ahead."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gristmill import DataLoader
from gristmill.execute import _stream

MakeLoader = Callable[..., DataLoader]
OwnThreads = Callable[[], list[threading.Thread]]


@pytest.fixture(autouse=True)
def busy_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_stream, "BUSY_SHARE", 0.5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Give a clock that stands still but for what a test adds."""
    now = [0.0]
    monkeypatch.setattr(_stream.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(_stream.time, "thread_time", lambda: now[0])
    return now


def test_a_consumer_that_only_takes_elements_gets_no_thread(
    make_loader: MakeLoader, own_threads: OwnThreads, clock: list[float]
):
    def step(element: int) -> int:
        clock[0] += 1.0
        return element

    for _ in make_loader(range(50), step):
        assert not own_threads()


def test_a_consumer_that_is_busy_gets_a_thread_after_the_first_block(
    make_loader: MakeLoader, own_threads: OwnThreads, clock: list[float]
):
    def step(element: int) -> int:
        clock[0] += 1.0
        return element

    iterator = iter(make_loader(range(50), step))
    assert next(iterator) == 0
    assert not own_threads()
    clock[0] += 10.0

    assert next(iterator) == 1
    assert own_threads()
    assert list(iterator) == list(range(2, 50))


def test_start_prefetch_in_the_middle_of_a_block_repeats_none_of_it(
    make_loader: MakeLoader, own_threads: OwnThreads
):
    iterator: Any = iter(make_loader(range(5000)))
    seen = [next(iterator) for _ in range(100)]
    iterator.start_prefetch()

    assert own_threads()
    assert seen + list(iterator) == list(range(5000))
