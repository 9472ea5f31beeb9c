"""Processes agree on each step: here threads, with an exchange in memory."""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._api.feeding import hosts as _hosts
from gristmill._api.feeding.hosts import HostAgreement, WaitPolicy
from gristmill._api.feeding.remainder import RemainderMode
from gristmill.errors import ClosedError, FeedError
from tests.api.feeding.memory_exchange import MemoryExchange, Store
from tests.time_limits import PATIENCE_S

DEFAULT_WAITS = WaitPolicy()


def hosts_of(
    store: Store, count: int, how: RemainderMode, policy: WaitPolicy = DEFAULT_WAITS
) -> list[HostAgreement]:
    return [
        HostAgreement(MemoryExchange(store, me), range(count), me, how, policy=policy)
        for me in range(count)
    ]


@contextmanager
def in_threads(count: int):
    """Run functions concurrently, without waiting for those that hang."""
    threads = ThreadPoolExecutor(count)
    try:
        yield threads.submit
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def result(future: "Future[Any]") -> Any:
    return future.result(PATIENCE_S)


def steps_taken(hosts: HostAgreement, sizes: list[int]) -> int | str:
    """Take steps until there is none, and return their number or the error."""
    rest = iter(sizes)
    taken = 0
    try:
        while hosts.agree(next(rest, 0)):
            taken += 1
    except FeedError as error:
        return str(error)
    return taken


def all_steps_taken(hosts: list[HostAgreement], sizes: list[list[int]]) -> list[int | str]:
    with in_threads(len(hosts)) as submit:
        futures = [submit(steps_taken, *one) for one in zip(hosts, sizes, strict=True)]
        return [result(future) for future in futures]


@settings(deadline=None)  # threads wait for each other, on a busy machine too
@given(
    counts=st.lists(st.integers(0, 6), min_size=2, max_size=4),
    how=st.sampled_from(get_args(RemainderMode)),
)
def test_processes_with_any_numbers_of_batches_take_the_same_steps(
    counts: list[int], how: RemainderMode
):
    store = Store()

    taken = all_steps_taken(hosts_of(store, len(counts), how), [[4] * count for count in counts])

    if how == "keep" and len(set(counts)) > 1:
        assert len(set(taken)) == 1
        assert f"In step {min(counts)} the processes have batches of different sizes" in str(
            taken[0]
        )
    else:
        assert taken == [max(counts) if how == "pad" else min(counts)] * len(counts)
    assert sorted(store.left) == list(range(len(counts)))
    assert store.max_answers <= 2


@settings(deadline=None)  # threads wait for each other, on a busy machine too
@given(
    sizes=st.lists(st.lists(st.integers(1, 3), min_size=2, max_size=2), min_size=2, max_size=4),
)
def test_kept_batches_are_of_one_size_in_all_processes_or_an_error_in_all(sizes: list[list[int]]):
    taken = all_steps_taken(hosts_of(Store(), len(sizes), "keep"), sizes)

    differs = [len(set(step)) > 1 for step in zip(*sizes, strict=True)]
    assert len(set(taken)) == 1
    if any(differs):
        assert str(taken[0]).startswith(f"In step {differs.index(True)} ")
    else:
        assert taken[0] == 2


def test_the_error_lists_the_rows_of_each_process():
    taken = all_steps_taken(hosts_of(Store(), 3, "keep"), [[4], [2], []])

    assert "(process 0: 4 rows, process 1: 2 rows, process 2: 0 rows)" in str(taken[0])


def test_among_many_processes_the_error_lists_those_that_differ_from_the_first():
    sizes = [[3] if process == 11 else [4] for process in range(12)]

    taken = all_steps_taken(hosts_of(Store(), 12, "keep"), sizes)

    assert "(process 0: 4 rows, process 11: 3 rows)" in str(taken[0])


