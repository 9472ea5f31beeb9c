"""Find the processes that a process has started, and their private memory (Linux only)."""

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
    """Return all descendants. They are found by their parents: some kernels list no children."""
    children: dict[int, list[int]] = {}
    for folder in _PROC.iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended in the meantime
            parent = int(stat.rpartition(")")[2].split()[1])  # its name may contain any character
            children.setdefault(parent, []).append(int(folder.name))
    found: list[int] = []
    left = [pid]
    while left:
        own = children.get(left.pop(), [])
        found += own
        left += own
    return found


def worker_pids() -> list[int]:
    """Return the processes that this one started, without the resource tracker."""
    return [
        pid
        for pid in descendants(os.getpid())
        if b"resource_tracker" not in (_PROC / str(pid) / "cmdline").read_bytes()
    ]


def count_workers() -> int | None:
    """Return the number of worker processes, or None if the system does not report it."""
    return len(worker_pids()) if sys.platform == "linux" else None


@dataclass(frozen=True, kw_only=True)
class Memory:
    """The resident memory of a process, in bytes."""

    private: int
    """The memory that would be freed if the process ended, without shared memory.

    The kernel calls a page private if only one process has mapped it. That includes pages of a
    batch in shared memory that the consumer has not read yet, so shared memory is left out.
    """
    proportional: int
    """All memory, where a page of n processes counts as 1/n: their sum counts each page once."""
    shared: int
    """The part of `proportional` that is shared memory."""


def memory_of(pid: int) -> Memory:
    """Add up what the kernel reports for each mapping."""
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
    """Return the private memory of an idle Python process that has imported NumPy."""
    program = "import sys, numpy; print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as bare:
        assert bare.stdout is not None
        bare.stdout.readline()
        own = memory_of(bare.pid).private
        bare.communicate()
    return own
