"""The stage carries out what was decided about strategies, and the stream does not change."""

import contextlib
import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import gristmill as gm
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage
from gristmill._engine.stages.base import Stage
from gristmill._engine.tuning.autotune import AutotunedStage, ExecutionStrategy
from gristmill._metrics.counters import Counters
from gristmill.types import Cursor
from tests.faults.processes import workers_of
from tests.policies import LAZY, TRIES_AT_ONCE, TuningPolicy, with_policy
from tests.time_limits import PATIENCE_S

WAIT_S = 0.1
"""Stands for a disk or a network: longer than whatever may come upon a read, such as the garbage
collector, so that it is mostly waiting all the same."""
TOTAL = 10**7


class Clock:
    """Stands still but for what a test adds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


NO_PROBE = TuningPolicy(probe_sleeps=0)
"""Threads are tried without finding out whether the code holds the interpreter lock."""


class Lane(Stage):
    """Returns the numbers starting at its cursor, at a rate by the test's clock."""

    def __init__(self, clock: Clock, rate: float, *, per_pull: int, every: int = 1) -> None:
        self.clock = clock
        self.rate = rate
        self.per_pull = per_pull
        self.every = every
        """Only every so many pulls return elements, as with large batches."""
        self.next = self.num_pulls = 0
        self.is_closed = False

    def open(self) -> tuple[Stage, None]:
        self.is_closed = False
        return self, None

    def pull(self) -> BlockResult | None:
        assert not self.is_closed
        if self.next >= TOTAL:
            return None
        self.clock.now += self.per_pull / self.rate / self.every
        self.num_pulls += 1
        if self.num_pulls % self.every:
            return BlockResult(Block.empty())
        positions = range(self.next, self.next + self.per_pull)
        self.next = positions.stop
        return BlockResult(
            Block(list(positions), DenseLineage.of_records(positions, num_flat_maps=0))
        )

    @property
    def start(self) -> Cursor:
        return (0,)

    def seek(self, cursor: Cursor) -> Cursor:
        self.next, self.num_pulls = cursor[0], 0
        return cursor

    @property
    def needs_thread(self) -> bool:
        return False

    def interrupt(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        self.is_closed = True

    def dispose(self) -> None:
        """Nothing is held."""


@dataclass
class Bench:
    """A tuned stage over lanes, and what it does in time."""

    clock: Clock
    lanes: dict[str, Lane]
    policy: TuningPolicy = NO_PROBE
    counters: Counters = field(default_factory=lambda: Counters([]))
    visited: list[str] = field(default_factory=list)
    num_seen: int = 0

    def __post_init__(self) -> None:
        self.stage = AutotunedStage(
            [self._strategy(name) for name in self.lanes],
            (0,),
            self.counters,
            policy=self.policy,
            clock=self.clock,
        )

    def _strategy(self, name: str) -> ExecutionStrategy:
        size, _, kind = name.rpartition(" ")
        lane = self.lanes[name]
        return ExecutionStrategy(kind=kind, size=int(size or 1), open=lane.open)

    @property
    def current(self) -> str:
        return str(self.stage._running)

    @property
    def best(self) -> str:
        return str(self.stage._choice.best)

    def run(self, seconds: float, *, busy_share: float = 0.0) -> None:
        """Pull for some time, as a consumer that is busy for a share of it does."""
        end = self.clock.now + seconds
        while self.clock.now < end:
            asked_at = self.clock.now
            result = self.stage.pull()
            assert result is not None
            rows = result.block.rows()
            assert rows == list(range(self.num_seen, self.num_seen + len(rows)))
            self.num_seen += len(rows)
            if not self.visited or self.visited[-1] != self.current:
                self.visited.append(self.current)
            waited = self.clock.now - asked_at
            self.clock.now += waited * busy_share / (1 - busy_share)


MakeBench = Callable[..., Bench]


@pytest.fixture
def make_bench(clock: Clock) -> MakeBench:
    """Return a function that makes a bench of lanes by name and rate."""

    def make(
        per_pull: int = 10, every: int = 1, policy: TuningPolicy = NO_PROBE, **rates: float
    ) -> Bench:
        lanes = {
            name.strip("_").replace("_", " "): Lane(
                clock, rate, per_pull=per_pull, every=1 if name == "inline" else every
            )
            for name, rate in rates.items()
        }
        return Bench(clock, lanes, policy)

    return make


def test_what_is_faster_is_found_and_kept(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=2000)

    bench.run(2.0)

    assert bench.current == "2 processes"
    assert bench.counters.executor == "processes"
    assert bench.counters.num_workers == 2
    bench.run(300.0)
    assert bench.best == "2 processes"


def test_what_is_no_faster_is_left_again(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=1050)

    bench.run(5.0)

    assert bench.visited[:3] == ["inline", "2 processes", "inline"]
    assert bench.current == "inline"
    assert bench.counters.executor == "inline"
    assert bench.counters.num_workers == 0


def test_failed_trials_become_rare_and_cost_little(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=100)
    bench.run(600.0)

    num_trials = bench.visited.count("2 processes")

    assert 5 <= num_trials <= 20
    assert bench.num_seen > 0.97 * 600 * 1000


def test_a_smaller_pool_that_is_as_fast_takes_over(make_bench: MakeBench):
    bench = make_bench(inline=1000, _4_processes=3000, _2_processes=2990)

    bench.run(30.0)

    assert bench.best == "2 processes"


def test_a_larger_pool_must_gain_something(make_bench: MakeBench):
    bench = make_bench(inline=1000, _4_processes=3000, _2_processes=2500)

    bench.run(100.0)

    assert bench.best == "4 processes"


def test_a_consumer_that_is_busy_is_not_disturbed(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=5000)

    bench.run(100.0, busy_share=0.7)
    assert bench.visited == ["inline"]

    bench.run(10.0)  # and when it waits for data, faster ways are of use
    assert bench.current == "2 processes"


def test_it_goes_on_adapting(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=2000)
    bench.run(10.0)
    assert bench.current == "2 processes"

    bench.lanes["2 processes"].rate = 500

    bench.run(130.0)
    assert bench.best == "inline"


def test_strategies_are_tried_in_turn(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_threads=900, _4_threads=900, _2_processes=900)

    bench.run(400.0)

    tried = [name for name in bench.visited if name != "inline"]
    assert {*tried[0:2]} == {*tried[2:4]} == {*tried[4:6]} == {"2 threads", "2 processes"}


def test_more_threads_are_tried_where_some_help(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_threads=1900, _4_threads=3500, _8_threads=3400)

    bench.run(60.0)

    assert bench.best == "4 threads"


@pytest.mark.parametrize("is_held", [True, False])
def test_threads_are_only_tried_where_the_code_releases_the_interpreter_lock(
    make_bench: MakeBench, is_held: bool
):
    policy = TuningPolicy(probe_sleeps=1, held_share=-math.inf if is_held else math.inf)
    bench = make_bench(inline=1000, _2_threads=2000, policy=policy)

    while bench.stage._probe is None and bench.current == "inline":
        bench.run(0.1)
    while bench.stage._probe is not None:  # until its thread has slept
        bench.run(0.1)
    bench.run(1.0)

    assert bench.best == ("inline" if is_held else "2 threads")
    assert ("2 threads" in bench.visited) != is_held


@pytest.mark.parametrize("per_second", [0.5, 3, 20])
def test_large_batches_are_measured_over_as_long_as_they_take(
    make_bench: MakeBench, per_second: float
):
    # Where records are read one by one, most blocks yield nothing but part of a batch.
    bench = make_bench(per_pull=1, every=50, inline=per_second, _2_processes=3 * per_second)

    bench.run(60 / per_second)

    assert bench.best == "2 processes"
    assert bench.num_seen > 90


def test_what_was_read_of_a_batch_is_not_thrown_away_time_after_time(make_bench: MakeBench):
    bench = make_bench(per_pull=1, every=50, inline=0.01, _2_processes=0.01)

    bench.run(3000.0)

    assert bench.num_seen >= 25  # of 30: a batch takes longer than the longest pause


def test_a_stage_can_move_elsewhere_during_a_trial(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=1000)
    while bench.current == "inline":
        bench.run(0.01)

    bench.stage.seek((500_000,))
    bench.num_seen = 500_000

    bench.run(5.0)
    assert bench.current == "inline"


def test_the_end_comes_again_and_again(make_bench: MakeBench):
    bench = make_bench(inline=1000, _2_processes=1000)
    bench.stage.seek((TOTAL,))

    assert bench.stage.pull() is None
    assert bench.stage.pull() is None


def test_a_strategy_that_is_opened_while_the_stage_is_closed_is_closed_too(clock: Clock):
    inline, late = (Lane(clock, 1000, per_pull=10) for _ in range(2))
    is_opened = False

    def open_late() -> tuple[Stage, None]:
        nonlocal is_opened
        is_opened = True
        stage.close()  # as another thread may do, just now
        return late, None

    stage = AutotunedStage(
        [
            ExecutionStrategy(kind="inline", size=1, open=inline.open),
            ExecutionStrategy(kind="processes", size=2, open=open_late),
        ],
        (0,),
        Counters([]),
        policy=NO_PROBE,
        clock=clock,
    )
    while not is_opened:
        with contextlib.suppress(gm.errors.ClosedError):
            stage.pull()
    stage.dispose()

    assert inline.is_closed
    assert late.is_closed


# With real threads and processes.


def loader_of(source: Any, *operations: Any, **arguments: Any) -> gm.DataLoader:
    arguments.setdefault("sampler", gm.IndexSampler(len(source), num_epochs=1, seed=0))
    return gm.DataLoader(data_source=source, operations=operations, **arguments)


class WaitsOnce:
    """Waits at its first read; the next `count` reads wait for one another."""

    def __init__(self, size: int, count: int) -> None:
        self.size = size
        self.count = count
        self.everybody = threading.Barrier(count)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index == 0:
            threading.Event().wait(WAIT_S)
        elif index <= self.count:
            self.everybody.wait(PATIENCE_S)
        return index


@pytest.mark.parametrize("num_threads", [2, 16, 40])
@pytest.mark.parametrize("operations", [[], [gm.Batch(3)], [lambda x: x, gm.Batch(50)]])
def test_a_source_that_waits_is_given_to_all_threads_after_the_first_record(
    num_threads: int, operations: list[Any]
):
    source = WaitsOnce(100, num_threads)
    loader = loader_of(source, *operations, read_options=gm.ReadOptions(num_threads=num_threads))

    with iter(loader) as iterator:
        seen = [number for element in iterator for number in _numbers(element)]

    assert seen == list(range(100))
    assert loader.stats().executor == "threads"
    assert loader.stats().num_threads == num_threads


def _numbers(element: Any) -> list[int]:
    return [element] if isinstance(element, int) else element.tolist()


class WaitsAtFirst:
    """Takes long to open, and no time afterwards."""

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> int:
        if index == 0:
            threading.Event().wait(WAIT_S)
        return index


def test_a_source_that_waits_only_at_first_is_read_inline_after_a_while():
    deadline = time.monotonic() + PATIENCE_S
    strategies: list[str] = []

    with iter(loader_of(WaitsAtFirst(), gm.Batch(32))) as iterator:
        tuned: Any = iterator._run.stream._stage
        for number, batch in enumerate(iterator):
            assert batch[0] == 32 * number
            strategies.append(str(tuned._stage._choice.best))
            has_returned = "16 threads" in strategies and strategies[-1] == "inline"
            if has_returned or time.monotonic() > deadline:
                break

    assert "16 threads" in strategies
    assert strategies[-1] == "inline"


def test_a_source_that_never_waits_is_read_in_the_thread_of_the_consumer():
    never_waits = replace(LAZY, waiting_share=math.inf, first_trial_s=math.inf)
    loader = with_policy(loader_of(range(10_000), gm.Batch(64)), never_waits)

    with iter(loader) as iterator:
        puller: Any = iterator._run.stream._puller
        for number, batch in enumerate(iterator):
            assert batch[0] == 64 * number
            assert puller.is_owner


class Together:
    """In a worker: waits at first; then the records of a batch must be read at the same time."""

    def __init__(self, size: int, batch_size: int) -> None:
        self.size = size
        self.batch_size = batch_size
        self.barrier: Any = None

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self.barrier = threading.Barrier(self.batch_size)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        if index < self.batch_size:
            threading.Event().wait(WAIT_S)
        elif index < 2 * self.batch_size:
            self.barrier.wait(PATIENCE_S)
        return index


def test_a_worker_whose_reads_wait_uses_threads_too():
    loader = loader_of(
        Together(64, 8),
        gm.Batch(8),
        worker_count=1,
        read_options=gm.ReadOptions(num_threads=8),
    )
    with iter(loader) as iterator:
        assert [batch.tolist() for batch in iterator] == [
            list(range(first, first + 8)) for first in range(0, 64, 8)
        ]


class TogetherInMap(gm.Map):
    """In a worker: waits at first; then the elements of a batch must be made at the same time."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.barrier: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_worker, (self.batch_size,)

    def map(self, element: int) -> int:
        if element < self.batch_size:
            threading.Event().wait(WAIT_S)
        elif element < 2 * self.batch_size:
            self.barrier.wait(PATIENCE_S)
        return element


def _in_worker(batch_size: int) -> TogetherInMap:
    """Return the transformation as a worker loads it: locks cannot be sent."""
    made = TogetherInMap(batch_size)
    made.barrier = threading.Barrier(batch_size)
    return made


class ReadsMany:
    """A source that reads many records in one call."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return list(indices)


def test_a_worker_whose_maps_wait_uses_threads_whatever_the_source_reads_at_once():
    loader = loader_of(
        ReadsMany(),
        TogetherInMap(4),
        gm.Batch(4),
        worker_count=1,
        read_options=gm.ReadOptions(num_threads=8),
    )
    with iter(with_policy(loader, replace(LAZY, bulk_read_block_factor=1))) as iterator:
        assert [batch.tolist() for batch in iterator] == [
            list(range(first, first + 4)) for first in range(0, 64, 4)
        ]


TWO_CORES = replace(TRIES_AT_ONCE, max_block_positions=2, max_tried_workers=2)
PREFERS_PROCESSES = replace(TWO_CORES, min_speedup=-math.inf, min_relative_speed=math.inf)
PREFERS_INLINE = replace(TWO_CORES, min_speedup=math.inf)
READ_INLINE = gm.ReadOptions(num_threads=1)  # no strategies with threads


def test_processes_are_chosen_where_they_are_measured_to_be_faster():
    loader = loader_of(range(300), _compute, worker_count=None, read_options=READ_INLINE)

    with iter(with_policy(loader, PREFERS_PROCESSES)) as iterator:
        assert list(iterator) == [_compute(number) for number in range(300)]
        tuned: Any = iterator._run.stream._stage

    assert str(tuned._choice.best) == "2 processes"


def _compute(number: int) -> int:
    return sum(range(number))


@pytest.mark.parametrize("keep_tried_s", [0.0, math.inf])
def test_where_processes_are_slower_it_stays_inline_and_ends_them(keep_tried_s: float):
    policy = replace(PREFERS_INLINE, keep_tried_s=keep_tried_s)
    loader = loader_of(range(2000), _compute, worker_count=None, read_options=READ_INLINE)
    before = set(workers_of(os.getpid()))
    elements: list[int] = []
    had_workers: list[bool] = []

    with with_policy(loader, policy) as tuned, iter(tuned) as iterator:
        stage: Any = iterator._run.stream._stage
        for element in iterator:
            elements.append(element)
            if len(elements) % 10 == 0:
                had_workers.append(bool(set(workers_of(os.getpid())) - before))
        assert stage._choice.best.kind == "inline"
        assert [one.kind for one in stage._choice.order] == ["processes"]

    assert elements == [_compute(number) for number in range(2000)]
    first = had_workers.index(True)
    assert all(had_workers[first:]) == (keep_tried_s > 0)
    assert set(workers_of(os.getpid())) == before


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.DEBUG, logger="gristmill"):
        yield caplog


