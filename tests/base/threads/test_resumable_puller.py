"""A puller loses and repeats nothing, wherever Ctrl-C interrupts its consumer."""

import dis
import gc
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from gristmill._base.threads import background, resumable_puller
from gristmill._base.threads.resumable_puller import Producer, Pulled, ResumablePuller, take
from tests.time_limits import PATIENCE_S

NAME = "test-puller"


class Numbers(Producer[int, int]):
    """The numbers below a limit; checks that one thread at a time uses it."""

    def __init__(self, stop: int = 30, fails_at: int | None = None) -> None:
        self.next = 0
        self.stop = stop
        self.fails_at = fails_at
        self.calls: list[str] = []
        self.num_users = 0
        self.may_go_on = threading.Event()
        self.may_go_on.set()
        self.is_inside = threading.Event()

    def produce(self) -> int:
        self.num_users += 1
        assert self.num_users == 1
        self.is_inside.set()
        self.may_go_on.wait(PATIENCE_S)
        self.num_users -= 1
        if self.next == self.fails_at:
            self.fails_at = None
            raise OSError(self.next)
        if self.next >= self.stop:
            raise StopIteration
        self.next += 1
        return self.next - 1

    def seek(self, position: int) -> None:
        assert self.num_users == 0
        self.calls.append(f"seek {position}")
        self.next = position

    def interrupt(self) -> None:
        self.calls.append("interrupt")

    def close(self) -> None:
        self.calls.append("close")

    def dispose(self) -> None:
        assert self.num_users == 0
        self.calls.append("dispose")


class Consumer:
    """The smallest iterator that follows the protocol."""

    def __init__(self, producer: Numbers) -> None:
        self.pulled: Pulled[int, int] = Pulled(0)
        self.puller = ResumablePuller[int, int](producer, buffer_size=3, name=NAME)
        weakref.finalize(self, self.puller.end)

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if not self.pulled.waiting:
            if self.puller.needs_resync:
                self.seek(self.position)
            if not self.puller.is_owner:
                self.puller.start(self.position)
            number = self.puller.pull()
            self.pulled = Pulled(self.position, (number, number + 1))
            self.puller.needs_resync = False
        return take(self.pulled.waiting)

    @property
    def position(self) -> int:
        return self.pulled.position

    def seek(self, position: int) -> None:
        self.puller.seek(position)
        self.pulled = Pulled(position)
        self.puller.needs_resync = False

    def reclaim(self) -> None:
        self.puller.reclaim(PATIENCE_S)
        self.seek(self.position)


def own_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    gc.collect()
    for thread in own_threads():
        thread.join(PATIENCE_S)
    assert not own_threads()


def test_without_a_thread_items_are_made_when_they_are_pulled():
    producer = Numbers(3)
    consumer = Consumer(producer)

    assert [(number, producer.next) for number in consumer] == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(StopIteration):
        next(consumer)
    consumer.seek(1)
    assert list(consumer) == [1, 2]


def test_a_thread_continues_where_the_producer_stands_or_from_a_position():
    producer = Numbers(10)
    consumer = Consumer(producer)
    assert [next(consumer), next(consumer)] == [0, 1]

    consumer.puller.start()
    assert [next(consumer), next(consumer)] == [2, 3]
    assert producer.calls == []
    consumer.seek(8)

    assert list(consumer) == [8, 9]
    assert producer.calls == ["interrupt", "seek 8"]


@pytest.mark.parametrize("has_thread", [False, True])
def test_an_item_that_failed_is_tried_again(has_thread: bool):
    consumer = Consumer(Numbers(5, fails_at=2))
    if has_thread:
        consumer.puller.start()

    assert [next(consumer), next(consumer)] == [0, 1]
    with pytest.raises(OSError, match="2"):
        next(consumer)
    assert list(consumer) == [2, 3, 4]


def test_the_consumer_owns_the_producer_again_after_the_thread_has_ended():
    producer = Numbers(10)
    consumer = Consumer(producer)
    consumer.puller.start()
    assert next(consumer) == 0

    consumer.reclaim()

    assert consumer.puller.is_owner
    assert not consumer.puller.is_prefetching
    assert [next(consumer), producer.next] == [1, 2]


