"""When a stream starts a background thread, and when it ends it."""

import math
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, ReadOptions
from gristmill._base.threads import background, resumable_puller
from gristmill._base.threads.background import BackgroundPrefetcher
from gristmill._engine import stream as _stream
from gristmill._engine.stream import Stream
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from tests.policies import (
    EAGER,
    LAZY,
    TRIES_AT_ONCE,
    TuningPolicy,
    recorded_strategies,
    with_policy,
)

MakeLoader = Callable[..., DataLoader]
OwnThreads = Callable[[], list[threading.Thread]]


@pytest.mark.parametrize("policy", [LAZY, DEFAULT_POLICY], ids=["lazy", "default"])
def test_a_consumer_that_is_not_busy_gets_no_thread(
    make_loader: MakeLoader, own_threads: OwnThreads, policy: TuningPolicy
):
    def slow(element: int) -> int:
        sum(range(20_000))  # some hundred times as long as the consumer takes
        return element

    for _ in make_loader(range(50), slow, policy=policy):
        assert not own_threads()


def test_a_consumer_that_is_busy_gets_a_thread(make_loader: MakeLoader, own_threads: OwnThreads):
    iterator = iter(make_loader(range(100_000), policy=DEFAULT_POLICY))
    assert next(iterator) == 0
    assert not own_threads()
    threading.Event().wait(0.01)  # stands for a training step, longer than any block here

    assert next(iterator) == 1
    assert own_threads()
    assert list(iterator) == list(range(2, 100_000))


def test_the_thread_ends_when_the_consumer_is_no_longer_busy(
    make_loader: MakeLoader, own_threads: OwnThreads
):
    policy = TuningPolicy(max_block_positions=1, stop_after_blocks=8)

    def slow(element: int) -> int:
        sum(range(20_000))
        return element

    iterator = iter(make_loader(range(300), slow, policy=policy))
    seen = [next(iterator)]
    while not own_threads():
        threading.Event().wait(0.01)
        seen.append(next(iterator))

    seen += [next(iterator) for _ in range(200)]

    assert not own_threads()
    assert seen + list(iterator) == list(range(300))


def test_a_thread_that_the_user_requested_stays(make_loader: MakeLoader, own_threads: OwnThreads):
    policy = replace(LAZY, max_block_positions=1, stop_after_blocks=0)
    iterator = iter(make_loader(range(300), policy=policy))
    iterator.start_prefetch()

    seen = [next(iterator) for _ in range(200)]

    assert own_threads()
    assert seen + list(iterator) == list(range(300))


def test_start_prefetch_in_the_middle_of_a_block_repeats_none_of_it(
    make_loader: MakeLoader, own_threads: OwnThreads
):
    iterator: Any = iter(make_loader(range(100_000)))
    seen = [next(iterator) for _ in range(100)]
    iterator.start_prefetch()

    assert own_threads()
    assert seen + list(iterator) == list(range(100_000))


ONE_TRIAL = replace(
    TRIES_AT_ONCE,
    first_trial_s=1e-9,
    max_trial_interval_s=math.inf,
    backoff_factor=math.inf,
    min_speedup=math.inf,
    rate_change_factor=math.inf,
    min_waiting_s=math.inf,
    max_block_positions=2,
    stop_after_blocks=0,
    busy_share=math.inf,
)
"""Threads are tried once, soon, and always lose. No record waits, the consumer is never busy."""


@pytest.fixture
def visits() -> Iterator[list[str]]:
    """Return the strategies that a stream runs on, in that order."""
    with recorded_strategies() as strategies:
        yield strategies


def numbers(policy: TuningPolicy = ONE_TRIAL) -> DataLoader:
    loader = DataLoader(
        data_source=range(400),
        sampler=IndexSampler(400, num_epochs=1),
        operations=[lambda number: number],
        read_options=ReadOptions(num_threads=2),
    )
    return with_policy(loader, policy)


def test_after_a_failed_trial_the_thread_ends(own_threads: OwnThreads, visits: list[str]):
    iterator = iter(numbers())
    seen = [next(iterator) for _ in range(300)]

    assert visits == ["inline", "2 threads", "inline"]
    assert not own_threads()
    assert seen + list(iterator) == list(range(400))


def test_a_thread_that_pays_off_stays(own_threads: OwnThreads, visits: list[str]):
    iterator = iter(numbers(replace(ONE_TRIAL, busy_share=EAGER.busy_share)))
    seen = [next(iterator) for _ in range(300)]

    assert visits == ["inline", "2 threads", "inline"]
    assert own_threads()
    assert seen + list(iterator) == list(range(400))


@pytest.mark.usefixtures("own_threads")
def test_a_step_that_hangs_keeps_the_stage_and_the_next_thread_continues(
    monkeypatch: pytest.MonkeyPatch,
):
    wait, num_waits = BackgroundPrefetcher.wait, 0

    def wait_without_success(
        self: BackgroundPrefetcher[Any], timeout_s: float | None = None
    ) -> bool:
        nonlocal num_waits
        num_waits += 1
        return wait(self, timeout_s) and num_waits > 3

    monkeypatch.setattr(BackgroundPrefetcher, "wait", wait_without_success)
    assert list(numbers()) == list(range(400))
    assert num_waits == 4


@pytest.mark.usefixtures("own_threads")
def test_ctrl_c_at_any_line_while_the_thread_ends_loses_nothing():
    reclaim = Stream._reclaim
    watched = {module.__file__ for module in (_stream, background, resumable_puller)}
    num_lines, stop_at = 0, 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal num_lines
        if frame.f_code.co_filename not in watched:
            return None
        if event == "line":
            num_lines += 1
            if num_lines == stop_at:
                raise KeyboardInterrupt
        return trace

    def traced_reclaim(self: Stream) -> None:
        sys.settrace(trace)
        try:
            reclaim(self)
        finally:
            sys.settrace(None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stream, "_reclaim", traced_reclaim)
        while num_lines >= stop_at:  # until it ends before the line where it is to be interrupted
            num_lines, stop_at = 0, stop_at + 1
            iterator, seen = iter(numbers()), []
            while len(seen) < 400:
                try:
                    seen.append(next(iterator))
                except KeyboardInterrupt:
                    continue
            assert seen == list(range(400)), stop_at
            with pytest.raises(StopIteration):
                next(iterator)
    assert stop_at > 20
