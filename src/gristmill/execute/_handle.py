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
from typing import Any, final

from gristmill.errors import WorkerError
from gristmill.execute._ipc._arena import Shelf
from gristmill.execute._ipc._channel import Channel

BOOT = """\
import json, os, sys
sys.path[:] = json.loads(os.environ.pop("GRISTMILL_WORKER_PATH"))
from gristmill.execute._worker import main
main(int(sys.argv[1]), int(sys.argv[2]))
"""
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
    environment["JAX_PLATFORMS"] = "cpu"
    environment["GRISTMILL_WORKER_PATH"] = json.dumps(sys.path)
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
        self.is_ready = False
        self.position: int | None = None
        """The record it is at, where it was asked to tell."""
        self.busy_since = time.monotonic()
        self.was_too_slow = False
        self._owner = os.getpid()
        mine, theirs = socket.socketpair()
        lifeline, kept = os.pipe()
        self._lifeline = [kept]  # a list, from which only one thread gets it to close it
        self.channel = Channel(mine)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT, str(theirs.fileno()), str(lifeline)],
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

    def bury(self) -> str:
        """Wait until it is dead, let go of everything, and say what it died of."""
        self.kill()
        code = self._process.wait()
        self.close_descriptors()
        self.shelf.close()
        if self.was_too_slow:
            return "it took longer than `block_timeout_s`"
        if code == -9:
            return "signal SIGKILL, as the kernel sends when memory runs out"
        if code < 0:
            return f"signal {signal_name(-code)}"
        return f"exit code {code}"

    def end(self) -> None:
        """Kill it and clean up, from whatever thread; not if this process only inherited it."""
        if os.getpid() == self._owner:
            self.bury()

    def close_descriptors(self) -> None:
        """Close the line and the lifeline."""
        _started.discard(self)
        self.channel.close()
        with contextlib.suppress(IndexError):
            os.close(self._lifeline.pop())


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
