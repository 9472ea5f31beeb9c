"""A Ray cluster with several nodes on this machine, and what happens to it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gristmill as gm

STORE_BYTES = 160 << 20
ENVIRONMENT = {
    # The actors need environments of their own, so that none of these would be used.
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",  # else `ray start` requires a token if this user has one
    "RAY_DEDUP_LOGS": "0",
    "RAY_TQDM_PATCH_PRINT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def start_cluster(num_nodes: int = 2, num_cpus: int = 4, **head: Any) -> Any:
    """Return a cluster with that many nodes. Its head has no CPUs for actors if there are more."""
    from ray.cluster_utils import Cluster  # noqa: PLC0415 - after the environment is set

    is_alone = num_nodes == 1
    arguments = {"num_cpus": num_cpus if is_alone else 0, **head}
    cluster = Cluster()
    started: list[Any] = []
    while len(started) < (1 if is_alone else 1 + num_nodes):
        if started:
            arguments = {"num_cpus": num_cpus}
        else:
            arguments["include_dashboard"] = False
        started.append(add_node(cluster, **arguments))
    return cluster


def add_node(cluster: Any, **arguments: Any) -> Any:
    """Add a node. Ray gives up after 30 seconds, which is too early on a busy machine."""
    for attempt in range(3):
        try:
            return cluster.add_node(object_store_memory=STORE_BYTES, **{"num_cpus": 4, **arguments})
        except Exception as error:
            if "timed out during startup" not in str(error) or attempt == 2:
                raise
    raise AssertionError


def kill_node(node: Any) -> None:
    """Kill a node as a power failure would: its raylet and all of its workers at once."""
    (raylet,) = node.all_processes["raylet"]
    pid = raylet.process.pid
    for child in [*children_of(pid), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def stop_node(node: Any, number: signal.Signals = signal.SIGSTOP) -> None:
    """Let a node hang, or continue: its raylet and all of its workers."""
    (raylet,) = node.all_processes["raylet"]
    pid = raylet.process.pid
    for process in [pid, *children_of(pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)


def children_of(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def _command_lines() -> Iterator[tuple[int, bytes]]:
    """Yield the processes of this machine, but for this one, and their command lines."""
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                yield int(name), file.read()


def actor_pids() -> list[int]:
    """Return the processes of all actors of gristmill on this machine."""
    return [
        pid
        for pid, line in _command_lines()
        if line.startswith(b"ray::") and (b"GristmillWorker" in line or b"gristmill " in line)
    ]


def pids_with_files_in(folder: Path) -> list[int]:
    """Return the processes that have files of a folder open."""
    found: list[int] = []
    for pid, _ in _command_lines():
        with contextlib.suppress(OSError):
            links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
            if any(link.is_relative_to(folder) for link in links):
                found.append(pid)
    return found


def kill_processes_of(*names: str) -> None:
    """Kill the processes of a cluster, by its folder, its address, or both."""
    for pid, line in _command_lines():
        if any(name.encode() in line for name in names):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def until(holds: Callable[[], object], what: str, *, seconds: float = 60.0) -> float:
    """Wait until something holds that no event reports; return how long that took."""
    began = time.monotonic()
    while not holds():
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def ray_options(**options: Any) -> gm.RayOptions:
    """Return options for actors that are not limited by the few cores of this machine."""
    return gm.RayOptions(**{"num_cpus": 0.25, "start_timeout_s": 30.0, **options})
