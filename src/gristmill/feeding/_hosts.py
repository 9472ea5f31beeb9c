"""Processes that share out their batches agree on which steps there are.

A step that only some of them take is a collective that never ends. So before a process hands out a
step, it has heard from each of the others whether they have a batch for it. They tell that through
the key-value store of `jax.distributed`, beside the devices: a collective from a background thread
would come in another order than those of the training.
"""

import json
import logging
import pickle
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, Protocol, final

from gristmill._extras import load_extra
from gristmill.errors import ClosedError, FeedError
from gristmill.feeding._last import How

logger = logging.getLogger("gristmill")

_SHORTEST_NAP_S = 0.0005
_LONGEST_NAP_S = 0.05
_WARN_AFTER_S = 60.0

_numbers = count()
"""Each feeding has its own: programs on several processes begin theirs in the same order."""


class Board(Protocol):
    """Where each process writes a text that all can read."""

    def post(self, text: str) -> None:
        """Write this process's, over what it wrote before."""
        ...

    def read(self) -> Mapping[int, str]:
        """Read those of all."""
        ...

    def show(self, thing: object) -> None:
        """Let the others have something that is the same in all."""
        ...

    def shown(self) -> Any:
        """Give what one of the others has shown."""
        ...


@final
class Hosts:
    """What the processes of one feeding have, step by step."""

    def __init__(self, board: Board, processes: Iterable[int], me: int, how: How) -> None:
        self._board = board
        self._me = me
        self._others = sorted(set(processes) - {me})
        self._how: How = how
        self._mine = _Word()
        self._words: dict[int, _Word] = {}
        self._step = 0
        self._is_stopped = threading.Event()

    def agree(self, rows: int) -> bool:
        """Say how many rows this process has for the next step, and hear whether there is one.

        0 rows is the end: all that follow are 0. The answer is the same for all of them.
        """
        step, self._step = self._step, self._step + 1
        self._mine.add(rows)
        self._board.post(self._mine.text())
        self._hear(step)
        rows_of = {process: word.rows_at(step) for process, word in self._words.items()}
        rows_of[self._me] = rows
        if self._how == "drop":
            return all(rows_of.values())
        if self._how == "pad":
            return any(rows_of.values())
        if len(set(rows_of.values())) > 1:
            told = ", ".join(f"process {one}: {rows_of[one]}" for one in sorted(rows_of))
            raise FeedError(
                f"In step {step} the processes have batches of different sizes ({told} rows). Pass "
                '`last="drop"` to stop there, or `last="pad"` to go on until all are at their end.'
            )
        return rows > 0

    def show(self, thing: Any) -> None:
        """Let the others have something that is the same in all."""
        self._board.show(thing)

    def shown(self) -> Any:
        """Give what one of the others has shown."""
        return self._board.shown()

    def fail(self, error: BaseException) -> None:
        """Tell the others that there will be no more steps, and why."""
        self._mine.error = f"{type(error).__name__}: {error}"[:500]
        self._board.post(self._mine.text())

    def stop(self) -> None:
        """Wait for nobody any more."""
        self._is_stopped.set()

    def _hear(self, step: int) -> None:
        """Wait until all the others have said what they have for a step."""
        began, nap = time.monotonic(), _SHORTEST_NAP_S
        warn_at = began + _WARN_AFTER_S
        while True:
            missing = [p for p in self._others if not self._has_said(p, step)]
            if not missing:
                return
            posted = self._board.read()
            self._words = {p: _Word.of(posted[p]) for p in self._others if p in posted}
            if all(self._has_said(p, step) for p in missing):
                continue
            if self._is_stopped.wait(nap):
                raise ClosedError("The iterator was closed. Make a new one from the loader.")
            nap = min(1.5 * nap, _LONGEST_NAP_S)
            if time.monotonic() > warn_at:
                warn_at = time.monotonic() + _WARN_AFTER_S
                logger.warning(
                    "Waiting for process %s to have the batch of step %d, for %.0f s so far.",
                    missing,
                    step,
                    time.monotonic() - began,
                )

    def _has_said(self, process: int, step: int) -> bool:
        word = self._words.get(process)
        if word is None:
            return False
        if word.error is not None and not word.covers(step):
            raise FeedError(f"Process {process} has no step {step}: {word.error}")
        return word.covers(step)


@final
class _Word:
    """What one process says: how many steps it has so far, and the sizes of their batches."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.sizes: list[tuple[int, int]] = []
        """Each with the first step that has it."""
        self.error: str | None = None

    def add(self, rows: int) -> None:
        if not self.sizes or self.sizes[-1][1] != rows:
            self.sizes.append((self.num_steps, rows))
            del self.sizes[:-8]  # nobody is so far behind
        self.num_steps += 1

    @property
    def has_ended(self) -> bool:
        return bool(self.sizes) and self.sizes[-1][1] == 0

    def covers(self, step: int) -> bool:
        return step < self.num_steps or self.has_ended

    def rows_at(self, step: int) -> int:
        return next(rows for first, rows in reversed(self.sizes) if first <= step)

    def text(self) -> str:
        return json.dumps([self.num_steps, self.sizes, self.error])

    @staticmethod
    def of(text: str) -> "_Word":
        word = _Word()
        word.num_steps, sizes, word.error = json.loads(text)
        word.sizes = [(first, rows) for first, rows in sizes]
        return word


@final
class JobBoard:
    """The key-value store of the job that `jax.distributed.initialize` made."""

    def __init__(self) -> None:
        jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
        distributed: Any = load_extra("jax._src.distributed", extra="jax", wanted_by="`feed`")
        self._client: Any = distributed.global_state.client
        if self._client is None:
            raise FeedError(
                "The batches are shared out among several processes, which have to agree on where "
                "the data ends. Call `jax.distributed.initialize()` at the start of the program."
            )
        self._me: int = jax.process_index()
        number = next(_numbers)
        self._folder = f"gristmill/feed/{number}/"
        self._shown = f"gristmill/shown/{number}/"

    def post(self, text: str) -> None:
        """Write this process's text."""
        self._client.key_value_set(f"{self._folder}{self._me}", text, allow_overwrite=True)

    def read(self) -> Mapping[int, str]:
        """Read those of all."""
        found = self._client.key_value_dir_get(self._folder)
        return {int(key.removeprefix(self._folder)): text for key, text in found}

    def show(self, thing: object) -> None:
        """Let the others have something that is the same in all."""
        key = f"{self._shown}{self._me}"
        self._client.key_value_set_bytes(key, pickle.dumps(thing), allow_overwrite=True)

    def shown(self) -> Any:
        """Give what one of the others has shown."""
        _, pickled = self._client.key_value_dir_get_bytes(self._shown)[0]
        return pickle.loads(pickled)
