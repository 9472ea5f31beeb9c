"""The processes a process has started, and the memory that each has to itself (Linux only)."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_MAPPING = re.compile(r"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ \S+ \d+ *(?P<path>.*)$")
_SHARED_MEMORY = ("/memfd:", "/dev/shm/", "/SYSV", "/dev/zero")


def descendants(pid: int) -> list[int]:
    """Children and their children, from every process's parent: not all kernels list children."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended meanwhile
            parent = int(stat.rpartition(")")[2].split()[1])  # its name may hold anything
            children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    left = [pid]
    while left:
        own = children.get(left.pop(), [])
        found += own
        left += own
    return found


def worker_pids() -> list[int]:
    """What this process has started; not `multiprocessing`'s helper that waits for their end."""
    return [
        pid
        for pid in descendants(os.getpid())
        if b"resource_tracker" not in (_PROC / str(pid) / "cmdline").read_bytes()
    ]


def count_workers() -> int | None:
    """How many worker processes there are; None where the system does not tell."""
    return len(worker_pids()) if sys.platform == "linux" else None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The resident memory of a process, in bytes."""

    private: int
    """What would be free if the process were gone, shared memory apart.

    The kernel calls a page private when one process alone has it mapped. A page of shared memory
    that the consumer has not looked at yet is no less a part of a batch, so those do not count.
    """
    proportional: int
    """All of it, a page of n processes counting for one n-th: a sum over all counts each once."""
    shared: int
    """The part of `proportional` that is shared memory."""


def memory_of(pid: int) -> Memory:
    """Add up what the kernel tells of every mapping."""
    private = proportional = shared = 0
    is_shared = False
    for line in (_PROC / str(pid) / "smaps").read_text().splitlines():
        mapping = _MAPPING.match(line)
        if mapping:
            is_shared = mapping["path"].startswith(_SHARED_MEMORY)
            continue
        key, _, value = line.partition(":")
        if key == "Pss":
            size = int(value.split()[0]) * 1024
            proportional += size
            shared += size if is_shared else 0
        elif key in ("Private_Clean", "Private_Dirty") and not is_shared:
            private += int(value.split()[0]) * 1024
    return Memory(private=private, proportional=proportional, shared=shared)


def bare_private_bytes() -> int:
    """What a Python that has imported NumPy, and does nothing, has to itself."""
    program = "import sys, numpy; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        own = memory_of(bare.pid).private
        bare.communicate()
    return own
