"""What one step took for some blocks: computing, waiting, and waiting for the interpreter."""

from collections.abc import Iterable
from typing import NamedTuple


class StepTime(NamedTuple):
    """Seconds of one thread in a step, divided by what the thread did. A tuple, one per block.

    What is left of `elapsed_s` is time in which the thread was ready to compute, but other threads
    or processes had all cores.
    """

    elapsed_s: float = 0.0
    cpu_s: float = 0.0
    """Seconds in which the thread had a core."""
    waited_s: float = 0.0
    """Seconds in which it waited for a disk, a network, or anything else."""
    interpreter_wait_s: float = 0.0
    """Seconds in which it waited for the interpreter lock."""

    def plus(self, other: "StepTime") -> "StepTime":
        """Return the sum of two times."""
        return StepTime(
            self[0] + other[0], self[1] + other[1], self[2] + other[2], self[3] + other[3]
        )


def computing(seconds: float) -> StepTime:
    """Return the time of a step that had a core all the time.

    >>> computing(2.0).cpu_s
    2.0
    """
    return StepTime(seconds, seconds)


def add_times(times: Iterable[StepTime]) -> StepTime:
    """Add up the times of a step.

    >>> add_times([computing(1.0), StepTime(2.0, waited_s=2.0)])
    StepTime(elapsed_s=3.0, cpu_s=1.0, waited_s=2.0, interpreter_wait_s=0.0)
    """
    return StepTime(*map(sum, zip(*times, strict=True)))
