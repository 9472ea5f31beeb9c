"""What is counted of an actor, with made-up calls and times."""

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.ray.events import EventQueue
from gristmill._engine.executors.ray.messages import BlockHeader
from gristmill._engine.executors.ray.worker import Event, RayWorker
from gristmill._engine.executors.serialization.block_codec import BlockTimes


class Call:
    """A reference to the result of a call."""

    def __init__(self) -> None:
        self.result: Future[Any] = Future()

    def future(self) -> Future[Any]:
        return self.result


class Actor:
    """The handle of an actor that computes when it is reported to."""

    def __init__(self) -> None:
        self.calls: list[tuple[Call, Call]] = []
        self.compute = SimpleNamespace(options=lambda num_returns: self)

    def remote(self, *_: Any) -> tuple[Call, Call]:
        self.calls.append((Call(), Call()))
        return self.calls[-1]


def header_of(*, num_bytes: int = 0, busy_s: float = 0.0, began_at: float = 0.0) -> BlockHeader:
    times = BlockTimes(busy_s=busy_s, began_at=began_at, worker="worker 0")
    return BlockHeader(b"x" * 100, num_bytes, None, times, "", ())


def worker_with(num_tasks: int) -> tuple[RayWorker, Actor, EventQueue[Event]]:
    actor, events = Actor(), EventQueue[Event]()
    worker = RayWorker(0, "worker 0", actor, events)
    worker.unsent.extend(Task(number, range(1)) for number in range(num_tasks))
    worker.send_next(lambda _: iter(()))
    return worker, actor, events


def test_the_time_before_an_event_is_handled_is_that_of_the_consumer():
    _, actor, events = worker_with(1)
    actor.calls[0][0].result.set_result(b"")
    replied_at = time.perf_counter()

    (event,), _ = events.take(1.0)

    assert event.arrived_at <= replied_at


def test_waiting_is_the_time_with_calls_in_which_the_actor_did_not_compute():
    worker, _, _ = worker_with(3)
    sent_at = time.perf_counter()  # about
    for number, arrived_at in enumerate((1.0, 2.0, 2.5)):
        worker.receive(number, header_of(busy_s=0.5), sent_at + arrived_at)
        worker.finish(number)

    assert worker.counts.as_stats().network_wait_s == pytest.approx(2.5 - 3 * 0.5, abs=0.1)


def test_the_time_between_a_reply_and_the_next_call_is_not_waiting():
    worker, _, _ = worker_with(2)
    sent_at = time.perf_counter()
    worker.receive(0, header_of(busy_s=0.0, num_bytes=5), sent_at - 100.0)  # long ago
    worker.fetch(0, header_of())
    worker.end_fetch(0, time.perf_counter())

    assert worker.counts.as_stats().network_wait_s < 50.0


def test_blocks_without_large_arrays_have_bytes_too():
    worker, _, _ = worker_with(2)
    worker.receive(0, header_of(), 1.0)
    worker.receive(1, header_of(num_bytes=1000), 1.0)

    assert worker.counts.output_bytes == 100 + 1100


def test_the_clock_of_an_actor_is_known_from_when_its_fastest_reply_arrived():
    worker, _, _ = worker_with(2)
    header = header_of(began_at=10.0, busy_s=1.0)

    assert worker.receive(0, header, 1013.0).times.began_at == 1012.0  # the reply took 2 s
    assert worker.receive(1, header, 1011.0).times.began_at == 1010.0