@pytest.mark.parametrize("how", get_args(RemainderMode))
def test_rows_of_different_shapes_are_an_error_in_all_processes(how: RemainderMode):
    hosts = hosts_of(Store(), 3, how)

    def steps(one: HostAgreement, shapes: list[str]) -> str:
        assert one.agree(4, shapes[0])
        with pytest.raises(FeedError) as caught:
            one.agree(4, shapes[1])
        return str(caught.value)

    with in_threads(3) as submit:
        shapes = [["x: (8,)", "x: (16,)"], ["x: (8,)", "x: (16,)"], ["x: (8,)", "x: (32,)"]]
        futures = [submit(steps, *one) for one in zip(hosts, shapes, strict=True)]
        errors = {result(future) for future in futures}

    (error,) = errors
    assert error.startswith("In step 1 the processes have rows of different shapes (process 0: x: ")
    assert "process 2: x: (32,)). Pad them to one shape; or plan buckets" in error


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_in_one_process_reaches_the_others_at_that_step(failing: int):
    store = Store()
    hosts = hosts_of(store, 3, "pad")

    def run(me: int) -> list[bool] | str:
        answers = [hosts[me].agree(4), hosts[me].agree(4)]
        if me == failing:
            hosts[me].fail(ValueError("a bad record"))
            hosts[me].stop()  # as the iterator does then; the first reason stands
            return answers
        with pytest.raises(FeedError) as caught:
            hosts[me].agree(4)
        return str(caught.value)

    with in_threads(3) as submit:
        errors = [result(future) for future in [submit(run, me) for me in range(3)]]

    assert errors.pop(failing) == [True, True]
    assert errors == [f"Process {failing} has no step 2: ValueError: a bad record"] * 2
    assert sorted(store.left) == [0, 1, 2]


@settings(deadline=None)  # threads wait for each other, on a busy machine too
@given(
    stopping=st.integers(0, 2),
    after=st.integers(0, 3),
    how=st.sampled_from(get_args(RemainderMode)),
    is_waiting=st.booleans(),
)
def test_when_one_process_stops_the_others_get_an_error_at_the_same_step(
    stopping: int, after: int, how: RemainderMode, is_waiting: bool
):
    """Also if it is stopped while it waits for the others (`is_waiting`)."""
    store = Store()
    hosts = hosts_of(store, 3, how)

    def run_and_stop() -> None:
        for _ in range(after):
            hosts[stopping].agree(4)
        if is_waiting:
            with in_threads(1) as submit:
                under_way = submit(hosts[stopping].agree, 4)
                hosts[stopping].stop()
                with suppress(ClosedError):
                    result(under_way)
        else:
            hosts[stopping].stop()

    with in_threads(3) as submit:
        others = [me for me in range(3) if me != stopping]
        futures = [submit(steps_taken, hosts[me], [4] * 9) for me in others]
        result(submit(run_and_stop))
        errors = [result(future) for future in futures]

    assert len(set(errors)) == 1
    steps = (after, after + 1) if is_waiting else (after,)
    assert errors[0] in [
        f"Process {stopping} has no step {step}: its iterator was closed. "
        "Stop at the same step in all processes."
        for step in steps
    ]
    assert sorted(store.left) == [0, 1, 2]


@pytest.mark.parametrize("me", [0, 1])
def test_stopping_ends_the_wait_of_its_own_thread(me: int):
    hosts = hosts_of(Store(), 2, "drop")

    with in_threads(1) as submit:
        waiting = submit(hosts[me].agree, 4)
        hosts[me].stop()
        with pytest.raises(ClosedError, match="The iterator was closed"):
            result(waiting)
    with pytest.raises(ClosedError):
        hosts[me].agree(4)


