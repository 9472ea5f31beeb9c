"""How much of the time of a run is that of copies, which the cores of a machine share."""

import time
from functools import cache

import numpy as np

MOSTLY_COPYING = 0.5
"""Steps for which one copy of the elements is more than this share of their time do nothing else:
other accesses to memory, such as the first one to new pages, take the rest."""

_SLOW_BYTES_PER_S = 1e9
"""Every machine copies more than twice as fast, so that fewer bytes need no measurement."""

_NUM_BYTES = 2**24
_NUM_COPIES = 4


def copied_share(num_bytes: int, cpu_s: float, *, bytes_per_s: float | None = None) -> float:
    """Return the share of copies in the CPU time of steps that return elements of `num_bytes`.

    >>> copied_share(8_000, 1.0, bytes_per_s=80_000), copied_share(8_000, 0.15, bytes_per_s=80_000)
    (0.1, 1.0)

    Args:
        num_bytes: The bytes of the elements. Each was copied at least once, into a batch.
        cpu_s: The time for which the steps had a core.
        bytes_per_s: How fast one core copies. By default that is measured, once per process, if the
            elements are so large that it matters.
    """
    if not cpu_s:
        return 0.0
    if bytes_per_s is None:
        if num_bytes < _SLOW_BYTES_PER_S * cpu_s:
            return 0.0
        bytes_per_s = copy_bytes_per_s()
    share = num_bytes / bytes_per_s / cpu_s
    return 1.0 if share > MOSTLY_COPYING else share


@cache
def copy_bytes_per_s() -> float:
    """Return how fast one core copies arrays of the size of a batch. It takes some milliseconds."""
    source = np.ones(_NUM_BYTES, np.uint8)
    target = np.empty_like(source)
    times: list[float] = []
    for _ in range(_NUM_COPIES):
        begin = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - begin)
    return _NUM_BYTES / max(min(times), 1e-9)
