"""Worker process as the parent handles it: start, messages, end."""

import contextlib
import os
import signal
import socket
import weakref
from collections.abc import Collection, Sequence
from functools import partial
from typing import final

from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.processes.arena import MappedMemory, MappedSlots
from gristmill._engine.executors.processes.channel import Channel, Permits
from gristmill._engine.executors.processes.fork_server import ForkedProcess
from gristmill._engine.executors.processes.launcher import launch
from gristmill._engine.executors.processes.messages import (
    BlockReply,
    ComputeTask,
    Init,
    ReleaseSlots,
    SlotsClosed,
    TaskDone,
    TrimMemory,
    WithdrawTask,
)
from gristmill._engine.executors.serialization.block_codec import Message
from gristmill._engine.executors.serialization.log_relay import relay_settings
from gristmill._engine.executors.serialization.plan_payload import PlanPayload
from gristmill._metrics.memory import WORKERS

MAX_FREED_PER_TASK = 1000
"""Slots returned with one task, so that the message never fills the socket."""


@final
class WorkerProcess:
    """One worker process, its channel, its lifeline, and the slots of shared memory it has sent."""

    def __init__(self, number: int, *, memory: MappedMemory, modules: Collection[str] = ()) -> None:
        """Start a process, without waiting for it.

        Args:
            number: The number of the worker.
            memory: Counts the shared memory that it sends.
            modules: What its plan refers to.
        """
        self.number = number
        self.mapped_slots = MappedSlots(memory)
        self.is_trimming = False
        """Whether the worker has been asked to return memory, and has not answered."""
        self._kill_reason: str | None = None
        parent_end, worker_end = socket.socketpair()
        self.channel = Channel(parent_end)
        self.permits = Permits()
        self._lifeline: list[int] = []  # a list, so that only one thread can pop it and close it
        try:
            lifeline, held_end = os.pipe()
            self._lifeline.append(held_end)
            try:
                self._process = launch(
                    channel=worker_end.fileno(), lifeline=lifeline, modules=modules
                )
            finally:
                os.close(lifeline)
        except BaseException:
            self.close_descriptors()
            raise
        finally:
            worker_end.close()
        _started.add(self)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_forked(self) -> bool:
        """Whether the fork server starts it."""
        return isinstance(self._process, ForkedProcess)

    @property
    def was_refused(self) -> bool:
        """Whether the fork server did not start it. Known after `reap`."""
        return self._process.refusal is not None

    @property
    def end_descriptor(self) -> int | None:
        """What to poll for `has_ended`, besides the channel."""
        return self._process.end_descriptor

    @property
    def has_ended(self) -> bool:
        """Whether the process is known to be dead.

        Its channel may be open nevertheless: a process that C code of the user has forked in the
        worker keeps it open, because nothing closes the worker's descriptors there.
        """
        return self._process.has_ended()

    # Messages

    def send_init(self, payload: PlanPayload, *, num_workers: int) -> None:
        """Send the plans, which the worker loads as soon as it has started."""
        self._send(
            Init(self.number, num_workers, payload.sizes, payload.pytrees, relay_settings()),
            [payload.descriptor, self.permits.descriptor],
        )

    def send_task(self, task: Task) -> None:
        """Send a task, along with the slots that the worker may reuse."""
        self.permits.add()
        freed = self.mapped_slots.take_freed(MAX_FREED_PER_TASK)
        self._send(ComputeTask(task.number, task.job, task.positions, task.tries > 0, freed))

    def release_slots(self, min_bytes: int) -> None:
        """Send the slots that the worker may reuse, if they have at least `min_bytes` together."""
        if self.mapped_slots.num_freed_bytes >= min_bytes:
            self._send(ReleaseSlots(self.mapped_slots.take_freed(MAX_FREED_PER_TASK)))

    def withdraw_task(self, task: Task) -> None:
        """Let the worker drop a task whose permit was taken back."""
        self._send(WithdrawTask(task.number))

    def trim_memory(self) -> None:
        """Ask the worker to return the slots that are not in use to the system."""
        self.is_trimming = True
        self._send(TrimMemory(self.mapped_slots.take_freed(MAX_FREED_PER_TASK)))

    def close_slots(self, message: SlotsClosed) -> None:
        """Unmap the slots that the worker has returned."""
        self.mapped_slots.drop(message.closed)
        self.is_trimming = self.is_trimming and not message.has_trimmed

    def _send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send a message; that the worker is dead is noticed when its messages are received."""
        with contextlib.suppress(ConnectionError):
            self.channel.send(message, descriptors)

    def open_reply(self, done: TaskDone) -> BlockReply:
        """Map the shared memory that a reply refers to."""
        self.mapped_slots.drop(done.closed)  # first: the new slots replace them
        for slot, num_bytes in done.opened:
            self.mapped_slots.open(slot, num_bytes, self.channel.take_descriptor())
        leases = {slot: self.mapped_slots.lease(slot) for slot in {r[0] for r in done.slot_ranges}}
        buffers = [
            leases[slot][0][offset : offset + size] for slot, offset, size in done.slot_ranges
        ]
        return BlockReply(
            buffers.pop() if done.content is None else done.content,
            buffers,
            done,
            num_bytes=sum(size for _, _, size in done.slot_ranges),
            find_holder=partial(self._hold, tuple(number for _, number in leases.values())),
        )

    def _hold(self, lease_numbers: Sequence[int]) -> int | None:
        """Return the number of the worker, as long as one of some leases has not ended."""
        return self.number if self.mapped_slots.is_leased(lease_numbers) else None

    # End

    def kill(self, reason: str | None = None) -> None:
        """Kill the process.

        Args:
            reason: Why the parent kills it, for the error message of the task that it computes.
        """
        self._kill_reason = self._kill_reason or reason
        self._process.kill()
        self._close_lifeline()

    def wait(self) -> int | None:
        """Wait until the process is dead; return its exit code, `None` in a fork of the parent."""
        return self._process.wait()

    def reap(self) -> str:
        """Kill the process, wait for it and release its resources; return what it died of."""
        self.kill()
        code = self.wait()
        WORKERS.pop(self.pid, None)
        self.close_descriptors()
        self._process.close()
        self.mapped_slots.close()
        return self._kill_reason or cause_of_death(code)

    def close_descriptors(self) -> None:
        """Close the channel, the permits and the lifeline."""
        _started.discard(self)
        self.channel.close()
        self.permits.close()
        self._close_lifeline()

    def _close_lifeline(self) -> None:
        with contextlib.suppress(IndexError):
            os.close(self._lifeline.pop())


def cause_of_death(exit_code: int | None) -> str:
    """Describe the exit code of a process, which is negative after a signal.

    >>> cause_of_death(3), cause_of_death(-11)
    ('exit code 3', 'signal SIGSEGV')
    """
    if exit_code is None:
        return "an unknown cause"
    if exit_code == -signal.SIGKILL:
        return "signal SIGKILL, as the kernel sends when memory runs out"
    if exit_code == -signal.SIGBUS:
        return "signal SIGBUS, as the kernel sends when a file is truncated while it is mapped"
    if exit_code < 0:
        return f"signal {signal.Signals(-exit_code).name}"
    return f"exit code {exit_code}"


_started: "weakref.WeakSet[WorkerProcess]" = weakref.WeakSet()


def _close_after_fork() -> None:
    """Close the lifelines in a fork: else workers would outlive the process that started them."""
    for worker in list(_started):
        worker.close_descriptors()


os.register_at_fork(after_in_child=_close_after_fork)
