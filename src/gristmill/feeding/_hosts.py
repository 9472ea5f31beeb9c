"""Processes that share out their batches agree on which steps there are.

A step that only some of them take is a collective that never ends. So a process hands out a step
only when all have said that they have a batch for it, loaded and not only expected: what a pipeline
is yet to load may fail. They speak through the key-value store of `jax.distributed`, beside the
devices: a collective from a background thread would come in another order than those of the
training.

For each step every process says what it has, the first of them hears that, and gives the one answer
that all go by. So a step costs a process two calls of the store, however many they are.
"""

import json
import logging
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, final

from gristmill.errors import ClosedError, FeedError
from gristmill.feeding._board import Board
from gristmill.feeding._last import How

logger = logging.getLogger("gristmill")

_SHORTEST_NAP_S = 0.0005
_LONGEST_NAP_S = 0.05
_SHORTEST_WAIT_S = 0.25
_LONGEST_WAIT_S = 4.0
"""A wait for an answer that is given up stays in the store until the answer comes."""
_PATIENCE_S = 1.0
_WARN_AFTER_S = 60.0


class _Word(NamedTuple):
    """What a process says: how many rows it has for a step, and why there is no other, if so."""

    step: int = -1
    rows: int = 0
    error: str | None = None


class _Answer(NamedTuple):
    """What holds for a step: there is one, there is none, or this is wrong."""

    is_step: bool
    error: str | None = None


