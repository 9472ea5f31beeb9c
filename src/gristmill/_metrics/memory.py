"""Memory of this process and of its workers, measured in microseconds."""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path

WORKERS: dict[int, None] = {}
"""The worker processes of this process that are running, of all loaders and datasets, as keys.

Any thread may add or remove one: both are a single operation.
"""

os.register_at_fork(after_in_child=WORKERS.clear)


def own_memory() -> int:
    """Return the resident memory of this process, or 0 where the system has no `/proc`.

    It includes what the process has mapped of shared memory.
    """
    return _pages("self")[0] * mmap.PAGESIZE


def worker_memory(pids: Iterable[int] | None = None) -> int:
    """Return the resident memory of worker processes, added up, without shared memory and files.

    Pages that forks have not written to are counted in each of them. A count
    without them takes the system milliseconds.

    Args:
        pids: The processes. By default all workers.
    """
    found = map(_pages, list(WORKERS) if pids is None else pids)
    return sum(resident - shared for resident, shared in found) * mmap.PAGESIZE


def _pages(process: int | str) -> tuple[int, int]:
    """Return the pages of a process that are in memory, and those of them that may be shared."""
    try:
        fields = Path(f"/proc/{process}/statm").read_bytes().split()
        return int(fields[1]), int(fields[2])
    except (OSError, IndexError, ValueError):
        return 0, 0
