"""Shared memory through which a worker sends batches to the parent.

A worker owns *slots*: ranges of shared memory, one for each block that is in flight or in use.

    worker   takes a free slot, stacks batches directly in it, and sends their offsets
    parent   maps the slot (once) and hands out arrays that view it
    user     drops the last of them; the number of the slot is sent back with the next task
    worker   reuses the slot: its pages are warm, and fresh ones cost more than the copy

A slot is reused only if no array on it is alive in either process. A slot that has not been needed
for some time is unmapped by both.
"""

import itertools
import os
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill._engine.executors.serialization.shared_memory import (
    Lease,
    Mapping,
    address_of,
    aligned,
    create_memory,
)
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy

SlotRange: TypeAlias = tuple[int, int, int]
"""The location of some bytes: the number of a slot, the offset in it, and their number.

A plain tuple, like `SlotSize`: a block has up to hundreds of them, which are pickled each time.
"""

SlotSize: TypeAlias = tuple[int, int]
"""The number of a slot, and its size in bytes."""


@final
@dataclass(frozen=True, kw_only=True)
class SlotTransfer:
    """What the parent has to know about the slots of a block."""

    slot_ranges: list[SlotRange]
    """One for each buffer of the block."""
    opened: list[SlotSize]
    """Slots that are new to the parent."""
    descriptors: list[int]
    """The descriptors of `opened`, to send along and then close."""
    closed: list[int]
    """Slots that no longer exist."""


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
        """Whether an array on it is alive in this process, such as one that user code keeps."""
        return self.lease is not None and self.lease() is not None


