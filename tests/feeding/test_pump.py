"""A thread that makes things, a few ahead of who takes them."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from queue import SimpleQueue
from typing import Any

import pytest

from gristmill._pump import Pump

PATIENCE_S = 20.0  # only a test that fails waits so long

Find = Callable[[], list[threading.Thread]]


class Thing:
    """Something of which one can tell whether it is gone."""


@pytest.fixture(autouse=True)
def _no_thread_is_left(own_threads: Find) -> None:
    """Fail if one is."""


@pytest.fixture
def pump() -> Iterator[Callable[..., Pump[Any]]]:
    """Give a function that starts a pump; all are stopped after the test."""
    made: list[Pump[Any]] = []

    def make(function: Callable[[], Any], size: int = 2) -> Pump[Any]:
        one = Pump(function, size, name="pump-test")
        made.append(one)
        one.start()
        return one

    yield make
    for one in made:
        one.stop()


@pytest.mark.parametrize("size", [1, 2, 100])
def test_what_was_made_comes_in_order(pump: Callable[..., Pump[int]], size: int):
    one = pump(iter(range(50)).__next__, size)

    assert [one.take() for _ in range(50)] == list(range(50))


def test_the_end_is_met_again_and_again(pump: Callable[..., Pump[int]]):
    one = pump(iter([7]).__next__)

    assert one.take() == 7
    assert one.error is None
    for _ in range(3):
        with pytest.raises(StopIteration):
            one.take()
    assert isinstance(one.error, StopIteration)


def test_an_error_stands_in_its_place_whatever_it_is(pump: Callable[..., Pump[int]]):
    error = KeyboardInterrupt("of the function")

    def make() -> int:
        if not left:
            raise error
        return left.pop()

    left = [2, 1]
    one = pump(make, 5)

    assert [one.take(), one.take()] == [1, 2]
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt) as raised:
            one.take()
        assert raised.value is error
    assert one.error is error


@pytest.mark.parametrize("size", [1, 3])
def test_it_makes_as_many_as_told_and_no_more(pump: Callable[..., Pump[int]], size: int):
    made: SimpleQueue[int] = SimpleQueue()
    numbers = count()

    def make() -> int:
        number = next(numbers)
        made.put(number)
        return number

    one = pump(make, size)
    for number in range(size):
        assert made.get(timeout=PATIENCE_S) == number
    one.take()
    assert made.get(timeout=PATIENCE_S) == size
    one.stop()
    one.wait()

    assert next(numbers) == size + 1


def test_it_holds_nothing_of_what_was_taken(pump: Callable[..., Pump[Thing]]):
    one = pump(Thing, 1)
    taken = one.take()
    one.take()  # so the thread is past the first
    gone = weakref.ref(taken)

    del taken
    gc.collect()

    assert gone() is None


def test_a_thread_that_waits_for_room_ends_when_told(
    pump: Callable[..., Pump[int]], own_threads: Find
):
    one = pump(count().__next__, 1)
    one.take()
    (thread,) = own_threads()

    one.stop()
    one.wait()
    thread.join(PATIENCE_S)

    assert not thread.is_alive()


def test_one_does_not_wait_for_ever_for_a_function_that_hangs(pump: Callable[..., Pump[int]]):
    is_inside, may_end = threading.Event(), threading.Event()

    def make() -> int:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        return 1

    one = pump(make)
    assert is_inside.wait(PATIENCE_S)
    one.stop()
    one.wait(seconds=0.01)
    assert not may_end.is_set()

    may_end.set()
    one.wait()


def test_one_waits_until_the_function_has_ended(pump: Callable[..., Pump[int]]):
    is_inside, may_end, has_ended = threading.Event(), threading.Event(), threading.Event()

    def make() -> int:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        has_ended.set()
        return 1

    one = pump(make)
    assert is_inside.wait(PATIENCE_S)
    one.stop()
    threading.Timer(0.05, may_end.set).start()
    one.wait()

    assert has_ended.is_set()


def test_one_may_wait_again_after_the_end_was_heard(pump: Callable[..., Pump[int]]):
    one = pump(iter([]).__next__)
    one.stop()

    for _ in range(3):  # Ctrl-C may come when the news is heard and not yet told
        one.wait()


def test_a_thread_that_was_never_started_is_not_waited_for():
    one = Pump(count().__next__, 2, name="pump-test")
    one.stop()
    one.wait()

    one.start()  # as if Ctrl-C had come just before
    one.wait()

    assert one.error is None


def test_a_thread_that_begins_after_it_was_told_to_stop_makes_nothing(own_threads: Find):
    made: list[int] = []
    one = Pump(lambda: made.append(1), 2, name="pump-test")
    one.stop()
    one.start()
    for thread in own_threads():
        thread.join(PATIENCE_S)

    assert made == []


def test_the_function_may_stop_its_own_pump():
    def make() -> int:
        one.stop()
        one.wait()  # for itself: it would never end
        return 5

    one = Pump(make, 2, name="pump-test")
    one.start()

    assert one.take() == 5
    one.wait()


def test_what_fails_after_the_stop_is_nobodys_concern(pump: Callable[..., Pump[int]]):
    is_inside, may_end = threading.Event(), threading.Event()

    def make() -> int:
        is_inside.set()
        may_end.wait(PATIENCE_S)
        raise OSError("what it read was closed")

    one = pump(make)
    assert is_inside.wait(PATIENCE_S)
    one.stop()
    may_end.set()
    one.wait()

    assert one.error is None
