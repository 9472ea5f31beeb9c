"""Autotuned stage: runs a stream on one of several strategies, and tries the others.

A stage can resume from any cursor, and all strategies return the same stream. So a trial simply
continues the stream on another strategy. `executor_choice` decides when; this stage measures, and
carries out the decisions.
"""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import final

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.base import Executor
from gristmill._engine.executors.pools.executor import PooledExecutor
from gristmill._engine.executors.threads import ThreadExecutor
from gristmill._engine.stages.base import SegmentStage, Stage
from gristmill._engine.tuning.executor_choice import (
    after_probe,
    begin_trial,
    first_choice,
    is_conclusive,
    judge,
    postponed_choice,
    rule_out,
)
from gristmill._engine.tuning.interpreter_probe import InterpreterProbe
from gristmill._engine.tuning.measure import BlockStats, has_mostly_waited
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._engine.tuning.strategy import EndTrial, ExecutorChoice, Strategy, Try
from gristmill._engine.tuning.window import add_block, next_window, window_after_switch
from gristmill._metrics.counters import Counters
from gristmill.errors import GristmillError, UnsendableError
from gristmill.types import Cursor

logger = logging.getLogger("gristmill")


@final
@dataclass(frozen=True, kw_only=True)
class ExecutionStrategy:
    """A strategy, and how to open its stage and executor."""

    kind: str
    size: int
    open: Callable[[], tuple[Stage, Executor | None]]

    @property
    def strategy(self) -> Strategy:
        """The strategy, as `executor_choice` knows it."""
        return Strategy(self.kind, self.size)


