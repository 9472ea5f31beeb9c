"""Have the allocator keep what batches need again and again."""

from functools import cache

import numpy as np


@cache
def keep_memory_warm() -> None:
    """Make the allocator keep the memory of batches that are gone for those that come.

    By default glibc returns free memory beyond 128 kB to the system, and a batch of 100 kB in
    fresh pages takes three times as long as in used ones. It keeps as much as twice the largest
    block that was ever freed, so one is freed here, without having been touched.
    """
    np.empty(16 << 20, dtype=np.uint8)
