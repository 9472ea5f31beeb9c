"""A thread that makes items, a few before the consumer takes them."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

from gristmill._base.threads.background import BackgroundPrefetcher
from tests.time_limits import PATIENCE_S

NAME = "test-prefetch"

Start = Callable[..., BackgroundPrefetcher[Any]]


class Item:
    """An object that supports weak references."""


class WeakError(Exception):
    """An exception that supports weak references."""


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a prefetcher; all are stopped after the test."""
    started: list[BackgroundPrefetcher[Any]] = []

    def start_one(
        make: Callable[[], Any], buffer_size: int = 2, **options: Any
    ) -> BackgroundPrefetcher[Any]:
        prefetcher = BackgroundPrefetcher(make, buffer_size, name=NAME, **options)
        started.append(prefetcher)
        prefetcher.start()
        return prefetcher

    yield start_one
    for prefetcher in started:
        prefetcher.stop()


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    for thread in own_threads():
        thread.join(PATIENCE_S)
    assert not own_threads()


@pytest.mark.parametrize("buffer_size", [1, 2, 100])
def test_items_come_in_order(start: Start, buffer_size: int):
    prefetcher = start(iter(range(50)).__next__, buffer_size)

    assert [prefetcher.take() for _ in range(50)] == list(range(50))


def test_after_the_last_item_every_take_raises_stop_iteration(start: Start):
    prefetcher = start(iter([7]).__next__)

    assert prefetcher.take() == 7
    for _ in range(3):
        with pytest.raises(StopIteration):
            prefetcher.take()


def test_an_exception_of_any_type_is_raised_in_place_of_its_item(start: Start):
    error = KeyboardInterrupt("of the function")

    def make() -> int:
        if not left:
            raise error
        return left.pop()

    left = [2, 1]
    prefetcher = start(make, 5)

    assert [prefetcher.take(), prefetcher.take()] == [1, 2]
    with pytest.raises(KeyboardInterrupt) as raised:
        prefetcher.take()
    assert raised.value is error
    with pytest.raises(StopIteration):
        prefetcher.take()


def test_the_end_keeps_no_reference_to_the_caller(start: Start):
    def take_last() -> weakref.ref[Item]:
        item = Item()
        with pytest.raises(StopIteration):
            prefetcher.take()
        return weakref.ref(item)

    prefetcher = start(iter([]).__next__)

    reference = take_last()
    gc.collect()

    assert reference() is None


@pytest.mark.parametrize("buffer_size", [1, 3])
def test_it_makes_as_many_items_as_the_buffer_holds_and_no_more(start: Start, buffer_size: int):
    made: SimpleQueue[int] = SimpleQueue()
    numbers = count()

    def make() -> int:
        number = next(numbers)
        made.put(number)
        return number

    prefetcher = start(make, buffer_size)
    for number in range(buffer_size):
        assert made.get(timeout=PATIENCE_S) == number
    prefetcher.take()
    assert made.get(timeout=PATIENCE_S) == buffer_size
    prefetcher.stop()
    prefetcher.wait()

    assert next(numbers) == buffer_size + 1


def test_it_keeps_no_reference_to_items_that_were_taken(start: Start):
    prefetcher = start(Item, 1)
    item = prefetcher.take()
    prefetcher.take()  # so the thread is past the first
    reference = weakref.ref(item)

    del item
    gc.collect()

    assert reference() is None


def test_a_thread_that_waits_for_room_ends_when_stopped(start: Start):
    prefetcher = start(count().__next__, 1)
    prefetcher.take()
    (thread,) = own_threads()

    prefetcher.stop()
    assert prefetcher.wait()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()


@pytest.fixture
def gate() -> Iterator[tuple[threading.Event, threading.Event]]:
    """Return an event that a function sets when it runs, and one that lets it return."""
    is_inside, may_end = threading.Event(), threading.Event()
    yield is_inside, may_end
    may_end.set()


Gate = tuple[threading.Event, threading.Event]


def test_waiting_for_a_function_that_hangs_times_out(start: Start, gate: Gate):
    is_inside, may_end = gate

    def make() -> int:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        return 1

    prefetcher = start(make)
    assert is_inside.wait(PATIENCE_S)
    prefetcher.stop()
    assert not prefetcher.wait(0.01)

    may_end.set()
    assert prefetcher.wait()


def test_waiting_lasts_until_the_function_has_returned(start: Start, gate: Gate):
    is_inside, may_end = gate
    has_ended = threading.Event()

    def make() -> int:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        has_ended.set()
        return 1

    prefetcher = start(make)
    assert is_inside.wait(PATIENCE_S)
    prefetcher.stop()
    threading.Timer(0.05, may_end.set).start()

    assert prefetcher.wait()
    assert has_ended.is_set()


def test_waiting_can_be_repeated(start: Start):
    prefetcher = start(iter([]).__next__)
    prefetcher.stop()

    for _ in range(3):  # Ctrl-C may come after the wake-up, before `wait` returns
        assert prefetcher.wait()


def test_a_thread_that_was_never_started_is_not_waited_for():
    prefetcher = BackgroundPrefetcher(count().__next__, 2, name=NAME)
    prefetcher.stop()
    assert prefetcher.wait()

    prefetcher.start()  # as if Ctrl-C had come just before
    assert prefetcher.wait()


def test_a_thread_that_starts_after_the_stop_makes_nothing():
    made: list[int] = []
    prefetcher = BackgroundPrefetcher(lambda: made.append(1), 2, name=NAME)
    prefetcher.stop()
    prefetcher.start()
    for thread in own_threads():
        thread.join(PATIENCE_S)

    assert made == []


def test_the_function_may_stop_its_own_prefetcher():
    has_left: list[bool] = []

    def make() -> int:
        prefetcher.stop()
        has_left.append(prefetcher.wait())  # for itself: it would never end
        return 5

    prefetcher = BackgroundPrefetcher(make, 2, name=NAME)
    prefetcher.start()

    assert prefetcher.take() == 5
    assert prefetcher.wait()
    assert has_left == [False]


def test_an_exception_after_the_stop_is_dropped(start: Start, gate: Gate):
    is_inside, may_end = gate
    references: list[weakref.ref[WeakError]] = []

    def make() -> int:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        error = WeakError("what it read was closed")
        references.append(weakref.ref(error))
        raise error

    prefetcher = start(make)
    assert is_inside.wait(PATIENCE_S)
    prefetcher.stop()
    may_end.set()
    assert prefetcher.wait()
    gc.collect()

    assert references[0]() is None


def test_prefetchers_that_share_a_turn_run_one_at_a_time(start: Start, gate: Gate):
    is_inside, may_end = gate
    turn = threading.Lock()
    made: list[str] = []

    def first() -> None:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        made.append("first")

    old = start(first, turn=turn)
    assert is_inside.wait(PATIENCE_S)
    new = start(lambda: made.append("second"), turn=turn)
    old.stop()
    may_end.set()
    new.take()

    assert made[:2] == ["first", "second"]


def test_one_that_is_stopped_while_it_waits_for_its_turn_makes_nothing(start: Start):
    turn = threading.Lock()
    turns: SimpleQueue[bool] = SimpleQueue()
    with turn:
        prefetcher = start(
            lambda: pytest.fail("made"), turn=turn, after_turn=lambda: turns.put(turn.locked())
        )
        prefetcher.stop()
    assert prefetcher.wait()

    assert turns.get(timeout=PATIENCE_S) is False  # called without holding the turn
