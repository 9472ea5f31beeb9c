"""The memory in which batches travel from a worker to the parent.

A worker owns *slots*: pieces of shared memory, one for each block that is under way or in use.

    worker   takes a free slot, stacks batches straight into it, sends where they lie
    parent   maps the slot (once), hands out arrays that view it
    user     lets go of the last of them; the number of the slot goes back with the next task
    worker   takes the slot again, whose pages are warm: fresh ones cost more than the copy

A slot is taken again only when nobody, in either process, holds an array on it. One that has not
been needed for a while is unmapped by both.
"""

import os
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill._engine.executors.ipc.shared_memory import (
    Lease,
    Mapping,
    address_of,
    aligned,
    create_memory,
)
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy

SlotRange: TypeAlias = tuple[int, int, int]
"""Where some bytes lie: the number of a slot, the offset in it, how many they are."""


@final
@dataclass(frozen=True, kw_only=True)
class SlotTransfer:
    """What to tell the parent about the slots of a block."""

    slot_ranges: list[SlotRange]
    opened: list[tuple[int, int]]
    """Slots the parent does not know yet, with their sizes; their descriptors come along."""
    descriptors: list[int]
    closed: list[int]
    """Slots that are no more."""


@final
class _Slot:
    __slots__ = ("last_block", "lease", "mapping", "number")

    def __init__(self, number: int, mapping: Mapping) -> None:
        self.number = number
        self.mapping = mapping
        self.lease: weakref.ref[Lease] | None = None
        self.last_block = 0

    @property
    def is_held(self) -> bool:
        """Whether an array on it is held in this process, by the user's code for example."""
        return self.lease is not None and self.lease() is not None


