"""The counters at one moment, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class StepStats:
    """One step of the pipeline, and the seconds spent in it, added up over threads and workers."""

    name: str
    seconds: float


@final
@dataclass(frozen=True, kw_only=True)
class Stats:
    """What a loader, or one of its iterators, has done so far, and what it holds.

    >>> Stats(elements=10, elapsed_s=2.0, waited_s=0.5).waited_share
    0.25
    """

    elements: int = 0
    """Handed out to the user."""
    num_bytes: int = 0
    """Of the arrays in them, judged by one element of each block."""
    elapsed_s: float = 0.0
    """From the first element asked for to the last."""
    waited_s: float = 0.0
    """How much of it the user's code waited for an element."""
    steps: tuple[StepStats, ...] = ()
    """From the source up."""
    skipped: int = 0
    """Bad records left out on request."""
    executor: str = "inline"
    """What runs it now: inline, threads or processes."""
    num_threads: int = 0
    num_workers: int = 0
    restarts: int = 0
    """Workers that died and were replaced."""
    blocks_ready: int = 0
    """Pieces of work that are done and wait for the user."""
    blocks_under_way: int = 0
    """Pieces of work that were handed out and are not done."""
    shared_bytes: int = 0
    """Shared memory that is mapped for batches of workers."""

    @property
    def waited_share(self) -> float:
        """The share of the time that the user's code waited for data."""
        return self.waited_s / self.elapsed_s if self.elapsed_s else 0.0

    def summary(self) -> str:
        """Say in a line how much of the time the user's code waited for data.

        >>> Stats(elements=120, elapsed_s=3.2, waited_s=0.0104).summary()
        'waited for data 0.3% of the time: 0.01 s of 3.20 s, 120 elements'
        """
        return (
            f"waited for data {100 * self.waited_share:.1f}% of the time: {self.waited_s:.2f} s of "
            f"{self.elapsed_s:.2f} s, {self.elements:,} elements"
        )


def add_stats(parts: Iterable[Stats]) -> Stats:
    """Add up what several iterators did; how they run is taken from the last.

    >>> add_stats([Stats(elements=1), Stats(elements=2)]).elements
    3
    """
    total = Stats()
    for part in parts:
        before = [step.seconds for step in total.steps] or [0.0] * len(part.steps)
        total = Stats(
            elements=total.elements + part.elements,
            num_bytes=total.num_bytes + part.num_bytes,
            elapsed_s=total.elapsed_s + part.elapsed_s,
            waited_s=total.waited_s + part.waited_s,
            steps=tuple(
                StepStats(name=step.name, seconds=step.seconds + seconds)
                for step, seconds in zip(part.steps, before, strict=True)
            ),
            skipped=total.skipped + part.skipped,
            executor=part.executor,
            num_threads=part.num_threads,
            num_workers=part.num_workers,
            restarts=total.restarts + part.restarts,
            blocks_ready=part.blocks_ready,
            blocks_under_way=part.blocks_under_way,
            shared_bytes=part.shared_bytes,
        )
    return total
