"""Agreement between processes on the steps of a feed.

If only some processes take a step, its collective operations never finish. So a process returns a
batch only after all processes have reported that theirs is loaded; a batch that is yet to be loaded
may still fail. They communicate through the key-value store of `jax.distributed` instead of
collectives: collectives from a background thread would be ordered differently than those of the
training loop.

In each step every process reports how many rows of which shapes it has. The first process reads the
reports and publishes one decision, which all follow. So a step costs a process two calls of the
store, however many processes there are.
"""

import json
import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple, final

from gristmill._api.feeding.exchange import Exchange
from gristmill._api.feeding.remainder import RemainderMode
from gristmill.errors import ClosedError, FeedError
from gristmill.types import Tree

logger = logging.getLogger("gristmill")

_MIN_POLL_INTERVAL_S = 0.0005
_MAX_POLL_INTERVAL_S = 0.05
_STOP_TIMEOUT_S = 1.0


@final
@dataclass(frozen=True, kw_only=True)
class WaitPolicy:
    """How a process waits for the others."""

    min_wait_s: float = 0.25
    """The first wait for an answer in the store."""
    max_wait_s: float = 4.0
    """The longest one. A wait that times out stays in the store until the answer comes, so later
    waits are longer."""
    warn_interval_s: float = 60.0
    """How often a long wait is logged."""


class _ProcessReport(NamedTuple):
    """What a process reports: its rows in a step, and why it takes no further step, if so."""

    step: int = -1
    rows: int = 0
    shapes: str = ""
    error: str | None = None


class _Decision(NamedTuple):
    """Whether all processes take a step, and the error to raise if not, if there is one."""

    is_step: bool
    error: str | None = None


@final
class HostAgreement:
    """The agreement of processes on the steps of one feed.

    `stop` is called from the user's thread, all else from the thread that produces batches. `stop`
    takes no lock, because the garbage collector may call it at any point.
    """

    def __init__(
        self,
        exchange: Exchange,
        processes: Collection[int],
        process: int,
        mode: RemainderMode,
        *,
        timeout_s: float | None = None,
        policy: WaitPolicy = WaitPolicy(),  # noqa: B008 - frozen
    ) -> None:
        """Start to agree. The processes of a program must start their feeds in the same order.

        Args:
            exchange: The store for messages.
            processes: The processes that take part.
            process: This process.
            mode: What to do if the processes have different numbers of batches.
            timeout_s: How long to wait for the others in one step. By default there is no limit.
            policy: How to wait.
        """
        self._timeout_s = timeout_s
        self._policy = policy
        self._exchange = exchange
        self._process = process
        self._others = sorted(set(processes) - {process})
        self._is_first = process == min(processes)
        self._mode: RemainderMode = mode
        self._next_step = 0
        self._report = _ProcessReport()
        self._stop_reason: str | None = None
        self._has_left = False
        self._is_stopped = False
        self._agreeing_thread: int | None = None
        self._has_agreed: SimpleQueue[None] = SimpleQueue()
        exchange.open(processes)

    def agree(self, rows: int, shapes: str = "") -> bool:
        """Report the rows of this process, and return whether all processes take the next step.

        All processes get the same answer.

        Args:
            rows: The number of rows of the batch of this process. 0 means that its data has ended,
                and must be repeated for all later steps.
            shapes: Describes all that must be equal in the batches of all processes, which JAX
                would not notice: their programs would hang. Empty if it is not known.

        Raises:
            FeedError: Another process failed, or the processes have different numbers of rows, or
                rows of different shapes.
        """
        self._agreeing_thread = threading.get_ident()
        try:
            return self._agree(_ProcessReport(rows=rows, shapes=shapes))
        finally:
            self._agreeing_thread = None
            if self._is_stopped:
                self._has_agreed.put(None)

    def share(self, value: object) -> None:
        """Publish a value that is the same in all processes."""
        self._exchange.share(value)

    def read_shared(self) -> Tree:
        """Return the value that a process has shared. Each does so before it reports rows."""
        return self._exchange.read_shared()

    def fail(self, error: BaseException) -> None:
        """Report to the other processes that this one takes no further step because of `error`."""
        self._withdraw(f"{type(error).__name__}: {error}"[:500])

    def stop(self) -> None:
        """Stop waiting for other processes. Those that wait for this one raise an error.

        After the end of the data no process waits any more.
        """
        self._is_stopped = True
        with suppress(RuntimeError):  # the distributed job may be shut down already
            self._withdraw("its iterator was closed. Stop at the same step in all processes.")
        # A thread that is in a call of the store at the exit of the interpreter aborts the process.
        if self._agreeing_thread not in (None, threading.get_ident()):
            with suppress(Empty):
                self._has_agreed.get(timeout=_STOP_TIMEOUT_S)

    def _agree(self, report: _ProcessReport) -> bool:
        step = self._next_step
        self._next_step += 1  # before `_is_stopped` is read: see `_withdraw`
        self._raise_if_stopped()
        report = report._replace(step=step)
        if self._is_first:
            decision = self._collect(report)
            if not self._exchange.answer(step, json.dumps(decision)):
                decision = self._wait_for_decision(step)  # of a process that has withdrawn
        else:
            self._report = report
            self._post_report()
            decision = self._wait_for_decision(step)
        if not decision.is_step:
            self._leave()
        if decision.error is not None:
            raise FeedError(decision.error)
        return decision.is_step

    def _withdraw(self, reason: str) -> None:
        """Report that this process takes no steps beyond those it has already reported."""
        if self._has_left:
            return
        if self._stop_reason is None:
            self._stop_reason = reason
        # The step before `next_step` may be in progress in the other thread. If that thread starts
        # another one now, it is `next_step`, and it stops there: it increments the counter before
        # it reads `_is_stopped`.
        next_step = self._next_step
        if next_step > 0:
            self._decide_against(next_step - 1)
        if self._is_first:
            self._decide_against(next_step)
        else:
            self._post_report()  # the first process decides
        self._leave()

    def _decide_against(self, step: int) -> None:
        decision = _no_step(step, self._process, self._stop_reason)
        self._exchange.answer(step, json.dumps(decision))

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._exchange.leave()

    def _post_report(self) -> None:
        """Publish the report of this process. If two threads do so, the newest one remains."""
        while True:
            report = self._report._replace(error=self._stop_reason)
            self._exchange.post(json.dumps(report))
            if report == self._report._replace(error=self._stop_reason):
                return

    def _collect(self, own: _ProcessReport) -> _Decision:
        """Wait for the reports of all other processes on a step, and decide."""
        step = own.step
        interval_s = _MIN_POLL_INTERVAL_S
        wait = _Wait(step, self._timeout_s, self._policy)
        while True:
            posts = self._exchange.read_posts()
            reports = {p: _ProcessReport(*json.loads(posts[p])) for p in self._others if p in posts}
            missing = [p for p in self._others if reports.get(p, _ProcessReport()).step < step]
            for process in missing:
                reason = reports.get(process, _ProcessReport()).error
                if reason is not None:
                    return _no_step(step, process, reason)
            if not missing:
                self._exchange.delete_answers(before=step)
                return self._decide(step, {**reports, self._process: own})
            # Not `SimpleQueue.get` with a timeout: in CPython 3.11 a thread that is not scheduled
            # until the timeout has passed waits forever.
            time.sleep(interval_s)
            self._raise_if_stopped()
            interval_s = min(1.5 * interval_s, _MAX_POLL_INTERVAL_S)
            wait.check(f"process {', '.join(map(str, missing[:10]))}")

    def _decide(self, step: int, reports: Mapping[int, _ProcessReport]) -> _Decision:
        rows_of = {process: report.rows for process, report in reports.items()}
        if self._mode == "keep" and len(set(rows_of.values())) > 1:
            shown = _listed({process: f"{rows} rows" for process, rows in rows_of.items()})
            return _Decision(
                False,
                f"In step {step} the processes have batches of different sizes ({shown}). Pass "
                '`remainder="drop"` to stop there, or `remainder="pad"` to continue until the data '
                "of all processes has ended.",
            )
        if not (all if self._mode == "drop" else any)(rows_of.values()):
            return _Decision(False)
        shapes_of = {process: report.shapes for process, report in reports.items() if report.shapes}
        if len(set(shapes_of.values())) > 1:
            return _Decision(
                False,
                f"In step {step} the processes have rows of different shapes "
                f"({_listed(shapes_of)}). Pad them to one shape; or plan buckets for all processes "
                "together, with `bucket_by_length(..., lengths=, group_size=)` of a `MapDataset`.",
            )
        return _Decision(True)

    def _wait_for_decision(self, step: int) -> _Decision:
        wait_s = self._policy.min_wait_s
        wait = _Wait(step, self._timeout_s, self._policy)
        while True:
            answer = self._exchange.wait_for_answer(step, wait_s)
            self._raise_if_stopped()
            if answer is not None:
                return _Decision(*json.loads(answer))
            wait_s = min(2 * wait_s, self._policy.max_wait_s)
            wait.check("the other processes")

    def _raise_if_stopped(self) -> None:
        if self._is_stopped:
            raise ClosedError("The iterator was closed. Make a new one from the loader or dataset.")