def test_a_thread_that_hangs_keeps_the_producer_and_the_next_one_waits_for_its_turn():
    producer = Numbers(10)
    consumer = Consumer(producer)
    producer.may_go_on.clear()
    consumer.puller.start()
    assert producer.is_inside.wait(PATIENCE_S)

    consumer.puller.reclaim(0.01)
    assert not consumer.puller.is_owner
    consumer.seek(5)
    consumer.puller.start(5)
    producer.may_go_on.set()

    assert list(consumer) == [5, 6, 7, 8, 9]


def test_the_consumer_owns_the_producer_again_once_a_thread_that_hung_has_ended():
    producer = Numbers(10)
    consumer = Consumer(producer)
    producer.may_go_on.clear()
    consumer.puller.start()
    assert producer.is_inside.wait(PATIENCE_S)

    consumer.puller.reclaim(0.01)
    assert not consumer.puller.is_owner
    producer.may_go_on.set()
    consumer.reclaim()

    assert consumer.puller.is_owner
    assert list(consumer) == list(range(10))


def test_a_producer_is_disposed_of_once_its_thread_has_left_it():
    producer = Numbers(10)
    consumer = Consumer(producer)
    producer.may_go_on.clear()
    consumer.puller.start()
    assert producer.is_inside.wait(PATIENCE_S)

    consumer.puller.end()
    assert producer.calls == ["close"]
    producer.may_go_on.set()
    for thread in own_threads():
        thread.join(PATIENCE_S)

    assert producer.calls == ["close", "dispose"]


@pytest.mark.parametrize("has_thread", [False, True])
def test_a_consumer_that_is_garbage_collected_ends_everything(has_thread: bool):
    producer = Numbers(10**9)
    consumer = Consumer(producer)
    if has_thread:
        consumer.puller.start()
    next(consumer)

    del consumer
    gc.collect()
    for thread in own_threads():
        thread.join(PATIENCE_S)

    assert producer.calls[0] == "close"
    assert producer.calls[-1] == "dispose"


def take_two(consumer: Consumer, seen: list[int]) -> None:
    seen.append(next(consumer))
    seen.append(next(consumer))


def start(consumer: Consumer, seen: list[int]) -> None:
    consumer.puller.start(consumer.position)


def reclaim(consumer: Consumer, seen: list[int]) -> None:
    consumer.reclaim()


def seek_back(consumer: Consumer, seen: list[int]) -> None:
    consumer.seek(min(1, len(seen)))
    del seen[1:]


PROGRAMS: dict[str, list[Callable[[Consumer, list[int]], None]]] = {
    "inline": [take_two, seek_back, take_two],
    "thread": [start, take_two, take_two, reclaim, take_two],
    "restart": [take_two, start, take_two, seek_back, take_two, reclaim, start, take_two],
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_ctrl_c_at_any_line_loses_nothing(name: str):
    watched = {module.__file__ for module in (background, resumable_puller)}
    watched.add(__file__)
    num_lines, stop_at = 0, 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal num_lines
        if frame.f_code.co_filename not in watched or frame.f_code.co_name in NOT_INTERRUPTED:
            return None
        if event == "line":
            num_lines += 1
            if num_lines == stop_at:
                raise KeyboardInterrupt
        return trace

    while num_lines >= stop_at:  # until the program ends before the line to interrupt
        num_lines, stop_at = 0, stop_at + 1
        consumer, seen = Consumer(Numbers(30)), list[int]()
        for step in PROGRAMS[name]:
            sys.settrace(trace)
            try:
                step(consumer, seen)
            except KeyboardInterrupt:
                pass
            finally:
                sys.settrace(None)
            del seen[consumer.position :]  # `seek_back` may have been interrupted half-way
        seen.extend(consumer)
        assert seen == list(range(30)), stop_at
    assert stop_at > 20


NOT_INTERRUPTED = {"produce", "interrupt", "take_two", "seek_back"}


def test_taking_an_item_runs_nothing_at_which_python_handles_signals():
    *_, last = [number for number, one in enumerate(CODE) if one.opname == "DELETE_SUBSCR"]

    assert [one.opname for one in CODE[last + 1 :] if one.opname != "LOAD_FAST"] == ["RETURN_VALUE"]
    assert not [one.opname for one in CODE if "CALL" in one.opname or "JUMP" in one.opname]


CODE = list(dis.get_instructions(resumable_puller.take))
