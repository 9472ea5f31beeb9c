"""Start a worker process, tied to its parent by a pipe: a fork of the fork server if possible.

Otherwise it is a new interpreter. Neither runs the user's `__main__`.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from typing import Protocol, cast, final

from gristmill._engine.executors.processes.fork_server import (
    BOOTSTRAP,
    Refusal,
    fork_server,
    interpreter,
)
from gristmill.errors import WorkerError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_VOLATILE_VARIABLES = ("PYTEST_CURRENT_TEST",)
"""They change all the time, and each change would require another fork server."""


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

    def kill(self) -> None:
        """Kill the process, unless closing its lifeline is enough."""
        ...

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` if that is not known."""
        ...

    def close(self) -> None:
        """Release what belongs to it, after `wait`."""
        ...


def launch(*, channel: int, lifeline: int, modules: Iterable[str]) -> WorkerHandle:
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
        server = fork_server(environment)
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

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def kill(self) -> None:
        """Kill the process, unless this process is a fork of the one that started it."""
        if os.getpid() == self._owner:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` in a fork of the parent."""
        return self._process.wait() if os.getpid() == self._owner else None

    def close(self) -> None:
        """Do nothing: the process holds nothing here."""


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a worker.

    If the user's code imports JAX in a worker, JAX sees the CPU only and joins no distributed job.
    There are as many workers as cores, so numerical libraries get one thread each: more would
    compete with the other workers.
    """
    left_out = (*_JAX_VARIABLES, *_VOLATILE_VARIABLES)
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    for name in _THREAD_VARIABLES:
        environment.setdefault(name, "1")
    # A set of strings iterates in the same order in all workers.
    environment.setdefault("PYTHONHASHSEED", "0")
    environment["JAX_PLATFORMS"] = "cpu"
    entries: list[object] = list(sys.path)  # programs insert `Path` objects, and even others
    path = [
        os.fspath(cast("str | os.PathLike[str]", entry))
        for entry in entries
        if isinstance(entry, str | os.PathLike)
    ]
    environment["GRISTMILL_WORKER_PATH"] = json.dumps(path)
    return environment
