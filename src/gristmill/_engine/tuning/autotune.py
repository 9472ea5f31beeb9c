"""Find out, while the stream runs, who computes it fastest.

A stage can go on from any cursor, and all give the same stream. So another way of running it is
simply tried: for a moment the stream goes on there, the elements a second are compared, and it
stays or goes back. That happens only while the consumer waits for data, first after a second, and
then ever more rarely.

The first elements are read one record at a time. If that is mostly waiting (a disk, a network),
threads are put to it at once.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from gristmill._engine.blocks.block_result import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.executors.processes.executor import ProcessExecutor
from gristmill._engine.executors.threads import ThreadExecutor
from gristmill._engine.stages.base import Stage
from gristmill._engine.tuning.interpreter_probe import InterpreterProbe
from gristmill._metrics.counters import Counters
from gristmill.errors import GristmillError, UnsendableError
from gristmill.types import Cursor

WINDOW_SECONDS = 0.1
WINDOW_BLOCKS = 3
"""For how long, and over how many blocks, a rate is measured at least."""

WARM_UP_SECONDS = 0.01
"""What a way that is tried gets before it is measured."""

FIRST_TRIAL_SECONDS = 1.0
"""A trial that comes to nothing takes 50 to 80 ms of half the speed: less than a tenth of this."""

LONGEST_PAUSE_SECONDS = 60.0

WAITING_SHARE_FOR_TRIAL = 0.5
"""Of the time, spent waiting for this stage: above it, a faster way would be of use."""

MIN_SPEEDUP = 1.1
"""What a way must gain to be worth more threads or processes."""

MIN_RELATIVE_SPEED = 0.97
"""What a smaller one must keep up."""

EARLY_STOP_RATIO = 0.8
"""A way that is tried and gives less than this part is left after a quarter of the time."""

BACKOFF_FACTOR = 4
"""How many times as long as before nothing is tried after a way that was no better."""

logger = logging.getLogger("gristmill")


@final
@dataclass(frozen=True, kw_only=True)
class ExecutionStrategy:
    """A way to run the stream: a kind of executor, of some size."""

    kind: str
    size: int
    open: Callable[[], tuple[Stage, Executor | None]]

    def __str__(self) -> str:
        return self.kind if self.kind == "inline" else f"{self.size} {self.kind}"


@final
class AutotunedStage(Stage):
    """Runs the stream in one of several ways, and tries the others."""

    def __init__(
        self, strategies: Sequence[ExecutionStrategy], start: Cursor, counters: Counters
    ) -> None:
        self._strategies = list(strategies)
        self._counters = counters
        self._start = self._cursor = start
        self._opened: dict[ExecutionStrategy, tuple[Stage, Executor | None]] = {}
        self._best = self._way = strategies[0]
        self._best_rate = 0.0
        self._next: ExecutionStrategy | None = None
        self._tried_at: dict[ExecutionStrategy, float] = {}
        self._pause = FIRST_TRIAL_SECONDS
        self._starved_s = 0.0
        self._probe: InterpreterProbe | None = None
        self._window = _Window(0.0)
        threads = [way for way in strategies if way.kind == "threads"]
        self._is_first = bool(threads)
        self._stage, self._executor = self._open(threads[0] if threads else strategies[0])

    def pull(self) -> BlockResult | None:
        began = time.perf_counter()
        result = self._stage.pull()
        if result is None:
            return None
        if len(result.block):
            self._cursor = result.block.lineage.after(len(result.block) - 1)
        if isinstance(result.error, UnsendableError) and self._way.kind == "processes":
            self._give_up_processes(result.error)
            return replace(result, error=None)
        if result.error is not None:
            return result
        if self._is_first:
            self._look_at_the_first(result)
        else:
            self._window.add(len(result.block), began, time.perf_counter())
            is_trial = self._way is not self._best
            hopeless_rate = EARLY_STOP_RATIO * self._best_rate if is_trial else 0.0
            if self._window.is_full or self._window.is_slower_than(hopeless_rate):
                self._judge(self._window)
        return result

    @property
    def start(self) -> Cursor:
        return self._start

    def seek(self, cursor: Cursor) -> Cursor:
        self._cursor = cursor
        self._window = _Window(WARM_UP_SECONDS)
        return self._stage.seek(cursor)

    @property
    def needs_thread(self) -> bool:
        return self._way.kind != "inline"

    def interrupt(self) -> None:
        self._stage.interrupt()

    def close(self) -> None:
        for stage, _ in list(self._opened.values()):
            stage.close()

    def dispose(self) -> None:
        for stage, _ in self._opened.values():
            stage.close()  # again: one may have been opened meanwhile
            stage.dispose()

    def _look_at_the_first(self, result: BlockResult) -> None:
        """Choose by what the first records took; else go inline once there is an element."""
        executor = self._executor
        if isinstance(executor, ThreadExecutor) and executor.has_waited:
            self._is_first = False
            self._best = [way for way in self._strategies if way.kind == "threads"][-1]
            self._go(self._best)
        elif len(result.block):
            self._is_first = False
            self._go(self._best)

    def _judge(self, window: "_Window") -> None:
        """At the end of a window: end a trial, or begin one."""
        self._window = _Window(0.0)
        if self._way is not self._best:
            self._end_trial(window.rate)
            return
        self._best_rate = window.rate
        if window.pulling_share < WAITING_SHARE_FOR_TRIAL:
            return
        self._starved_s += window.seconds
        if self._starved_s >= self._pause and self._next is None:
            self._next = self._choose()
        if self._next is not None and _is_ready(self._opened[self._next][1]):
            way, self._next, self._starved_s = self._next, None, 0.0
            executor = self._opened[way][1]
            failure = executor.take_failure() if isinstance(executor, ProcessExecutor) else None
            if failure is None:
                self._go(way)
            else:
                self._rule_out(way, failure)

    def _choose(self) -> ExecutionStrategy | None:
        """Give the way to try next, ready or soon to be; `None` if there is none for now."""
        candidates = self._candidates()
        if not candidates:
            return None
        way = min(candidates, key=lambda way: self._tried_at.get(way, 0.0))
        if way.kind == "threads" and self._best.kind == "inline" and not self._may_help(way):
            return None
        self._tried_at[way] = time.perf_counter()
        return self._prepare(way)

    def _may_help(self, way: ExecutionStrategy) -> bool:
        """Look whether the code lets go of the interpreter: if not, threads are not even tried."""
        if self._probe is None:
            self._probe = InterpreterProbe()
        if not self._probe.is_done:
            return False
        is_held, self._probe = self._probe.is_held, None
        if is_held:
            self._tried_at[way] = time.perf_counter()
            if len(self._candidates()) == 1:
                self._put_off()
        return not is_held

    def _prepare(self, way: ExecutionStrategy) -> ExecutionStrategy | None:
        """Open a way: processes take a while to start."""
        try:
            executor = self._open(way)[1]
            if isinstance(executor, ProcessExecutor):
                executor.start()
        except GristmillError as error:
            self._rule_out(way, error)
            return None
        return way

    def _rule_out(self, way: ExecutionStrategy, reason: BaseException) -> None:
        logger.info("%s cannot be used: %s", way, reason)
        self._close(way)
        self._strategies.remove(way)

    def _give_up_processes(self, reason: BaseException) -> None:
        """Go on in this process: what is made here need not be sent."""
        gone = [way for way in self._strategies if way.kind == "processes"]
        self._best = self._strategies[0]
        self._go(self._best)
        for way in gone:
            if way in self._opened:
                self._rule_out(way, reason)
            else:
                self._strategies.remove(way)

    def _candidates(self) -> list[ExecutionStrategy]:
        """Give the neighbours of the best way, and the first one of every other kind."""
        row = [way for way in self._strategies if way.kind in ("inline", self._best.kind)]
        place = row.index(self._best)
        near = row[max(0, place - 1) : place] + row[place + 1 : place + 2]
        firsts = {way.kind: way for way in reversed(self._strategies)}
        return near + [way for kind, way in firsts.items() if kind not in {one.kind for one in row}]

    def _end_trial(self, rate: float) -> None:
        tried, best = self._way, self._best
        is_smaller = tried.kind in ("inline", best.kind) and tried.size < best.size
        if rate > self._best_rate * (MIN_RELATIVE_SPEED if is_smaller else MIN_SPEEDUP):
            logger.info("%s instead of %s: %.0f/s, was %.0f/s", tried, best, rate, self._best_rate)
            self._best, self._best_rate = tried, rate
            self._pause = FIRST_TRIAL_SECONDS
            self._close(best)
        else:
            self._put_off()
            self._go(best)
            self._close(tried)

    def _put_off(self) -> None:
        """Try again, but not soon."""
        self._pause = min(BACKOFF_FACTOR * self._pause, LONGEST_PAUSE_SECONDS)
        self._starved_s = 0.0

    def _go(self, way: ExecutionStrategy) -> None:
        """Go on in another way, after the last element that was given."""
        old = self._stage
        self._way = way
        self._stage, self._executor = self._open(way)
        if isinstance(self._executor, ThreadExecutor):
            self._executor.resize(way.size)
        if self._stage is not old:
            old.seek(self._cursor)  # which makes it forget what it has under way
            self._stage.seek(self._cursor)
        self._counters.executor = way.kind
        self._counters.num_threads = way.size if way.kind == "threads" else 0
        self._counters.num_workers = way.size if way.kind == "processes" else 0
        self._window = _Window(WARM_UP_SECONDS)

    def _open(self, way: ExecutionStrategy) -> tuple[Stage, Executor | None]:
        if way not in self._opened:
            self._opened[way] = way.open()
        return self._opened[way]

    def _close(self, way: ExecutionStrategy) -> None:
        """End what a way that is not used has running. Threads are one stage for all sizes."""
        stage, executor = self._opened.pop(way)
        if isinstance(executor, ThreadExecutor):
            if self._way.kind != "threads":
                executor.resize(1)
        elif isinstance(executor, ProcessExecutor):
            stage.close()
            stage.dispose()


@final
class _Window:
    """Some time in which the elements are counted."""

    def __init__(self, warm_up_seconds: float) -> None:
        self._warm_up = warm_up_seconds
        self._count = 0
        self._num_blocks = 0
        self._began: float | None = None
        self._ended = 0.0
        self._pulling = 0.0

    def add(self, count: int, began: float, ended: float) -> None:
        """Count a block, with when it was asked for and when it was there."""
        if self._began is None:
            self._began = ended + self._warm_up
        elif began >= self._began:
            self._count += count
            self._num_blocks += count > 0  # before a batch is full there is nothing to compare
            self._pulling += ended - began
            self._ended = ended

    @property
    def seconds(self) -> float:
        return 0.0 if self._began is None else max(0.0, self._ended - self._began)

    @property
    def is_full(self) -> bool:
        return self.seconds >= WINDOW_SECONDS and self._num_blocks >= WINDOW_BLOCKS

    def is_slower_than(self, rate: float) -> bool:
        """Tell before the window is full that it is not going to reach a rate."""
        is_long_enough = self.seconds >= WINDOW_SECONDS / 4 and self._num_blocks >= WINDOW_BLOCKS
        return is_long_enough and self.rate < rate

    @property
    def rate(self) -> float:
        """Elements a second."""
        return self._count / self.seconds

    @property
    def pulling_share(self) -> float:
        """How much of the time went into waiting for the stage."""
        return self._pulling / self.seconds


def _is_ready(executor: Executor | None) -> bool:
    return not isinstance(executor, ProcessExecutor) or executor.is_ready
