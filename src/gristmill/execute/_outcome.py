"""What comes of some work: elements up to an error, and the error.

A failure never takes with it what comes before it in the stream, and nothing is computed twice to
find that out: each step hands on the elements it had done when the user's code raised, and the
error right after them. A step above runs on those elements first; an error of its own stands
earlier in the stream and takes the place of the one below.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill.checkpoint import SkippedRecord
from gristmill.execute._block import Block, concatenate
from gristmill.execute._track import Cursor
from gristmill.types import Indices


@final
@dataclass(frozen=True, slots=True)
class Skip:
    """A bad record that was left out, on request."""

    cursor: Cursor
    """Where the stream goes on after it."""
    record: SkippedRecord
    error: Exception


@final
@dataclass(frozen=True, slots=True)
class Seen:
    """What came to a filter that is watched, and what passed it."""

    num_above: int
    """How many steps stand on the filter: which one it is."""
    positions: Indices
    has_passed: NDArray[Any]

    def before(self, position: int) -> "Seen":
        """Give what came of earlier positions."""
        end = int(np.searchsorted(self.positions, position))
        return Seen(self.num_above, self.positions[:end], self.has_passed[:end])


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Some elements, and the error that stands right after them, if any."""

    block: Block
    error: BaseException | None = None
    row: int = 0
    """Which element of its input the step that gave the error was at."""
    skips: tuple[Skip, ...] = ()
    spent: tuple[float, ...] = ()
    """Seconds in each step, bottom up."""
    seen: tuple[Seen, ...] = ()
    has_waited: bool = False
    """Whether making it was mostly waiting, for a disk or a network."""

    @property
    def seconds(self) -> float:
        """How long it took."""
        return sum(self.spent)

    def then(self, run: Callable[[Block], "Outcome"]) -> "Outcome":
        """Give the outcome of a step that runs on these elements."""
        if not len(self.block):
            spent = (*self.spent, 0.0)
            return Outcome(self.block, self.error, 0, self.skips, spent, self.seen)
        start = time.perf_counter()
        made = run(self.block)
        spent = (*self.spent, time.perf_counter() - start)
        below, seen = self.skips, self.seen
        if made.error is not None and below:  # what lies beyond the error was not yet met
            limit = self.block.track.after(made.row)
            below = tuple(skip for skip in below if skip.cursor <= limit)
        if made.error is not None and seen:
            position = self.block.track.position(made.row)
            seen = tuple(part.before(position) for part in seen)
        return Outcome(
            made.block,
            made.error or self.error,
            made.row,
            below + made.skips,
            spent,
            seen + made.seen,
        )


def join_outcomes(outcomes: list[Outcome]) -> Outcome:
    """Give one outcome for several that follow each other; only the last may have an error."""
    blocks = [outcome.block for outcome in outcomes if len(outcome.block)]
    return Outcome(
        concatenate(blocks) if blocks else Block.empty(),
        outcomes[-1].error if outcomes else None,
        skips=tuple(skip for outcome in outcomes for skip in outcome.skips),
        spent=tuple(map(sum, zip(*(outcome.spent for outcome in outcomes), strict=False))),
        seen=tuple(seen for outcome in outcomes for seen in outcome.seen),
        has_waited=any(outcome.has_waited for outcome in outcomes),
    )
