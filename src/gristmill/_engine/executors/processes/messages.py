"""Messages between the parent and a worker, one class for each.

    parent                                  worker
    Init           ── plans, settings ──▶
                   ◀─────────────────────   Ready, or InitFailed
    ComputeTask    ─────────────────────▶
                   ◀─────────────────────   Progress, while it isolates a record that kills it
                   ◀─────────────────────   SlowTask, if it takes very long
                   ◀── block in slots ───   TaskDone
    WithdrawTask   ─────────────────────▶   (another worker takes the task over)
    ReleaseSlots   ─────────────────────▶   (large arrays were freed)
    TrimMemory     ─────────────────────▶   (the pool is idle)
                   ◀─────────────────────   SlotsClosed
                   ◀─────────────────────   LogRelay, at any time

Large arrays are not part of a message: they are in slots of shared memory, whose descriptors the
channel passes along.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.executors.pools.task import FindHolder
from gristmill._engine.executors.processes.arena import SlotRange, SlotSize
from gristmill._engine.executors.serialization.block_codec import BlockTimes, Message, decode_block
from gristmill._engine.executors.serialization.log_relay import RelayedLog, RelaySettings
from gristmill._metrics.timeline import Work

# To a worker


@final
@dataclass(frozen=True, slots=True)
class Init(Message):
    """The first message. The descriptors of the plans and of the permits come along."""

    worker: int
    """The number of the worker."""
    num_workers: int
    sizes: Sequence[int]
    """See `PlanPayload`."""
    pytrees: Sequence[str]
    """See `PlanPayload`."""
    relay_settings: RelaySettings


@final
@dataclass(frozen=True, slots=True)
class ComputeTask(Message):
    """Compute a range of positions, after the tasks that were sent before."""

    task: int
    """The number of the task."""
    job: int
    """The number of the plan that the positions belong to."""
    positions: range
    is_suspect: bool
    """Whether the task has killed a worker. If so, the worker reports its progress."""
    freed_slots: Sequence[int]
    """Slots that the worker may reuse."""


@final
@dataclass(frozen=True, slots=True)
class WithdrawTask(Message):
    """Drop a task whose permit the parent has taken back (see `Permits`)."""

    task: int


@final
@dataclass(frozen=True, slots=True)
class ReleaseSlots(Message):
    """Reuse large slots before the next task is sent: the worker may have tasks in its queue."""

    freed_slots: Sequence[int]


@final
@dataclass(frozen=True, slots=True)
class TrimMemory(Message):
    """Return the slots that are not in use to the system."""

    freed_slots: Sequence[int]
    """Slots that the parent no longer uses."""


# From a worker


@final
@dataclass(frozen=True, slots=True)
class Ready(Message):
    """The worker has started."""


@final
@dataclass(frozen=True, slots=True)
class InitFailed(Message):
    """The worker cannot start, and ends."""

    error: bytes
    """See `dump_error`."""


@final
@dataclass(frozen=True, slots=True)
class Progress(Message):
    """What the worker is about to compute, of a task that has killed a worker."""

    position: int
    record: int | None
    """The record that is read. `None`: the element at `position` is computed as a whole."""


@final
@dataclass(frozen=True, slots=True)
class TaskDone(Message):
    """The result of a task. The descriptors of `opened` slots come along."""

    task: int
    content: bytes | None
    """A pickled `BlockContent`. `None`: it is in the last of `slot_ranges`."""
    slot_ranges: Sequence[SlotRange]
    """Where the large arrays of the content are."""
    opened: Sequence[SlotSize]
    """Slots that are new to the parent."""
    closed: Sequence[int]
    """Slots that no longer exist."""
    error: bytes | None
    """The error after the last element, if any. See `dump_error`."""
    times: BlockTimes


@final
@dataclass(frozen=True, slots=True)
class SlowTask(Message):
    """The worker has been computing its task for a long time."""

    task: int
    elapsed_s: float
    step: str
    """The step, where it was added, and the record. Empty if the worker is in no step."""


@final
@dataclass(frozen=True, slots=True)
class SlotsClosed(Message):
    """The worker has returned slots to the system."""

    closed: Sequence[int]
    has_trimmed: bool = False
    """Whether this answers `TrimMemory`."""


@final
@dataclass(frozen=True, slots=True)
class LogRelay(Message):
    """A log record or a warning."""

    log: RelayedLog


@final
class BlockReply:
    """A pickled block result and its buffers; loaded when the consumer collects it."""

    __slots__ = ("_buffers", "_content", "_done", "_find_holder", "num_bytes")

    def __init__(
        self,
        content: bytes | NDArray[np.uint8],
        buffers: list[NDArray[np.uint8]],
        done: TaskDone,
        *,
        num_bytes: int,
        find_holder: FindHolder,
    ) -> None:
        self._content = content
        self._buffers = buffers
        self._done = done
        self.num_bytes = num_bytes
        self._find_holder = find_holder

    @property
    def find_holder(self) -> FindHolder:
        return self._find_holder

    @property
    def work(self) -> Sequence[Work]:
        """What the worker did, as the parent records it."""
        return self._done.times.in_parent()

    def decode(self) -> BlockResult:
        """Return the result; its arrays view the shared memory."""
        return decode_block(self._content, self._buffers, self._done.error, self._done.times)
