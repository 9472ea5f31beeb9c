"""Find out whether the code that runs lets go of the interpreter.

A thread that wakes up must have the interpreter before it can look at the clock. If whoever runs
holds on to it, that takes the interpreter's switch interval (5 ms), time after time; if it lets go,
next to nothing. So a few naps tell, at the cost of a few switches, whether threads can help at all.
"""

import statistics
import sys
import time
from typing import final

from gristmill._base.background import Background

NUM_SLEEPS = 5
SLEEP_SECONDS = 0.0002


@final
class InterpreterProbe:
    """A thread that takes a few naps beside the code in question."""

    def __init__(self) -> None:
        self._naps: list[float] = []
        Background(_nap, (self._naps,), name="gristmill-probe").start()

    @property
    def is_done(self) -> bool:
        """Whether it can tell."""
        return len(self._naps) == NUM_SLEEPS

    @property
    def is_held(self) -> bool:
        """Whether the code mostly kept the interpreter to itself."""
        return statistics.median(self._naps) > sys.getswitchinterval() / 2


def _nap(naps: list[float]) -> None:
    for _ in range(NUM_SLEEPS):
        start = time.perf_counter()
        time.sleep(SLEEP_SECONDS)
        naps.append(time.perf_counter() - start)