@final
class Hosts:
    """The steps of one feeding, as its processes agree on them.

    What is called from the thread of the user, `stop`, holds no lock, as it may also be called by
    the garbage collector, wherever that comes.
    """

    def __init__(self, board: Board, processes: Collection[int], me: int, how: How) -> None:
        """Begin; the processes of a program do so in the same order."""
        self._board = board
        self._me = me
        self._others = sorted(set(processes) - {me})
        self._is_first = me == min(processes)
        self._how: How = how
        self._next_step = 0
        self._said = _Word()
        self._why_none: str | None = None
        self._has_left = False
        self._is_stopped = False
        self._agreeing_thread: int | None = None
        self._has_agreed: SimpleQueue[None] = SimpleQueue()
        board.open(processes)

    def agree(self, rows: int) -> bool:
        """Say how many rows this process has for the next step, and hear whether there is one.

        0 rows is the end: all that follow are 0. All of them get the same answer.
        """
        self._agreeing_thread = threading.get_ident()
        try:
            return self._agreed(rows)
        finally:
            self._agreeing_thread = None
            if self._is_stopped:
                self._has_agreed.put(None)

    def show(self, thing: Any) -> None:
        """Let the others have something that is the same in all."""
        self._board.show(thing)

    def shown(self) -> Any:
        """Give what one of them has shown, which each does before it says that it has rows."""
        return self._board.shown()

    def fail(self, error: BaseException) -> None:
        """Tell the others that there will be no more steps, and why."""
        self._give_up(f"{type(error).__name__}: {error}"[:500])

    def stop(self) -> None:
        """Wait for nobody any more; who waits for this process gets an error.

        After the end nobody does.
        """
        self._is_stopped = True
        with suppress(RuntimeError):  # the job may be over by now
            self._give_up("its iterator was closed. Leave off at the same step in all processes.")
        # A thread that is in a call of the store when the interpreter goes down aborts the process.
        if self._agreeing_thread not in (None, threading.get_ident()):
            with suppress(Empty):
                self._has_agreed.get(timeout=_PATIENCE_S)

    def _agreed(self, rows: int) -> bool:
        step = self._next_step
        self._next_step += 1  # before the look at whether it is stopped: see `_give_up`
        self._raise_if_stopped()
        if self._is_first:
            answer = self._heard(step, rows)
            if not self._board.answer(step, json.dumps(answer)):
                answer = self._told(step)  # one of them has given up meanwhile
        else:
            self._said = _Word(step, rows)
            self._post()
            answer = self._told(step)
        if not answer.is_step:
            self._leave()
        if answer.error is not None:
            raise FeedError(answer.error)
        return answer.is_step

    def _give_up(self, why: str) -> None:
        """Say that this process has no more steps than those it has said it has."""
        if self._has_left:
            return
        if self._why_none is None:
            self._why_none = why
        # The step before the next may be under way in the other thread, which soon sees it. If that
        # begins another meanwhile, it is the next, as it sees after it has counted that it is to
        # stop.
        next_step = self._next_step
        if next_step > 0:
            self._answer_none(next_step - 1)
        if self._is_first:
            self._answer_none(next_step)
        else:
            self._post()  # who is first answers
        self._leave()

    def _answer_none(self, step: int) -> None:
        self._board.answer(step, json.dumps(_none(step, self._me, self._why_none)))

    def _leave(self) -> None:
        if not self._has_left:
            self._has_left = True
            self._board.leave()

    def _post(self) -> None:
        """Write what this process says; when two threads are at it, what is newest stands."""
        while True:
            word = self._said._replace(error=self._why_none)
            self._board.post(json.dumps(word))
            if word == self._said._replace(error=self._why_none):
                return

    def _heard(self, step: int, rows: int) -> _Answer:
        """Hear from all the others what they have for a step."""
        nap_s = _SHORTEST_NAP_S
        patience = _Patience(step)
        while True:
            texts = self._board.read()
            words = {p: _Word(*json.loads(texts[p])) for p in self._others if p in texts}
            missing = [p for p in self._others if words.get(p, _Word()).step < step]
            for process in missing:
                why = words.get(process, _Word()).error
                if why is not None:
                    return _none(step, process, why)
            if not missing:
                self._board.forget(step)
                rows_of = {process: word.rows for process, word in words.items()}
                return self._judge(step, {**rows_of, self._me: rows})
            # Not a `SimpleQueue.get` with a timeout: in CPython 3.11 one that is kept from running
            # until that has passed waits for ever.
            time.sleep(nap_s)
            self._raise_if_stopped()
            nap_s = min(1.5 * nap_s, _LONGEST_NAP_S)
            patience.check(f"process {', '.join(map(str, missing[:10]))}")

    def _judge(self, step: int, rows_of: Mapping[int, int]) -> _Answer:
        if self._how == "drop":
            return _Answer(all(rows_of.values()))
        if self._how == "pad" or len(set(rows_of.values())) == 1:
            return _Answer(any(rows_of.values()))
        return _Answer(
            False,
            f"In step {step} the processes have batches of different sizes ({_rows(rows_of)}). "
            'Pass `last="drop"` to stop there, or `last="pad"` to go on until all are at their '
            "end.",
        )

    def _told(self, step: int) -> _Answer:
        """Wait for the answer to a step."""
        wait_s = _SHORTEST_WAIT_S
        patience = _Patience(step)
        while True:
            text = self._board.wait(step, wait_s)
            self._raise_if_stopped()
            if text is not None:
                return _Answer(*json.loads(text))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
            patience.check("the other processes")

    def _raise_if_stopped(self) -> None:
        if self._is_stopped:
            raise _closed()


def _none(step: int, process: int, why: str | None) -> _Answer:
    return _Answer(False, f"Process {process} has no step {step}: {why}")


def _rows(rows_of: Mapping[int, int], most: int = 10) -> str:
    """Tell how many rows some processes have; among many, those that differ from the first."""
    first = min(rows_of)
    others = [p for p in sorted(rows_of) if rows_of[p] != rows_of[first]]
    told = sorted(rows_of) if len(rows_of) <= most else [first, *others[: most - 1]]
    return ", ".join(f"process {process}: {rows_of[process]} rows" for process in told)


def _closed() -> ClosedError:
    return ClosedError("The iterator was closed. Make a new one from the loader.")


@final
class _Patience:
    """Warns now and then of a wait that goes on."""

    def __init__(self, step: int) -> None:
        self._step = step
        self._began = time.monotonic()
        self._warn_at = self._began + _WARN_AFTER_S

    def check(self, whom: str) -> None:
        now = time.monotonic()
        if now > self._warn_at:
            self._warn_at = now + _WARN_AFTER_S
            logger.warning(
                "Waiting for %s to have the batch of step %d, for %.0f s so far.",
                whom,
                self._step,
                now - self._began,
            )
