"""A range of positions on its way to a worker and back."""

from collections.abc import Iterator
from typing import Any, final

from gristmill.execute._block import Block
from gristmill.execute._ipc._errors import load_error
from gristmill.execute._ipc._pickle import load
from gristmill.execute._outcome import Outcome, Skip, join_outcomes


@final
class Answer:
    """What a worker sent, on leased memory; made into an outcome when it is its turn."""

    __slots__ = ("_buffers", "_error", "_payload", "_spent")

    def __init__(
        self, payload: Any, buffers: list[Any], error: bytes | None, spent: tuple[float, ...]
    ) -> None:
        self._payload = payload
        self._buffers = buffers
        self._error = error
        self._spent = spent

    def outcome(self) -> Outcome:
        """Load it: the arrays view the memory they came in."""
        data, track, generators, skips, seen, has_waited = load(self._payload, self._buffers)
        return Outcome(
            Block(data, track, generators),
            None if self._error is None else load_error(self._error),
            skips=tuple(_loaded_skip(*skip) for skip in skips),
            spent=self._spent,
            seen=seen,
            has_waited=has_waited,
        )


@final
class Task:
    """A range, who is at it, and what came of it."""

    __slots__ = (
        "answer",
        "error",
        "is_cancelled",
        "job",
        "num_bytes",
        "num_holders",
        "number",
        "parts",
        "positions",
        "tries",
    )

    def __init__(self, number: int, positions: range, *, job: int = 0, tries: int = 0) -> None:
        self.number = number
        self.job = job
        """Of which plan the positions are, where workers have several."""
        self.positions = positions
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        """Why it will never have an answer."""
        self.num_holders = 0
        """How many workers have it."""
        self.tries = tries
        """How often it has killed a worker."""
        self.num_bytes = 0
        """Of shared memory that the answer takes."""
        self.is_cancelled = False
        self.parts: list[Task] = []
        """What it was split into, to go on without the element that kills workers."""

    @property
    def is_done(self) -> bool:
        """Whether there is anything to collect."""
        if self.answer is not None or self.error is not None:
            return True
        for part in self.parts:
            if part.error is not None or not part.is_done:
                return part.is_done  # what comes after an error does not count
        return bool(self.parts)

    @property
    def is_open(self) -> bool:
        """Whether it is still to be computed, as a whole."""
        return not (self.is_done or self.is_cancelled or self.parts)

    def cancel(self) -> None:
        """Say that nobody waits for it any more."""
        self.is_cancelled = True
        for part in self.parts:
            part.cancel()

    def split(self, position: int, numbers: Iterator[int]) -> tuple[list["Task"], "Task"]:
        """Part from the rest the one position that has killed workers; give the parts, and it."""
        first, last = self.positions.start, self.positions.stop
        for part in (range(first, position), range(position + 1, last)):
            if part:
                self.parts.append(Task(next(numbers), part, job=self.job))
        culprit = Task(next(numbers), range(position, position + 1), job=self.job, tries=self.tries)
        self.parts.insert(position > first, culprit)
        return list(self.parts), culprit

    def outcome(self) -> Outcome:
        """Give what came of it."""
        if self.answer is not None:
            return self.answer.outcome()
        if self.error is not None:
            return Outcome(Block.empty(), self.error)
        outcomes: list[Outcome] = []
        for part in self.parts:
            outcomes.append(part.outcome())
            if outcomes[-1].error is not None:
                break
        return join_outcomes(outcomes)


def _loaded_skip(cursor: Any, record: Any, error: bytes) -> Skip:
    loaded = load_error(error)
    assert isinstance(loaded, Exception)
    return Skip(cursor, record, loaded)
