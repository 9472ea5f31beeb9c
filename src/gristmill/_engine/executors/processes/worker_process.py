"""Worker process as the parent handles it: start, messages, end."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast, final

from gristmill._engine.executors.ipc.arena import MappedSlots, SlotRange
from gristmill._engine.executors.ipc.channel import Channel
from gristmill._engine.executors.ipc.log_relay import relay_settings
from gristmill._engine.executors.ipc.plan_payload import PlanPayload
from gristmill._engine.executors.processes.reply import BlockReply
from gristmill._engine.executors.scheduling.task import Task
from gristmill.errors import WorkerError

BOOTSTRAP = Path(__file__).with_name("worker_bootstrap.py")
"""Run as a program in a clean interpreter, without the user's `__main__`."""

MAX_FREED_PER_TASK = 1000
"""Slots returned with one task, so that the message never fills the socket."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_JAX_VARIABLES = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")


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


@final
class WorkerProcess:
    """One worker process, its channel, and the slots of shared memory it has sent.

    The process holds the reading end of a pipe, its lifeline. When the writing end closes, because
    this process closes it or dies in whatever way, the kernel kills the worker at once.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.mapped_slots = MappedSlots()
        self.is_initialized = False
        """Whether `send_init` was called."""
        self.has_timed_out = False
        """Whether the parent kills it because it exceeded `block_timeout_s`."""
        self._owner = os.getpid()
        parent_end, worker_end = socket.socketpair()
        lifeline, held_end = os.pipe()
        self._lifeline = [held_end]  # a list, so that only one thread can pop it and close it
        self.channel = Channel(parent_end)
        try:
            self._process = subprocess.Popen(
                [*_interpreter(), "-P", BOOTSTRAP, str(worker_end.fileno()), str(lifeline)],
                pass_fds=(worker_end.fileno(), lifeline),
                stdin=subprocess.DEVNULL,
                env=worker_environment(),
                process_group=0,  # the terminal sends Ctrl-C to the parent only
            )
        except OSError as error:
            self.close_descriptors()
            raise WorkerError(f"A worker process could not be started: {error}.") from error
        finally:
            worker_end.close()
            os.close(lifeline)
        _started.add(self)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def send_init(self, payload: PlanPayload, *, num_workers: int) -> None:
        """Send the plans, which the worker loads as soon as it has started."""
        self._send(
            (
                "init",
                self.number,
                num_workers,
                payload.sizes,
                payload.pytrees,
                relay_settings(),
            ),
            [payload.descriptor],
        )
        self.is_initialized = True

    def send_task(self, task: Task) -> None:
        """Send a task, along with the slots that the worker may reuse."""
        freed = self.mapped_slots.take_freed(MAX_FREED_PER_TASK)
        self._send(("task", task.number, task.job, task.positions, task.tries > 0, freed))

    def withdraw_task(self, task: Task) -> None:
        """Ask the worker to drop a task, unless it has begun it."""
        self._send(("withdraw", task.number))

    def _send(self, message: tuple[Any, ...], descriptors: Sequence[int] = ()) -> None:
        """Send a message; that the worker is dead is noticed when its messages are received."""
        with contextlib.suppress(ConnectionError):
            self.channel.send(message, descriptors)

    def open_reply(
        self,
        payload: bytes | None,
        slot_ranges: list[SlotRange],
        opened: list[tuple[int, int]],
        closed: list[int],
        error: bytes | None,
        step_seconds: tuple[float, ...],
    ) -> BlockReply:
        """Map the shared memory that a reply refers to."""
        for slot, size in opened:
            self.mapped_slots.open(slot, size, self.channel.take_descriptor())
        self.mapped_slots.drop(closed)
        memory = {
            slot: self.mapped_slots.lease(slot) for slot in {slot for slot, _, _ in slot_ranges}
        }
        buffers = [memory[slot][offset : offset + size] for slot, offset, size in slot_ranges]
        return BlockReply(
            buffers.pop() if payload is None else payload,
            buffers,
            error,
            step_seconds,
            num_bytes=sum(size for _, _, size in slot_ranges),
        )

    def kill(self) -> None:
        """Kill the process, unless this process is a fork of the one that started it."""
        if os.getpid() == self._owner:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` in a fork of the parent."""
        return self._process.wait() if os.getpid() == self._owner else None

    def reap(self) -> str:
        """Kill the process, wait for it and release its resources; return what it died of."""
        self.kill()
        code = self.wait() or 0
        self.close_descriptors()
        self.mapped_slots.close()
        if self.has_timed_out:
            return "it took longer than `block_timeout_s`"
        if code == -signal.SIGKILL:
            return "signal SIGKILL, as the kernel sends when memory runs out"
        if code < 0:
            return f"signal {signal_name(-code)}"
        return f"exit code {code}"

    def close_descriptors(self) -> None:
        """Close the channel and the lifeline."""
        _started.discard(self)
        self.channel.close()
        with contextlib.suppress(IndexError):
            os.close(self._lifeline.pop())


def _interpreter() -> list[str]:
    """Return the command that starts an interpreter like this one, as `multiprocessing` does."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # pyright: ignore # noqa: SLF001
    return [sys.executable, *flags]


def signal_name(number: int) -> str:
    """Return the name of a signal.

    >>> signal_name(11)
    'SIGSEGV'
    """
    return signal.Signals(number).name


_started: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


def _close_after_fork() -> None:
    """Close the lifelines in a fork: else workers would outlive the process that started them."""
    for worker in list(_started):
        worker.close_descriptors()


os.register_at_fork(after_in_child=_close_after_fork)
