"""Start a worker process, tied to its parent by a pipe: a fork of the fork server if possible.

Otherwise it is a new interpreter. Neither runs the user's `__main__`.
"""

import contextlib
import os
import subprocess
import sys
from collections.abc import Collection, Mapping
from typing import Protocol, final

from gristmill._engine.executors.processes.fork_server import (
    BOOTSTRAP,
    Refusal,
    fork_server,
    interpreter,
)
from gristmill._engine.executors.processes.inherited_state import worker_environment
from gristmill.errors import WorkerError


class WorkerHandle(Protocol):
    """A process that was started for a worker. It dies when its lifeline is closed."""

    @property
    def pid(self) -> int:
        """Process id."""
        ...

    @property
    def refusal(self) -> Refusal | None:
        """Why the process was never started, if so. Known after `wait`."""
        ...

    @property
    def end_descriptor(self) -> int | None:
        """What to poll for `has_ended`, or `None` if the system has no such descriptor."""
        ...

    def has_ended(self) -> bool:
        """Return whether the process is known to be dead, without waiting."""
        ...

    def kill(self) -> None:
        """Kill the process, unless closing its lifeline is enough."""
        ...

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` if that is not known."""
        ...

    def close(self) -> None:
        """Release what belongs to it, after `wait`."""
        ...


def launch(*, channel: int, lifeline: int, modules: Collection[str]) -> WorkerHandle:
    """Start a process for a worker.

    Args:
        channel: The worker's end of the socket. It is inherited; the caller closes its copy.
        lifeline: The reading end of a pipe. When the writing end closes, because the parent closes
            it or dies in whatever way, the kernel kills the process at once.
        modules: What the plan refers to. The fork server imports them once for all workers.

    Raises:
        WorkerError: The system cannot start another process.
    """
    environment = worker_environment()
    try:
        server = fork_server(environment, modules)
        if server is not None:
            with contextlib.suppress(ConnectionError):  # it died just now
                return server.fork(channel, lifeline, modules)
        return InterpreterProcess(channel=channel, lifeline=lifeline, environment=environment)
    except OSError as error:
        raise WorkerError(f"A worker process could not be started: {error}.") from error


def prepare() -> None:
    """Start the fork server, without waiting for it, so that it is ready when it is needed."""
    with contextlib.suppress(OSError):  # `launch` reports it
        fork_server(worker_environment())


@final
class InterpreterProcess:
    """A new interpreter that runs a worker."""

    refusal = None

    def __init__(self, *, channel: int, lifeline: int, environment: Mapping[str, str]) -> None:
        self._owner = os.getpid()
        self._process = subprocess.Popen(
            [*interpreter(), "-P", BOOTSTRAP, "worker", str(channel), str(lifeline)],
            pass_fds=(channel, lifeline),
            stdin=subprocess.DEVNULL,
            env=environment,
            process_group=0,  # the terminal sends Ctrl-C to the parent only
        )
        self._end_descriptors = _open_pid(self._process.pid)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def end_descriptor(self) -> int | None:
        """A descriptor of the process itself, which becomes readable when it ends."""
        return next(iter(self._end_descriptors), None)

    def has_ended(self) -> bool:
        """Return whether the process is dead, without waiting."""
        return os.getpid() == self._owner and self._process.poll() is not None

    def kill(self) -> None:
        """Kill the process, unless this process is a fork of the one that started it."""
        if os.getpid() == self._owner:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` in a fork of the parent."""
        return self._process.wait() if os.getpid() == self._owner else None

    def close(self) -> None:
        """Close the descriptor of the process."""
        with contextlib.suppress(IndexError):
            os.close(self._end_descriptors.pop())


def _open_pid(pid: int) -> list[int]:
    """Return a descriptor of a child process, in a list; empty if the system has none."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # before Linux 5.3, or not allowed in a sandbox
            return [os.pidfd_open(pid)]
    return []
