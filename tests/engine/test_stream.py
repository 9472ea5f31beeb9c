"""When a stream begins to run ahead, and when it ends to."""

import math
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, ReadOptions
from gristmill._base import background_prefetch, resumable_puller
from gristmill._base.background_prefetch import BackgroundPrefetcher
from gristmill._engine import stream as _stream
from gristmill._engine.stream import Stream
from gristmill._engine.tuning import autotune as _tune
from gristmill._engine.tuning.autotune import AutotunedStage

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
    iterator: Any = iter(make_loader(range(100_000)))
    seen = [next(iterator) for _ in range(100)]
    iterator.start_prefetch()

    assert own_threads()
    assert seen + list(iterator) == list(range(100_000))


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let threads be tried once, soon and in vain; give the ways that a stream went."""
    gone: list[str] = []
    go = AutotunedStage._go

    def note_and_go(stage: AutotunedStage, way: Any) -> None:
        gone.append(way.kind)
        go(stage, way)

    monkeypatch.setattr(AutotunedStage, "_go", note_and_go)
    monkeypatch.setattr(AutotunedStage, "_may_help", lambda stage, way: True)
    monkeypatch.setattr(_tune, "WINDOW_SECONDS", 1e-9)
    monkeypatch.setattr(_tune, "WINDOW_BLOCKS", 1)
    monkeypatch.setattr(_tune, "WARM_UP_SECONDS", 0.0)
    monkeypatch.setattr(_tune, "FIRST_TRIAL_SECONDS", 1e-9)
    monkeypatch.setattr(_tune, "LONGEST_PAUSE_SECONDS", math.inf)
    monkeypatch.setattr(_tune, "BACKOFF_FACTOR", math.inf)
    monkeypatch.setattr(_tune, "WAITING_SHARE_FOR_TRIAL", -math.inf)
    monkeypatch.setattr(_tune, "MIN_SPEEDUP", math.inf)
    monkeypatch.setattr("gristmill._engine.stages.ranges.MAX_BLOCK_POSITIONS", 2)
    monkeypatch.setattr(_stream, "BUSY_SHARE", math.inf)
    return gone


def numbers(step: Callable[[int], int] = lambda number: number) -> DataLoader:
    return DataLoader(
        data_source=range(400),
        sampler=IndexSampler(400, num_epochs=1),
        operations=[step],
        read_options=ReadOptions(num_threads=2),
    )


def test_after_a_trial_in_vain_the_thread_ends(own_threads: OwnThreads, ways: list[str]):
    iterator = iter(numbers())
    seen = [next(iterator) for _ in range(300)]

    assert ways == ["inline", "threads", "inline"]
    assert not own_threads()
    assert seen + list(iterator) == list(range(400))


def test_a_thread_that_pays_stays(
    own_threads: OwnThreads, ways: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_stream, "BUSY_SHARE", 0.0)
    iterator = iter(numbers())
    seen = [next(iterator) for _ in range(300)]

    assert ways == ["inline", "threads", "inline"]
    assert own_threads()
    assert seen + list(iterator) == list(range(400))


def test_a_step_that_hangs_keeps_the_stage_and_the_next_thread_goes_on(
    own_threads: OwnThreads, ways: list[str], monkeypatch: pytest.MonkeyPatch
):
    wait, num_waits = BackgroundPrefetcher.wait, 0

    def wait_in_vain(self: BackgroundPrefetcher[Any], timeout_s: float | None = None) -> bool:
        nonlocal num_waits
        num_waits += 1
        return wait(self, timeout_s) and num_waits > 3

    monkeypatch.setattr(BackgroundPrefetcher, "wait", wait_in_vain)
    assert list(numbers()) == list(range(400))
    assert num_waits == 4


@pytest.mark.usefixtures("ways")
def test_ctrl_c_at_any_line_while_the_thread_ends_loses_nothing(own_threads: OwnThreads):
    reclaim = Stream._reclaim
    watched = {module.__file__ for module in (_stream, background_prefetch, resumable_puller)}
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
