"""The number of cores that this process may use."""

import os


def num_cores() -> int:
    """Return the number of cores that this process may use, which may be fewer than there are.

    >>> num_cores() >= 1
    True
    """
    affinity = getattr(os, "sched_getaffinity", None)  # not on macOS
    return len(affinity(0)) if affinity else os.cpu_count() or 1
