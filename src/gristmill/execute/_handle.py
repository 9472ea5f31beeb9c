"""A worker process as the parent sees it: how it is started, spoken to and ended."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import deque
from pathlib import Path
from typing import Any, final

from gristmill.errors import WorkerError
from gristmill.execute._ipc._arena import Shelf
from gristmill.execute._ipc._channel import Channel

BOOT = Path(__file__).with_name("_boot.py")
"""A clean interpreter, and nothing of the user's `__main__`."""

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_JAX_JOB = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


def worker_environment() -> dict[str, str]:
    """Give the environment of a worker.

    If the user's code imports JAX there, it sees the CPU alone and belongs to no job. There are as
    many workers as cores, so one that computes with threads would only be in the others' way.
    """
    environment = {name: value for name, value in os.environ.items() if name not in _JAX_JOB}
    for name in _ONE_THREAD:
        environment.setdefault(name, "1")
    # A set of texts has the same order in all of them, whoever computes it.
    environment.setdefault("PYTHONHASHSEED", "0")
    environment["JAX_PLATFORMS"] = "cpu"
    entries: list[Any] = list(sys.path)  # people put paths in, and stranger things
    path: list[Any] = [
        os.fspath(entry) for entry in entries if isinstance(entry, str | os.PathLike)
    ]
    environment["GRISTMILL_WORKER_PATH"] = json.dumps(path)
    return environment


@final
class WorkerHandle:
    """One worker.

    It holds the reading end of a pipe, its lifeline: when the writing end closes, because this
    process closes it or dies of whatever, the kernel kills the worker, whatever it is doing.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.shelf = Shelf()
        self.tasks: deque[Any] = deque()
        """What it was given and has not given back, in that order; it is at the first."""
        self.is_greeted = False
        self.is_ready = False
        self.place: tuple[int, int | None] | None = None
        """The position it is at and the record of that, where it was asked to tell."""
        self.busy_since = time.monotonic()
        self.was_too_slow = False
        self._owner = os.getpid()
        mine, theirs = socket.socketpair()
        lifeline, kept = os.pipe()
        self._lifeline = [kept]  # a list, from which only one thread gets it to close it
        self.channel = Channel(mine)
        try:
            self._process = subprocess.Popen(
                [*_interpreter(), "-P", BOOT, str(theirs.fileno()), str(lifeline)],
                pass_fds=(theirs.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
                process_group=0,  # Ctrl-C is for the parent
            )
        except OSError as error:
            self.close_descriptors()
            raise WorkerError(f"A worker process could not be started: {error}.") from error
        finally:
            theirs.close()
            os.close(lifeline)
        _started.add(self)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def kill(self) -> None:
        """Make it die, unless this process only inherited it."""
        if os.getpid() == self._owner:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def wait(self) -> int | None:
        """Wait until it is dead, and give what it died of; not if it was only inherited."""
        return self._process.wait() if os.getpid() == self._owner else None

    def bury(self) -> str:
        """Wait until it is dead, let go of everything, and say what it died of."""
        self.kill()
        code = self.wait() or 0
        self.close_descriptors()
        self.shelf.close()
        if self.was_too_slow:
            return "it took longer than `block_timeout_s`"
        if code == -signal.SIGKILL:
            return "signal SIGKILL, as the kernel sends when memory runs out"
        if code < 0:
            return f"signal {signal_name(-code)}"
        return f"exit code {code}"

    def close_descriptors(self) -> None:
        """Close the line and the lifeline."""
        _started.discard(self)
        self.channel.close()
        with contextlib.suppress(IndexError):
            os.close(self._lifeline.pop())


def _interpreter() -> list[str]:
    """Give the command of an interpreter like this one, as `multiprocessing` does."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # pyright: ignore # noqa: SLF001
    return [sys.executable, *flags]


def signal_name(number: int) -> str:
    """Name a signal.

    >>> signal_name(11)
    'SIGSEGV'
    """
    return signal.Signals(number).name


_started: "weakref.WeakSet[WorkerHandle]" = weakref.WeakSet()


def _let_go_after_fork() -> None:
    """In a fork of this process: else the workers would outlive the one that started them."""
    for handle in list(_started):
        handle.close_descriptors()


os.register_at_fork(after_in_child=_let_go_after_fork)