@final
class Arena:
    """The worker's slots."""

    def __init__(self, policy: TuningPolicy = DEFAULT_POLICY) -> None:
        self._policy = policy
        self._slots: dict[int, _Slot] = {}
        self._free: list[int] = []
        self._open: _Slot | None = None
        self._view: NDArray[np.uint8] | None = None
        self._used = 0
        self._num_blocks = 0
        self._next_number = 0
        self._bytes_per_position = 0.0
        self._opened: list[tuple[int, int]] = []
        self._descriptors: list[int] = []

    def begin(self, num_positions: int) -> None:
        """Open a slot for the next block, as large as the last ones needed."""
        self._num_blocks += 1
        wanted = int(self._bytes_per_position * num_positions)
        if wanted:
            self._take(wanted)

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Give an array on the open slot; in ordinary memory where it does not fit."""
        kind = np.dtype(dtype)
        count = 1
        for length in shape:
            count *= length
        num_bytes = count * kind.itemsize
        offset = self._reserve(num_bytes)
        if offset is None or self._view is None:
            return np.empty(shape, kind)
        return self._view[offset : offset + num_bytes].view(kind).reshape(shape)

    def transfer(self, buffers: Iterable[memoryview], num_positions: int) -> SlotTransfer:
        """See to it that the buffers lie in slots, and close the block."""
        slot_ranges: list[SlotRange | None] = []
        homeless: list[tuple[int, NDArray[np.uint8]]] = []
        for row, buffer in enumerate(buffers):
            array = np.frombuffer(buffer, np.uint8)
            place = self._find(array) or self._move_in(array)
            slot_ranges.append(place)
            if place is None:
                homeless.append((row, array))
        used = [] if self._open is None else [self._open.number]
        total = self._used
        if homeless:
            needed = sum(aligned(array.nbytes) for _, array in homeless)
            self._take(needed)
            for row, array in homeless:
                slot_ranges[row] = self._move_in(array)
            total += needed
            used += [] if self._open is None else [self._open.number]
        self._learn(total, num_positions)
        self._leave(used, {place[0] for place in slot_ranges if place is not None})
        closed = self._close_idle()
        transfer = SlotTransfer(
            slot_ranges=[place for place in slot_ranges if place is not None],
            opened=self._opened,
            descriptors=self._descriptors,
            closed=closed,
        )
        self._opened, self._descriptors = [], []
        return transfer

    def release(self, numbers: Iterable[int]) -> None:
        """Take back slots that the parent has no use for any more."""
        self._free.extend(numbers)

    def _take(self, wanted: int) -> None:
        """Open the smallest free slot that is large enough, of those the one used last."""
        best: _Slot | None = None
        for number in reversed(self._free):
            slot = self._slots[number]
            if slot.mapping.num_bytes < wanted or slot.is_held:
                continue
            if best is None or slot.mapping.num_bytes < best.mapping.num_bytes:
                best = slot
        if best is None:
            best = self._create(wanted)
        else:
            self._free.remove(best.number)
        best.last_block = self._num_blocks
        lease = Lease(best.mapping.address, best.mapping.num_bytes)
        best.lease = weakref.ref(lease)
        self._open, self._view, self._used = best, lease.view(), 0

    def _create(self, wanted: int) -> _Slot:
        size = _rounded_up(wanted, self._policy.min_slot_bytes)
        descriptor = create_memory(size)
        try:
            slot = _Slot(self._next_number, Mapping(descriptor, size))
        except BaseException:
            os.close(descriptor)
            raise
        self._next_number += 1
        self._slots[slot.number] = slot
        self._opened.append((slot.number, size))
        self._descriptors.append(descriptor)
        return slot

    def _reserve(self, num_bytes: int) -> int | None:
        if self._open is None or self._used + num_bytes > self._open.mapping.num_bytes:
            return None
        offset = self._used
        self._used = aligned(offset + num_bytes)
        return offset

    def _find(self, array: NDArray[np.uint8]) -> SlotRange | None:
        """Tell where in the open slot an array already lies."""
        if self._open is None or not array.nbytes:
            return None
        offset = address_of(array) - self._open.mapping.address
        if not 0 <= offset < self._used:
            return None
        return self._open.number, offset, array.nbytes

    def _move_in(self, array: NDArray[np.uint8]) -> SlotRange | None:
        offset = self._reserve(array.nbytes)
        if offset is None or self._open is None or self._view is None:
            return None
        self._view[offset : offset + array.nbytes] = array
        return self._open.number, offset, array.nbytes

    def _learn(self, total: int, num_positions: int) -> None:
        needed = total / max(1, num_positions)
        # Some room to spare: batches of text or of padded rows vary a little.
        self._bytes_per_position = max(
            self._policy.slot_slack * needed,
            self._policy.slot_bytes_decay * self._bytes_per_position,
        )

    def _leave(self, taken: list[int], sent: set[int]) -> None:
        """Close the block; a slot on which nothing was sent is free at once."""
        self._free.extend(number for number in taken if number not in sent)
        self._open, self._view, self._used = None, None, 0

    def _close_idle(self) -> list[int]:
        closed: list[int] = []
        idle_blocks = self._policy.slot_idle_blocks
        for number in list(self._free):
            slot = self._slots[number]
            if self._num_blocks - slot.last_block > idle_blocks and not slot.is_held:
                self._free.remove(number)
                del self._slots[number]
                slot.mapping.close()
                closed.append(number)
        return closed


@final
class MappedSlots:
    """The slots of one worker as the parent sees them.

    Leases end in whatever thread lets go of the last array, so this takes no lock: each step of it
    is one that Python does in one go.
    """

    def __init__(self) -> None:
        self._mappings: dict[int, Mapping] = {}
        self._leased: dict[int, None] = {}
        self._freed: deque[int] = deque()
        self._is_closed = False

    @property
    def num_bytes(self) -> int:
        """How much memory is mapped."""
        return sum(mapping.num_bytes for mapping in list(self._mappings.values()))

    def open(self, number: int, num_bytes: int, descriptor: int) -> None:
        """Map a slot, and close its descriptor."""
        try:
            self._mappings[number] = Mapping(descriptor, num_bytes)
        finally:
            os.close(descriptor)

    def lease(self, number: int) -> NDArray[np.uint8]:
        """Give a slot's memory, which is the caller's until the last array on it is gone."""
        mapping = self._mappings[number]
        lease = Lease(mapping.address, mapping.num_bytes)
        self._leased[number] = None
        weakref.finalize(lease, self._end_lease, number).atexit = False
        return lease.view()

    def take_freed(self, most: int) -> list[int]:
        """Give the numbers of slots whose lease ended, for the worker to use again."""
        return [self._freed.popleft() for _ in range(min(most, len(self._freed)))]

    def drop(self, numbers: Iterable[int]) -> None:
        """Unmap slots that the worker gave up."""
        for number in numbers:
            self._unmap(number)

    def close(self) -> None:
        """Unmap everything as soon as nobody uses it: the worker is gone."""
        self._is_closed = True
        for number in list(self._mappings):
            if number not in self._leased:
                self._unmap(number)

    def _end_lease(self, number: int) -> None:
        self._leased.pop(number, None)
        self._freed.append(number)
        if self._is_closed:
            self._unmap(number)

    def _unmap(self, number: int) -> None:
        mapping = self._mappings.pop(number, None)
        if mapping is not None:
            mapping.close()


def _rounded_up(num_bytes: int, min_bytes: int) -> int:
    """Round up by less than a quarter, so that blocks of about one size share their slots."""
    size = max(num_bytes, min_bytes)
    step = 1 << (size.bit_length() - 3)
    return -(-size // step) * step
