"""What comes of some work: elements up to an error, and the error.

A failure never takes with it what comes before it in the stream, and nothing is computed twice to
find that out: each step hands on the elements it had done when the user's code raised, and the
error right after them. A step above runs on those elements first; an error of its own stands
earlier in the stream and takes the place of the one below.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

from gristmill.execute._block import Block


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Some elements, and the error that stands right after them, if any."""

    block: Block
    error: BaseException | None = None
    seconds: float = 0.0

    def then(self, run: Callable[[Block], "Outcome"]) -> "Outcome":
        """Give the outcome of a step that runs on these elements."""
        if not len(self.block):
            return self
        made = run(self.block)
        return made if made.error else Outcome(made.block, self.error)