def test_what_cannot_be_sent_to_a_worker_runs_inline(log: pytest.LogCaptureFixture):
    lock = threading.Lock()

    def step(number: int) -> int:
        with lock:
            return number

    loader = loader_of(range(100), step, worker_count=None, read_options=READ_INLINE)

    assert list(with_policy(loader, PREFERS_PROCESSES)) == list(range(100))
    assert "2 processes cannot be used" in log.text


class OnlyHere:
    """A source that no worker can load, such as one from a module that is not there."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> int:
        return index

    def __setstate__(self, state: Any) -> None:
        raise ModuleNotFoundError("No module named 'only_here'")

    def __getstate__(self) -> dict[str, Any]:
        return {"x": 1}


def test_workers_that_cannot_start_do_not_end_a_stream_that_runs_without_them():
    loader = loader_of(OnlyHere(), worker_count=None, read_options=READ_INLINE)

    with iter(with_policy(loader, PREFERS_PROCESSES)) as iterator:
        assert list(iterator) == list(range(200))
        assert iterator.stats().executor == "inline"


def test_elements_that_workers_cannot_send_are_computed_inline():
    loader = loader_of(
        range(200),
        lambda number: (number, threading.Lock()),
        worker_count=None,
        read_options=READ_INLINE,
    )

    with iter(with_policy(loader, PREFERS_PROCESSES)) as iterator:
        assert [number for number, _ in iterator] == list(range(200))


class CountsReads:
    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self.most = most
        self.reads = 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        assert self.reads <= self.most, "the same records are read again and again"
        return index


class Keep(gm.Filter):
    def __init__(self, modulus: int) -> None:
        self.modulus = modulus

    def filter(self, element: int) -> bool:
        return element % self.modulus == 0


@pytest.mark.parametrize("modulus", [1, 50, 10**9])
def test_records_without_elements_are_not_read_again_for_every_trial(modulus: int):
    source = CountsReads(400, most=4000)
    read_options = gm.ReadOptions(num_threads=4, prefetch_buffer_size=8)
    loader = loader_of(source, Keep(modulus), read_options=read_options)

    assert list(with_policy(loader, TWO_CORES)) == list(range(0, 400, modulus))
