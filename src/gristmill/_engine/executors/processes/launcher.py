"""Start a worker process: a clean interpreter, tied to its parent by a pipe."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import cast, final

from gristmill.errors import WorkerError

BOOTSTRAP = Path(__file__).with_name("worker_bootstrap.py")
"""Run as a program in a clean interpreter, without the user's `__main__`."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


@final
class LaunchedProcess:
    """A process that was started for a worker.

    Args:
        channel: The worker's end of the socket. It is inherited; the caller closes its copy.
        lifeline: The reading end of a pipe. When the writing end closes, because the parent closes
            it or dies in whatever way, the kernel kills the process at once.

    Raises:
        WorkerError: The system cannot start another process.
    """

    def __init__(self, *, channel: int, lifeline: int) -> None:
        self._owner = os.getpid()
        try:
            self._process = subprocess.Popen(
                [*_interpreter(), "-P", BOOTSTRAP, str(channel), str(lifeline)],
                pass_fds=(channel, lifeline),
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
                process_group=0,  # the terminal sends Ctrl-C to the parent only
            )
        except OSError as error:
            raise WorkerError(f"A worker process could not be started: {error}.") from error

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


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a worker.

    If the user's code imports JAX in a worker, JAX sees the CPU only and joins no distributed job.
    There are as many workers as cores, so numerical libraries get one thread each: more would
    compete with the other workers.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _JAX_VARIABLES}
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


def _interpreter() -> list[str]:
    """Return the command that starts an interpreter like this one, as `multiprocessing` does."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # pyright: ignore # noqa: SLF001
    return [sys.executable, *flags]
