"""Statistics of a loader or iterator at one moment, as data."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import final


@final
@dataclass(frozen=True, kw_only=True)
class StepStats:
    """Time spent in one step of the pipeline, added up over threads and workers."""

    name: str
    elapsed_s: float


@final
@dataclass(frozen=True, kw_only=True)
class Stats:
    """What a loader, or one of its iterators, has done so far and holds now.

    Counts are named `num_x`, times end in `_s`, amounts of memory in `_bytes`.

    >>> Stats(num_elements=10, elapsed_s=2.0, waited_s=0.5).waited_share
    0.25
    """

    num_elements: int = 0
    """Elements handed to the caller."""
    output_bytes: int = 0
    """Bytes of the arrays in them, estimated from one element of each block."""
    elapsed_s: float = 0.0
    """Time from the first request to the last element."""
    waited_s: float = 0.0
    """Part of `elapsed_s` in which the caller waited for an element."""
    steps: tuple[StepStats, ...] = ()
    """Steps of the pipeline, from the source up."""
    num_skipped: int = 0
    """Bad records skipped on request."""
    executor: str = "inline"
    """Current executor: `"inline"`, `"threads"` or `"processes"`."""
    num_threads: int = 0
    """Threads that read and compute."""
    num_workers: int = 0
    """Worker processes."""
    worker_start: str = ""
    """How the workers were started: `"forked"` from the fork server, or `"spawned"` as new
    interpreters, with the reason why they could not be forked."""
    num_restarts: int = 0
    """Workers that died and were replaced."""
    num_blocks_ready: int = 0
    """Blocks that are computed and not yet requested."""
    num_blocks_in_flight: int = 0
    """Blocks that are being computed."""
    shared_memory_bytes: int = 0
    """Shared memory that is mapped for the batches of workers."""

    @property
    def waited_share(self) -> float:
        """Share of the elapsed time in which the caller waited for data."""
        return self.waited_s / self.elapsed_s if self.elapsed_s else 0.0

    def summary(self) -> str:
        """Return one line about how much of the time the caller waited for data.

        >>> Stats(num_elements=120, elapsed_s=3.2, waited_s=0.0104).summary()
        'waited for data 0.3% of the time: 0.01 s of 3.20 s, 120 elements'
        """
        return (
            f"waited for data {100 * self.waited_share:.1f}% of the time: {self.waited_s:.2f} s of "
            f"{self.elapsed_s:.2f} s, {self.num_elements:,} elements"
        )


def add_stats(several: Iterable[Stats]) -> Stats:
    """Add up the statistics of several iterators; the execution details are those of the last.

    >>> add_stats([Stats(num_elements=1), Stats(num_elements=2)]).num_elements
    3
    """
    total = Stats()
    for stats in several:
        before = [step.elapsed_s for step in total.steps] or [0.0] * len(stats.steps)
        total = Stats(
            num_elements=total.num_elements + stats.num_elements,
            output_bytes=total.output_bytes + stats.output_bytes,
            elapsed_s=total.elapsed_s + stats.elapsed_s,
            waited_s=total.waited_s + stats.waited_s,
            steps=tuple(
                StepStats(name=step.name, elapsed_s=step.elapsed_s + seconds)
                for step, seconds in zip(stats.steps, before, strict=True)
            ),
            num_skipped=total.num_skipped + stats.num_skipped,
            executor=stats.executor,
            num_threads=stats.num_threads,
            num_workers=stats.num_workers,
            worker_start=stats.worker_start,
            num_restarts=total.num_restarts + stats.num_restarts,
            num_blocks_ready=stats.num_blocks_ready,
            num_blocks_in_flight=stats.num_blocks_in_flight,
            shared_memory_bytes=stats.shared_memory_bytes,
        )
    return total