@final
class Arena:
    """The slots of a worker."""

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
        self._last_bytes_per_position = 0.0
        self._has_varied = False
        self._closed: list[int] = []
        self._opened: list[SlotSize] = []
        self._descriptors: list[int] = []

    def begin(self, num_positions: int) -> None:
        """Open a slot for the next block, as large as the previous blocks needed."""
        self._num_blocks += 1
        num_bytes = int(self._bytes_per_position * num_positions)
        if num_bytes:
            self._take(num_bytes)

    def empty(self, shape: Sequence[int], dtype: DTypeLike) -> NDArray[Any]:
        """Return an uninitialized array in the open slot, or in ordinary memory if it is full."""
        resolved = np.dtype(dtype)
        count = 1
        for length in shape:
            count *= length
        num_bytes = count * resolved.itemsize
        offset = self._reserve(num_bytes)
        if offset is None or self._view is None:
            return np.empty(shape, resolved)
        return self._view[offset : offset + num_bytes].view(resolved).reshape(shape)

    def transfer(self, buffers: Iterable[memoryview], num_positions: int) -> SlotTransfer:
        """Copy the buffers into slots, unless they are there already, and close the block."""
        slot_ranges: list[SlotRange | None] = []
        unplaced: list[tuple[int, NDArray[np.uint8]]] = []
        for number, buffer in enumerate(buffers):
            array = np.frombuffer(buffer, np.uint8)
            slot_range = self._find(array) or self._copy_in(array)
            slot_ranges.append(slot_range)
            if slot_range is None:
                unplaced.append((number, array))
        used = [] if self._open is None else [self._open.number]
        total = self._used
        if unplaced:
            needed = sum(aligned(array.nbytes) for _, array in unplaced)
            # An empty array uses no bytes, but its slot is in use.
            in_use = {slot_range[0] for slot_range in slot_ranges if slot_range is not None}
            if self._open is not None and not self._used and self._open.number not in in_use:
                self._free.append(self._open.number)  # too small, and so perhaps for all others
                used = []
                self._open = self._view = None  # else the slot could not be replaced
            self._take(needed)
            for number, array in unplaced:
                slot_ranges[number] = self._copy_in(array)
            total += needed
            used += [] if self._open is None else [self._open.number]
        placed = [slot_range for slot_range in slot_ranges if slot_range is not None]
        self._learn_size(total, num_positions)
        self._end_block(used, {slot for slot, _, _ in placed})
        closed = self._closed + self._close_idle() + self.close_surplus()
        self._closed = []
        transfer = SlotTransfer(
            slot_ranges=placed,
            opened=self._opened,
            descriptors=self._descriptors,
            closed=closed,
        )
        self._opened, self._descriptors = [], []
        return transfer

    def release(self, numbers: Iterable[int]) -> None:
        """Mark slots as free, because the parent no longer uses them."""
        self._free.extend(numbers)

    def _take(self, min_bytes: int) -> None:
        """Open the smallest free slot that is large enough; of equal ones the last used."""
        best: _Slot | None = None
        for number in reversed(self._free):
            slot = self._slots[number]
            if slot.mapping.num_bytes < min_bytes or slot.is_held:
                continue
            if best is None or slot.mapping.num_bytes < best.mapping.num_bytes:
                best = slot
        if best is None:
            self._close_smaller(min_bytes)
            best = self._create(min_bytes)
        else:
            self._free.remove(best.number)
        best.last_block = self._num_blocks
        lease = Lease(best.mapping.address, best.mapping.num_bytes)
        best.lease = weakref.ref(lease)
        self._open, self._view, self._used = best, lease.view(), 0

    def _create(self, min_bytes: int) -> _Slot:
        size = _rounded_up(min_bytes, self._policy.min_slot_bytes)
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
        """Return the offset of unused bytes in the open slot, or `None` if there are too few."""
        if self._open is None or self._used + num_bytes > self._open.mapping.num_bytes:
            return None
        offset = self._used
        self._used = aligned(offset + num_bytes)
        return offset

    def _find(self, array: NDArray[np.uint8]) -> SlotRange | None:
        """Return where in the open slot an array already is; `None` if it is elsewhere."""
        if self._open is None or not array.nbytes:
            return None
        offset = address_of(array) - self._open.mapping.address
        if not 0 <= offset < self._used:
            return None
        return self._open.number, offset, array.nbytes

    def _copy_in(self, array: NDArray[np.uint8]) -> SlotRange | None:
        """Copy an array into the open slot; return `None` if it does not fit."""
        offset = self._reserve(array.nbytes)
        if offset is None or self._open is None or self._view is None:
            return None
        self._view[offset : offset + array.nbytes] = array
        return self._open.number, offset, array.nbytes

    def _learn_size(self, num_bytes: int, num_positions: int) -> None:
        """Update the estimate of how many bytes the next blocks need."""
        needed = num_bytes / max(1, num_positions)
        last, self._last_bytes_per_position = self._last_bytes_per_position, needed
        self._has_varied = self._has_varied or (0.0 < last != needed)
        slack = self._policy.slot_slack if self._has_varied else 1.0
        self._bytes_per_position = max(
            slack * needed, self._policy.slot_bytes_decay * self._bytes_per_position
        )

    def _end_block(self, used: list[int], sent: set[int]) -> None:
        """Close the open slot. Used slots of which nothing was sent are free at once."""
        self._free.extend(number for number in used if number not in sent)
        self._open, self._view, self._used = None, None, 0

    def close_free(self) -> list[int]:
        """Return all free slots to the system; return their numbers."""
        return self._close([self._slots[number] for number in self._free])

    def close_surplus(self) -> list[int]:
        """Return the large free slots to the system of which a worker has too many.

        A worker that was faster than others, or whose blocks were kept, needed them for a while.

        Returns:
            The numbers of the slots.
        """
        large = [slot for slot in self._slots.values() if self._is_large(slot)]
        num_surplus = len(large) - self._policy.blocks_per_worker
        if num_surplus <= 0:
            return []
        is_free = set(self._free)
        free = [slot for slot in large if slot.number in is_free]
        free.sort(key=lambda slot: slot.last_block)
        return self._close(free[:num_surplus])

    def _close_idle(self) -> list[int]:
        """Return the slots to the system that were not used for some time."""
        policy = self._policy
        idle: list[_Slot] = []
        for number in self._free:
            slot = self._slots[number]
            is_large = self._is_large(slot)
            max_blocks = policy.large_slot_idle_blocks if is_large else policy.slot_idle_blocks
            if self._num_blocks - slot.last_block > max_blocks:
                idle.append(slot)
        return self._close(idle)

    def _is_large(self, slot: _Slot) -> bool:
        return slot.mapping.num_bytes >= self._policy.large_block_bytes

    def _close_smaller(self, num_bytes: int) -> None:
        """Close free slots that a new, larger one replaces: as blocks grow, they stay too small."""
        free = [self._slots[number] for number in self._free]
        smaller = [slot for slot in free if slot.mapping.num_bytes < num_bytes]
        smaller.sort(key=lambda slot: slot.mapping.num_bytes, reverse=True)
        replaced: list[_Slot] = []
        for slot in smaller:
            if num_bytes > 0 and slot.mapping.num_bytes >= self._policy.min_slot_bytes:
                replaced.append(slot)
                num_bytes -= slot.mapping.num_bytes
        self._closed += self._close(replaced)

    def _close(self, slots: Iterable[_Slot]) -> list[int]:
        """Return slots to the system, unless an array on them is alive; return their numbers."""
        closed: list[int] = []
        for slot in slots:
            if not slot.is_held:
                self._free.remove(slot.number)
                del self._slots[slot.number]
                slot.mapping.close()
                if not self._forget_opened(slot.number):
                    closed.append(slot.number)
        return closed

    def _forget_opened(self, number: int) -> bool:
        """Return whether the parent does not know of a slot, and never will."""
        for index, (opened, _) in enumerate(self._opened):
            if opened == number:
                del self._opened[index]
                os.close(self._descriptors.pop(index))
                return True
        return False


