"""Look at processes through /proc, and wait for them."""

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.time_limits import PATIENCE_S

_LOOK_AGAIN_S = 0.005


def until(holds: Callable[[], object], what: str, *, seconds: float = PATIENCE_S) -> float:
    """Wait until something holds that no event reports; return how long that took."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}"
        time.sleep(_LOOK_AGAIN_S)
    return time.monotonic() - began


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started, also dead ones nobody waited for."""
    found: list[int] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if int(_status(int(folder.name))[1]) == pid:
                    found.append(int(folder.name))
    return sorted(found)


def descendants_of(pid: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    children = children_of(pid)
    return [*children, *(one for child in children for one in descendants_of(child))]


def workers_of(pid: int) -> list[int]:
    """Return the workers that a process has running, but for those of earlier tests.

    They are its own children, and those of its fork servers.
    """
    children = children_of(pid)
    forked = [one for server in children if is_fork_server(server) for one in children_of(server)]
    workers = [child for child in children if _role_of(child) == b"worker"]
    running = [one for one in [*workers, *forked] if is_alive(one)]
    return sorted(one for one in running if one not in _disregarded_workers)


_disregarded_workers: set[int] = set()


def disregard_workers() -> None:
    """Disregard the idle workers of loaders that earlier tests in this process keep alive."""
    _disregarded_workers.clear()
    _disregarded_workers.update(workers_of(os.getpid()))


def fork_servers_of(pid: int) -> list[int]:
    """Return the fork servers that a process has running."""
    return [child for child in children_of(pid) if is_fork_server(child)]


def is_worker(pid: int) -> bool:
    """Return whether a process is a worker that runs."""
    with contextlib.suppress(OSError):
        role, parent = _role_of(pid), int(_status(pid)[1])
        is_forked = role == b"serve" and _role_of(parent) == b"serve"
        return (role == b"worker" or is_forked) and is_alive(pid)
    return False


def is_fork_server(pid: int) -> bool:
    """Return whether a process is a fork server that runs. Its workers have its command line."""
    with contextlib.suppress(OSError):
        role, parent = _role_of(pid), int(_status(pid)[1])
        return role == b"serve" and _role_of(parent) != b"serve" and is_alive(pid)
    return False


def is_alive(pid: int) -> bool:
    """Return whether a process runs: it exists, and is no zombie."""
    with contextlib.suppress(OSError):
        return _status(pid)[0] not in "ZX"
    return False


def is_stopped(pid: int) -> bool:
    """Return whether a process was stopped by SIGSTOP."""
    with contextlib.suppress(OSError):
        return _status(pid)[0] == "T"
    return False


def is_idle(pid: int) -> bool:
    """Return whether a worker waits for a message of its parent."""
    return _waits_in(pid) == "unix_stream_read_generic"


def waits_to_send(pid: int) -> bool:
    """Return whether a thread of a worker waits for its parent to listen."""
    places = {"sock_alloc_send_pskb", "unix_stream_sendmsg"}
    return any(_waits_in(thread) in places for thread in _threads_of(pid))


def gone(pids: Iterable[int]) -> Callable[[], bool]:
    """Return a function that reports whether all of some processes are dead."""
    wanted = list(pids)
    return lambda: not any(map(is_alive, wanted))


def kill_quietly(pids: Iterable[int], number: int = signal.SIGKILL) -> None:
    """Send a signal to processes, some of which may be gone."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def num_descriptors(pid: int) -> int:
    """Count the open files of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def shared_mappings(pid: int) -> list[str]:
    """Return the lines of /proc/PID/maps about memory that batches travel in."""
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    ours = [line for line in lines if "memfd:gristmill" in line or "/gristmill-" in line]
    return [line for line in ours if line not in _disregarded]


_disregarded: set[str] = set()


def disregard_mappings() -> None:
    """Look away from what earlier tests in this process keep, in JAX's caches for instance."""
    _disregarded.clear()
    _disregarded.update(shared_mappings(os.getpid()))


def shared_bytes(pid: int) -> int:
    """Count the bytes of address space that batches travel in."""
    total = 0
    for line in shared_mappings(pid):
        low, _, high = line.split()[0].partition("-")
        total += int(high, 16) - int(low, 16)
    return total


def _waits_in(pid: int) -> str:
    """Name the place in the kernel where the first thread of a process waits."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/wchan").read_text()
    return ""


def _threads_of(pid: int) -> list[int]:
    """Return the ids of the threads of a process, of which a worker that reads ahead has many."""
    with contextlib.suppress(OSError):
        return [int(folder.name) for folder in Path(f"/proc/{pid}/task").iterdir()]
    return []


def _status(pid: int) -> tuple[str, str]:
    """Return the state of a process, and its parent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return fields[0], fields[1]


def _role_of(pid: int) -> bytes:
    """Return what a process of ours was started as; nothing for others, and for dead ones."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        for program, role in itertools.pairwise(command):
            if program.endswith(b"/processes/worker_bootstrap.py"):
                return role
    return b""