@final
class AutotunedStage(Stage):
    """Runs a stream on one of several strategies, and tries the others.

    The first records are read one at a time, in this thread. If that is mostly waiting, for a disk
    or a network, the stream continues on all threads at once, otherwise inline. What an earlier
    iterator has learned replaces this: the stream begins on the strategy that was best.
    """

    def __init__(
        self,
        strategies: Sequence[ExecutionStrategy],
        start: Cursor,
        counters: Counters,
        *,
        policy: TuningPolicy,
        clock: Callable[[], float] = time.perf_counter,
        learned: ExecutorChoice | None = None,
        remember: Callable[[ExecutorChoice], None] | None = None,
    ) -> None:
        """Open the first strategy.

        Args:
            strategies: The strategies, inline first. All those with threads share one stage.
            start: The cursor at the beginning of the stream.
            counters: Where to report the strategy.
            policy: The tuning policy.
            clock: Returns the time in seconds.
            learned: The choice to begin with, from an earlier iterator.
            remember: Called at the end with the choice, for the next iterator.
        """
        self._openers = {one.strategy: one.open for one in strategies}
        self._counters = counters
        self._policy = policy
        self._clock = clock
        self._start = self._cursor = start
        self._opened: dict[Strategy, tuple[Stage, Executor | None]] = {}
        self._retired: dict[Strategy, float] = {}
        """Strategies that are open but not in use, and since when."""
        self._remember = remember
        self._must_resume = learned is not None
        self._choice: ExecutorChoice = learned or first_choice(
            tuple(self._openers), policy, has_waited=False
        )
        self._probe: InterpreterProbe | None = None
        self._window = window_after_switch(0.0)
        self._previous: ThreadExecutor | None = None
        """Threads that may still compute what they began before the last change of strategy."""
        threads = [strategy for strategy in self._openers if strategy.kind == "threads"]
        self._is_first = bool(threads) and not self._must_resume
        self._reason = ""
        """Why the stream continues on `_running`."""
        self._running = self._choice.strategies[0]
        """The strategy of `_stage`, or the next one while `_is_settling`."""
        self._is_settling = False
        """Whether `_stage` returns what it has begun before the stream continues elsewhere."""
        self._stage, self._executor = self._open(threads[0] if self._is_first else self._running)

    def pull(self) -> BlockResult | None:
        if self._must_resume:
            self._must_resume = False
            self._resume()
        if self._is_settling:
            self._switch_if_settled()
        requested_at = self._clock()
        result = self._stage.pull()
        if result is None:
            return None
        if len(result.block):
            self._cursor = result.block.lineage.after(len(result.block) - 1)
        if isinstance(result.error, UnsendableError) and self._choice.current.kind == "processes":
            self._stop_using_processes(result.error)
            return replace(result, error=None)
        if result.error is not None or self._is_settling:
            return result
        if self._is_first:
            self._choose_first(result)
        else:
            self._observe(result, requested_at)
        return result

    @property
    def start(self) -> Cursor:
        return self._start

    def seek(self, cursor: Cursor) -> Cursor:
        self._cursor = cursor
        if self._is_settling:
            self._switch(cursor)
        self._window = window_after_switch(self._clock())
        return self._stage.seek(cursor)

    @property
    def needs_thread(self) -> bool:
        # A trial from workers inline, too: an iterator that is abandoned must not keep the workers.
        choice = self._choice
        if {choice.current.kind, choice.best.kind} != {"inline"}:
            return True
        return self._is_settling and not self._computes_in_caller

    @property
    def _computes_in_caller(self) -> bool:
        """Whether the executor has no threads or processes at work, as for the first records."""
        executor = self._executor
        if executor is None:
            return True
        return (
            isinstance(executor, ThreadExecutor) and executor.num_threads == 1 and executor.is_idle
        )

    def interrupt(self) -> None:
        self._stage.interrupt()

    def close(self) -> None:
        for stage, _ in list(self._opened.values()):
            stage.close()

    def dispose(self) -> None:
        choice = self._choice
        if self._remember is not None and not self._must_resume:
            self._remember(choice)
        for strategy, (stage, executor) in self._opened.items():
            is_wanted = strategy in (choice.best, choice.current)
            if isinstance(executor, PooledExecutor) and not is_wanted:
                executor.discard_workers()
            stage.close()  # again: one may have been opened after `close`
            stage.dispose()

    # Measuring

    def _choose_first(self, result: BlockResult) -> None:
        """Choose a strategy by what the first records took, or once there is an element."""
        has_waited = result.stats is not None and has_mostly_waited(result.stats, self._policy)
        if has_waited or len(result.block):
            self._is_first = False
            self._choice = first_choice(tuple(self._openers), self._policy, has_waited=has_waited)
            reason = "waited" if has_waited else "computed"
            self._run_on(self._choice.best, f"the first records mostly {reason}")

    def _observe(self, result: BlockResult, requested_at: float) -> None:
        ready_at = self._clock()
        computed = result.stats
        stats = BlockStats(
            len(result.block),
            requested_at,
            ready_at,
            cpu_s=0.0 if computed is None else computed.cpu_s,
            waited_s=0.0 if computed is None else computed.waited_s,
        )
        is_settled = self._previous is None or self._is_settled(self._previous, ready_at)
        self._window = window = add_block(self._window, stats, self._policy, is_settled=is_settled)
        if is_conclusive(self._choice, window, self._policy):
            self._choice, decision = judge(self._choice, window, self._policy)
            self._window = next_window(window)
            self._close_retired(ready_at)
            if isinstance(decision, EndTrial):
                self._end_trial(decision, ready_at)
            elif decision is not None:
                self._begin_trial(decision)

    def _is_settled(self, previous: ThreadExecutor, now: float) -> bool:
        """Return whether the threads of the strategy before have finished what they had begun."""
        is_over = now - self._window.begins_at > self._policy.max_settle_s
        if not is_over and not previous.is_idle:
            return False
        self._previous = None
        return True

    # Carrying out decisions

    def _resume(self) -> None:
        """Begin on the strategy that was best in an earlier iterator, if it is ready."""
        learned = self._choice
        self._choice = postponed_choice(learned)
        if learned.best.kind != "inline" and self._is_ready(learned.best):
            self._choice = learned
            self._run_on(learned.best, "it was the fastest in an earlier iterator")
        elif learned.best.kind == "inline":
            self._choice = learned

    def _begin_trial(self, trial: Try) -> None:
        """Run on another strategy, if it may help and is ready."""
        if trial.needs_probe and not self._passes_probe():
            return
        if self._is_ready(trial.strategy):
            self._choice = begin_trial(self._choice)
            is_smaller = trial.strategy.is_smaller(self._choice.best)
            reason = "it needs less" if is_smaller else "the consumer waits"
            self._run_on(trial.strategy, f"a trial, because {reason}")

    def _is_ready(self, strategy: Strategy) -> bool:
        """Return whether the workers of a strategy have started; rule it out if they cannot."""
        try:
            executor = self._open(strategy)[1]
            if isinstance(executor, PooledExecutor):
                executor.start()
                if not executor.wait_until_ready(self._policy.ready_timeout_s):
                    executor.rest(self._policy.keep_tried_s)
                    return False
                failure = executor.take_failure()
                if failure is not None:
                    self._rule_out([strategy], failure)
                    return False
        except GristmillError as error:
            self._rule_out([strategy], error)
            return False
        return True

    def _passes_probe(self) -> bool:
        """Return whether the code that runs was found to release the interpreter lock."""
        self._probe = self._probe or InterpreterProbe(self._policy)
        holds_lock = self._probe.holds_lock
        if holds_lock is None:
            return False
        self._probe = None
        self._choice = after_probe(self._choice, self._policy, holds_lock=holds_lock)
        return not holds_lock

    def _end_trial(self, decision: EndTrial, now: float) -> None:
        needed = (
            f"than the {decision.needed_rate:.0f}/s that are needed to replace "
            f"{decision.previous_rate:.0f}/s"
        )
        if decision.run == self._running:
            made = f"{decision.rate:.0f}/s, more {needed}"
            logger.debug("Keeping %s, because its trial made %s.", decision.run, made)
        else:
            made = f"{decision.rate:.0f}/s, not more {needed}"
            self._run_on(decision.run, f"the trial of {decision.retire} made {made}")
        self._retire(decision.retire, now)

    def _run_on(self, strategy: Strategy, reason: str) -> None:
        """Continue on a strategy, once the present one has returned all that it has read.

        So no record is read twice. A flat map may leave a part of a batch however many records are
        read: then the stream continues after the last element that was returned.
        """
        self._running, self._reason = strategy, reason
        self._retired.pop(strategy, None)
        self._is_settling = True
        self._switch_if_settled()

    def _switch_if_settled(self) -> None:
        stage = self._stage
        if self._open(self._running)[0] is stage:
            self._switch(None)
        elif isinstance(stage, SegmentStage) and len(self._start) == 1:
            cursor = stage.settle()
            if cursor is not None:
                self._switch(cursor)
        else:
            self._switch(self._cursor)

    def _switch(self, cursor: Cursor | None) -> None:
        """Continue on `_running` from a cursor; `None` if its stage is already there."""
        strategy = self._running
        logger.debug("Running on %s: %s.", strategy, self._reason)
        self._is_settling = False
        old, old_executor = self._stage, self._executor
        self._stage, self._executor = self._open(strategy)
        if isinstance(self._executor, ThreadExecutor):
            self._executor.resize(strategy.size)
        if self._stage is not old and cursor is not None:
            old.seek(cursor)  # drops the blocks that it has in flight
            self._stage.seek(cursor)
            self._previous = old_executor if isinstance(old_executor, ThreadExecutor) else None
        self._counters.executor = strategy.kind
        self._counters.num_threads = strategy.size if strategy.kind == "threads" else 0
        self._counters.num_workers = strategy.size if strategy.kind == "processes" else 0
        now = self._clock()
        self._window = window_after_switch(now)
        self._close_retired(now)

    def _open(self, strategy: Strategy) -> tuple[Stage, Executor | None]:
        if strategy not in self._opened:
            self._opened[strategy] = self._openers[strategy]()
        return self._opened[strategy]

    # Strategies that are not in use

    def _retire(self, strategy: Strategy, now: float) -> None:
        """End the threads of a strategy now, and its processes after a while."""
        executor = self._opened[strategy][1]
        if isinstance(executor, ThreadExecutor) and self._running.kind != "threads":
            executor.resize(1)
        self._retired[strategy] = now
        self._close_retired(now)

    def _close_retired(self, now: float) -> None:
        if self._is_settling:
            return
        for strategy, since in list(self._retired.items()):
            executor = self._opened[strategy][1]
            if now - since >= self._policy.keep_tried_s:
                self._close(strategy)
            elif isinstance(executor, PooledExecutor):
                executor.rest(self._policy.keep_tried_s)

    def _close(self, strategy: Strategy) -> None:
        """Close a strategy. All those with threads share one stage, which stays open."""
        self._retired.pop(strategy, None)
        stage, executor = self._opened.pop(strategy)
        if isinstance(executor, PooledExecutor):
            executor.discard_workers()
            stage.close()
            stage.dispose()

    def _rule_out(self, strategies: Sequence[Strategy], reason: BaseException) -> None:
        self._choice = rule_out(self._choice, strategies)
        logger.debug("%s cannot be used: %s", ", ".join(map(str, strategies)), reason)
        for strategy in strategies:
            del self._openers[strategy]
            if strategy in self._opened:
                self._close(strategy)

    def _stop_using_processes(self, reason: BaseException) -> None:
        """Continue inline, because an element cannot be sent from a worker to this process."""
        self._running = self._choice.strategies[0]
        self._reason = "an element cannot be sent from a worker"
        self._retired.pop(self._running, None)
        self._switch(self._cursor)
        self._rule_out([one for one in self._openers if one.kind == "processes"], reason)