@final
class MappedMemory:
    """Counts the shared memory that a pool has mapped, also that of workers which are gone."""

    def __init__(self) -> None:
        self._sizes: dict[tuple[int, int], int] = {}

    @property
    def shared_bytes(self) -> int:
        """Bytes that are mapped. Any thread may ask for them."""
        return sum(list(self._sizes.values()))

    def add(self, key: tuple[int, int], num_bytes: int) -> None:
        """Count a slot, by the id of its `MappedSlots` and its number."""
        self._sizes[key] = num_bytes

    def remove(self, key: tuple[int, int]) -> None:
        """Count a slot no longer."""
        del self._sizes[key]


@final
class MappedSlots:
    """The slots of one worker, as the parent maps them.

    A lease ends in the thread that drops the last array, which may be any thread. So this takes no
    lock: each operation is a single atomic one of Python's dicts and deques.
    """

    def __init__(self, memory: MappedMemory) -> None:
        self._memory = memory
        self._mappings: dict[int, Mapping] = {}
        self._leased: dict[int, int] = {}
        self._lease_numbers = itertools.count()
        self._freed: deque[int] = deque()
        self._is_closed = False

    def is_leased(self, lease_numbers: Iterable[int]) -> bool:
        """Return whether one of some leases has not ended, and the worker exists."""
        return not self._is_closed and any(number in self._leased for number in lease_numbers)

    @property
    def num_freed_bytes(self) -> int:
        """Bytes of the slots whose lease has ended, and that the worker may not reuse yet."""
        mappings = [self._mappings.get(number) for number in list(self._freed)]
        return sum([mapping.num_bytes for mapping in mappings if mapping is not None])

    def open(self, number: int, num_bytes: int, descriptor: int) -> None:
        """Map a slot, and close its descriptor."""
        try:
            self._mappings[number] = Mapping(descriptor, num_bytes)
            self._memory.add((id(self), number), num_bytes)
        finally:
            os.close(descriptor)

    def lease(self, number: int) -> tuple[NDArray[np.uint8], int]:
        """Return the memory of a slot, and the number of the lease.

        The slot is not reused while an array on it is alive.
        """
        mapping = self._mappings[number]
        lease = Lease(mapping.address, mapping.num_bytes)
        lease_number = next(self._lease_numbers)
        self._leased[lease_number] = number
        weakref.finalize(lease, self._end_lease, lease_number).atexit = False
        return lease.view(), lease_number

    def take_freed(self, max_slots: int) -> list[int]:
        """Return the numbers of slots whose lease has ended, for the worker to reuse."""
        return [self._freed.popleft() for _ in range(min(max_slots, len(self._freed)))]

    def drop(self, numbers: Iterable[int]) -> None:
        """Unmap slots that the worker has closed."""
        for number in numbers:
            self._unmap(number)

    def close(self) -> None:
        """Unmap each slot as soon as no array on it is alive: the worker is gone."""
        self._is_closed = True
        leased = set(self._leased.values())
        for number in list(self._mappings):
            if number not in leased:
                self._unmap(number)

    def _end_lease(self, lease_number: int) -> None:
        # Freed first: a task that is sent once the lease has ended brings the slot along.
        number = self._leased[lease_number]
        self._freed.append(number)
        del self._leased[lease_number]
        if self._is_closed:
            self._unmap(number)

    def _unmap(self, number: int) -> None:
        mapping = self._mappings.pop(number, None)
        if mapping is not None:
            mapping.close()
            self._memory.remove((id(self), number))


def _rounded_up(num_bytes: int, min_bytes: int) -> int:
    """Round up, so that blocks of about one size share their slots.

    By less than a quarter, and from a megabyte on by less than 2%: that much memory is not wasted.
    """
    size = max(num_bytes, min_bytes)
    step = 1 << (size.bit_length() - (7 if size >= 1 << 20 else 3))
    return -(-size // step) * step
