"""A range of positions on its way to a worker and back."""

from typing import Any, final

from gristmill.execute._block import Block
from gristmill.execute._ipc._errors import load_error
from gristmill.execute._ipc._pickle import load
from gristmill.execute._outcome import Outcome, Skip


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
        data, track, generators, skips = load(self._payload, self._buffers)
        return Outcome(
            Block(data, track, generators),
            None if self._error is None else load_error(self._error),
            skips=tuple(_loaded_skip(*skip) for skip in skips),
            spent=self._spent,
        )


@final
class Task:
    """A range, who is at it, and what came of it."""

    __slots__ = ("answer", "error", "is_cancelled", "num_bytes", "num_holders", "number",
                 "positions", "tries")  # fmt: skip

    def __init__(self, number: int, positions: range) -> None:
        self.number = number
        self.positions = positions
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        """Why it will never have an answer."""
        self.num_holders = 0
        """How many workers have it."""
        self.tries = 0
        """How often it has killed a worker."""
        self.num_bytes = 0
        """Of shared memory that the answer takes."""
        self.is_cancelled = False

    @property
    def is_done(self) -> bool:
        """Whether there is anything to collect."""
        return self.answer is not None or self.error is not None

    def outcome(self) -> Outcome:
        """Give what came of it."""
        return Outcome(Block.empty(), self.error) if self.answer is None else self.answer.outcome()


def _loaded_skip(cursor: Any, record: Any, error: bytes) -> Skip:
    loaded = load_error(error)
    assert isinstance(loaded, Exception)
    return Skip(cursor, record, loaded)