def test_a_step_that_starts_while_the_first_process_stops_has_an_answer():
    store = Store()

    class Exchange(MemoryExchange):
        def answer(self, step: int, answer: str) -> bool:
            if "closed" in answer and step == 0:  # the other thread starts a step right now
                with pytest.raises(ClosedError):
                    first.agree(4)
            return super().answer(step, answer)

    first = HostAgreement(Exchange(store, 0), range(2), 0, "drop")
    second = HostAgreement(MemoryExchange(store, 1), range(2), 1, "drop")

    with in_threads(1) as submit:
        taken = submit(steps_taken, second, [4] * 9)
        assert first.agree(4)
        first.stop()
        assert str(result(taken)).startswith("Process 0 has no step 1: its iterator was closed")


@pytest.mark.parametrize("how", get_args(RemainderMode))
def test_stopping_after_the_end_does_not_disturb_a_process_that_is_late(how: RemainderMode):
    store = Store()
    first = HostAgreement(MemoryExchange(store, 0), range(2), 0, how)
    exchange = MemoryExchange(store, 1)
    may_read = threading.Event()
    exchange.before_wait = lambda: may_read.wait(PATIENCE_S)
    second = HostAgreement(exchange, range(2), 1, how)

    with in_threads(1) as submit:
        late = submit(second.agree, 0)
        assert first.agree(0) is False
        first.stop()
        may_read.set()
        assert result(late) is False
    second.stop()

    assert store.left == [0, 1]


def test_a_process_at_its_end_takes_part_in_every_step_of_the_others():
    store = Store()
    with_data, without = hosts_of(store, 2, "pad")

    with in_threads(1) as submit:
        for step in range(3):
            waiting = submit(with_data.agree, 4)
            assert without.agree(0) is True, step
            assert result(waiting) is True
        waiting = submit(with_data.agree, 4)
        without.stop()
        with pytest.raises(FeedError, match="Process 1 has no step 3: its iterator was closed"):
            result(waiting)


def test_a_process_without_a_batch_can_read_a_shared_value():
    with_data, without = hosts_of(Store(), 2, "pad")

    with in_threads(1) as submit:
        with_data.share({"x": (4, 2)})
        waiting = submit(with_data.agree, 4)
        assert without.agree(0)
        assert result(waiting)

    assert without.read_shared() == {"x": (4, 2)}


def test_stopping_is_quiet_when_the_job_is_over():
    class Gone(MemoryExchange):
        def post(self, message: str) -> None:
            raise RuntimeError("UNAVAILABLE: failed to connect")

        def answer(self, step: int, answer: str) -> bool:
            raise RuntimeError("UNAVAILABLE: failed to connect")

    for me in range(2):
        HostAgreement(Gone(Store(), me), range(2), me, "drop").stop()


@pytest.mark.parametrize(("me", "processes"), [(0, "process 1, 2"), (1, "the other processes")])
def test_a_long_wait_is_logged(me: int, processes: str, caplog: pytest.LogCaptureFixture):
    is_logged = threading.Event()

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_logged.set()

    listener = Listener()
    _hosts.logger.addHandler(listener)
    hosts = hosts_of(Store(), 3, "drop", WaitPolicy(min_wait_s=0.001, warn_interval_s=0.0))
    try:
        with caplog.at_level(logging.WARNING, "gristmill"), in_threads(1) as submit:
            waiting = submit(hosts[me].agree, 4)
            assert is_logged.wait(PATIENCE_S)
            hosts[me].stop()
            with pytest.raises(ClosedError):
                result(waiting)
    finally:
        _hosts.logger.removeHandler(listener)

    assert f"Waiting for {processes} to have the batch of step 0" in caplog.text


def test_a_process_that_never_answers_is_an_error_after_the_timeout():
    for process, others in ((0, "process 1"), (1, "the other processes")):
        exchange = MemoryExchange(Store(), process)
        hosts = HostAgreement(exchange, range(2), process, "drop", timeout_s=0.01)
        with pytest.raises(FeedError, match=rf"Waited 0\.01 s for {others} .* step 0.*`timeout_s`"):
            hosts.agree(4)