def _no_step(step: int, process: int, reason: str | None) -> _Decision:
    return _Decision(False, f"Process {process} has no step {step}: {reason}")


def _listed(value_of: Mapping[int, str], max_listed: int = 10) -> str:
    """List a value of each process. Of many, list the first and those that differ from it."""
    first = min(value_of)
    different = [p for p in sorted(value_of) if value_of[p] != value_of[first]]
    few = len(value_of) <= max_listed
    listed = sorted(value_of) if few else [first, *different[: max_listed - 1]]
    return ", ".join(f"process {process}: {value_of[process]}" for process in listed)


@final
class _Wait:
    """A wait for other processes, which logs a warning at intervals and ends after a timeout."""

    def __init__(self, step: int, timeout_s: float | None, policy: WaitPolicy) -> None:
        self._warn_interval_s = policy.warn_interval_s
        self._step = step
        self._timeout_s = timeout_s
        self._start_s = time.monotonic()
        self._warn_at_s = self._start_s + self._warn_interval_s

    def check(self, processes: str) -> None:
        """Log a warning if the wait is long; raise an error if it is too long."""
        now_s = time.monotonic()
        if self._timeout_s is not None and now_s - self._start_s > self._timeout_s:
            raise FeedError(
                f"Waited {self._timeout_s:g} s for {processes} to have the batch of step "
                f"{self._step}. Check whether a process hangs or has ended, or raise `timeout_s`."
            )
        if now_s > self._warn_at_s:
            self._warn_at_s = now_s + self._warn_interval_s
            logger.warning(
                "Waiting for %s to have the batch of step %d, for %.0f s so far.",
                processes,
                self._step,
                now_s - self._start_s,
            )
