"""Messages between the parent and a worker, one class for each.

    parent                                  worker
    Init           ── plans, settings ──▶
                   ◀─────────────────────   Ready, or InitFailed
    ComputeTask    ─────────────────────▶
                   ◀─────────────────────   Progress, while it isolates a record that kills it
                   ◀── block in slots ───   TaskDone
    WithdrawTask   ─────────────────────▶   (another worker has taken the task over)
                   ◀─────────────────────   TaskWithdrawn, unless it has begun the task
    ReleaseSlots   ─────────────────────▶   (large arrays were freed)
    TrimMemory     ─────────────────────▶   (the pool is idle)
                   ◀─────────────────────   SlotsClosed
                   ◀─────────────────────   LogRelay, at any time

Large arrays are not part of a message: they are in slots of shared memory, whose descriptors the
channel passes along.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.columns import Columns
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._engine.blocks.block import Block, Generators
from gristmill._engine.blocks.block_result import BlockResult, FilterCounts, SkipEvent
from gristmill._engine.blocks.lineage import Lineage
from gristmill._engine.executors.ipc.arena import SlotRange, SlotSize
from gristmill._engine.executors.ipc.log_relay import RelayedLog, RelaySettings
from gristmill._engine.executors.ipc.remote_error import load_error
from gristmill._engine.executors.ipc.serialize import load
from gristmill._metrics.step_time import StepTime
from gristmill.types import Cursor, Element


class Message:
    """What can be sent between the parent and a worker."""

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        # As the class and its fields. By default, a dataclass with slots is pickled as an empty
        # object and a state, which takes 1.3 times as long to dump and 1.6 times to load.
        return type(self), tuple([getattr(self, name) for name in self.__match_args__])


# To a worker


@final
@dataclass(frozen=True, slots=True)
class Init(Message):
    """The first message. The descriptor of the plans in shared memory comes along."""

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
    """Drop a task, unless it has begun."""

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
    step_times: tuple[StepTime, ...]
    """See `BlockResult`."""
    busy_s: float = 0.0
    """See `BlockResult`."""
    transfer_s: float = 0.0
    """See `BlockResult`."""


@final
@dataclass(frozen=True, slots=True)
class TaskWithdrawn(Message):
    """The worker has dropped a task."""

    task: int


@final
@dataclass(frozen=True, slots=True)
class SlotsClosed(Message):
    """The worker has returned slots to the system."""

    closed: Sequence[int]


@final
@dataclass(frozen=True, slots=True)
class LogRelay(Message):
    """A log record or a warning."""

    log: RelayedLog


# Parts of `TaskDone`, pickled with the serializer for elements


@final
@dataclass(frozen=True, slots=True)
class BlockContent(Message):
    """The parts of a block result that may contain objects of the user."""

    data: list[Element] | Columns
    lineage: Lineage
    generators: Generators | None
    """`None` if no step above the cut draws random numbers."""
    skips: Sequence["SentSkip"]
    filter_counts: tuple[FilterCounts, ...]
    has_waited: bool


@final
@dataclass(frozen=True, slots=True)
class SentSkip(Message):
    """A `SkipEvent` whose error is serialized."""

    cursor: Cursor
    record: SkippedRecord
    error: bytes
    """See `dump_error`."""


@final
class BlockReply:
    """A pickled block result and its buffers; loaded when the consumer collects it."""

    __slots__ = ("_buffers", "_content", "_done", "num_bytes")

    def __init__(
        self,
        content: bytes | NDArray[np.uint8],
        buffers: list[NDArray[np.uint8]],
        done: TaskDone,
        *,
        num_bytes: int,
    ) -> None:
        self._content = content
        self._buffers = buffers
        self._done = done
        self.num_bytes = num_bytes

    def decode(self) -> BlockResult:
        """Return the result; its arrays view the shared memory."""
        content: BlockContent = load(self._content, self._buffers)
        done = self._done
        return BlockResult(
            Block(content.data, content.lineage, content.generators),
            None if done.error is None else load_error(done.error),
            skips=tuple(map(_load_skip, content.skips)),
            step_times=done.step_times,
            filter_counts=content.filter_counts,
            has_waited=content.has_waited,
            busy_s=done.busy_s,
            transfer_s=done.transfer_s,
        )


def _load_skip(skip: SentSkip) -> SkipEvent:
    error = load_error(skip.error)
    assert isinstance(error, Exception)
    return SkipEvent(skip.cursor, skip.record, error)
