"""The memory of batches: slots that are used again when nobody holds them, and never before."""

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from gristmill._engine.executors.processes.arena import (
    Arena,
    MappedMemory,
    MappedSlots,
    _rounded_up,
)
from gristmill._engine.executors.serialization.shared_memory import ALIGNMENT, address_of
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy

MB = 1 << 20


class Both:
    """A worker's arena and its parent's shelf, joined as if by a line."""

    def __init__(self, policy: TuningPolicy = DEFAULT_POLICY) -> None:
        self.memory = MappedMemory()
        self.arena, self.mapped_slots = Arena(policy), MappedSlots(self.memory)
        self.closed: list[int] = []
        self.slots_of_last: set[int] = set()

    def begin(self, num_positions: int = 1) -> None:
        """Return what the parent let go of, and begin a block."""
        self.arena.release(self.mapped_slots.take_freed(1000))
        self.arena.begin(num_positions)

    def transfer(self, *arrays: Any, num_positions: int = 1) -> list[Any]:
        """Send the arrays of a block, and return those that arrive."""
        views = [memoryview(array.reshape(-1).view(np.uint8)) for array in arrays]
        sent = self.arena.transfer(views, num_positions)
        self.mapped_slots.drop(sent.closed)
        for (number, size), descriptor in zip(sent.opened, sent.descriptors, strict=True):
            self.mapped_slots.open(number, size, descriptor)
        self.closed += sent.closed
        self.slots_of_last = {number for number, _, _ in sent.slot_ranges}
        memory = {number: self.mapped_slots.lease(number)[0] for number in self.slots_of_last}
        return [
            memory[number][offset : offset + size].view(array.dtype).reshape(array.shape)
            for (number, offset, size), array in zip(sent.slot_ranges, arrays, strict=True)
        ]

    def send(self, *values: Any) -> list[Any]:
        """Make a block of one position in the arena as a worker does, and send it."""
        self.begin()
        arrays: list[Any] = []
        for value in values:
            array = self.arena.empty(value.shape, value.dtype)
            array[...] = value
            arrays.append(array)
        return self.transfer(*arrays)

    @property
    def num_slots(self) -> int:
        return len(self.arena._slots)

    def close(self) -> None:
        self.mapped_slots.close()
        for slot in self.arena._slots.values():
            slot.mapping.close()


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    """Return an arena and its mapped slots; a test may set the policy as a parameter."""
    both = Both(getattr(request, "param", DEFAULT_POLICY))
    yield both
    both.close()


def idle_after(num_blocks: int) -> pytest.MarkDecorator:
    """Return a mark for tests in which slots are returned after this many blocks."""
    return pytest.mark.parametrize(
        "both", [TuningPolicy(slot_idle_blocks=num_blocks)], indirect=True, ids=[""]
    )


def full(value: int, num_bytes: int = MB) -> Any:
    return np.full(num_bytes, value, np.uint8)


def warm_up(both: Both, num_bytes: int = MB) -> None:
    """Let the arena learn the size of a block."""
    both.send(full(0, num_bytes))


# What arrives.


@pytest.mark.parametrize(
    "array",
    [
        np.arange(1000),
        np.arange(24.0, dtype=np.float32).reshape(2, 3, 4),
        np.zeros((3, 0, 5)),
        np.array(True),
        np.array([b"ab", b""], "S2"),
        np.arange(10).astype("M8[s]"),
        np.zeros(7, [("a", "i4"), ("b", "f8", (2,))]),
        np.arange(300_000, dtype=">u2"),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
@pytest.mark.parametrize("is_warm", [False, True])
def test_an_array_arrives_as_it_was_made(both: Both, array: Any, is_warm: bool):
    if is_warm:
        warm_up(both)

    (arrived,) = both.send(array)

    assert arrived.dtype == array.dtype
    assert arrived.shape == array.shape
    assert arrived.tobytes() == array.tobytes()
    assert arrived.flags.writeable


def test_many_arrays_of_a_block_lie_on_cache_lines_of_one_slot(both: Both):
    warm_up(both)
    values = [full(number, 1 + 37 * number) for number in range(50)]

    arrived = both.send(*values)

    assert [array.tolist() for array in arrived] == [value.tolist() for value in values]
    assert {address_of(array) % ALIGNMENT for array in arrived} == {0}
    assert len(both.slots_of_last) == 1


def test_batches_are_stacked_straight_into_the_slot_once_their_size_is_known(both: Both):
    warm_up(both)
    both.begin()

    array = both.arena.empty((MB,), np.uint8)
    array[:] = 5
    address = address_of(array)
    (slot,) = [
        slot
        for slot in both.arena._slots.values()
        if slot.mapping.address <= address < slot.mapping.address + slot.mapping.num_bytes
    ]
    assert address % ALIGNMENT == 0
    (arrived,) = both.transfer(array)
    array[0] = 6

    assert both.slots_of_last == {slot.number}
    assert arrived[0] == 6  # the same memory: nothing was copied
    assert arrived[1] == 5


def test_what_was_made_elsewhere_is_copied_into_the_slot(both: Both):
    warm_up(both)
    both.begin()
    ours = both.arena.empty((1000,), np.uint8)
    ours[:] = 1
    foreign = full(2, 1000)

    arrived = both.transfer(ours, foreign)
    foreign[:] = 3

    assert [set(array.tolist()) for array in arrived] == [{1}, {2}]
    assert len(both.slots_of_last) == 1


def test_part_of_an_array_in_the_slot_is_sent_from_where_it_lies(both: Both):
    warm_up(both)
    both.begin()
    array = both.arena.empty((1000, 100), np.uint8)
    array[:] = np.arange(1000)[:, None] % 251

    (arrived,) = both.transfer(array[100:200])

    assert arrived[:, 0].tolist() == [number % 251 for number in range(100, 200)]


# When a slot is used again.


def test_a_slot_that_nobody_holds_is_used_again(both: Both):
    for number in range(100):
        (arrived,) = both.send(full(number))
        assert arrived[-1] == number
        del arrived

    assert both.num_slots <= 2  # the first was made before the size was known
    assert both.memory.shared_bytes <= 3 * MB


def test_a_batch_that_the_user_keeps_never_changes(both: Both):
    kept: list[Any] = []
    for number in range(20):
        kept += both.send(full(number, 10_000))

    assert [set(array.tolist()) for array in kept] == [{number} for number in range(20)]
    assert both.num_slots == 20
    kept.clear()
    for _ in range(20):
        both.send(full(7, 10_000))
    assert both.num_slots == 20


def test_any_view_keeps_the_slot(both: Both):
    warm_up(both)
    (arrived,) = both.send(full(1))
    view = arrived.reshape(1024, 1024)[::3, 5]
    slot = both.slots_of_last
    del arrived

    for number in range(2, 6):
        both.send(full(number))
        assert both.slots_of_last != slot
    assert set(view.tolist()) == {1}

    del view
    both.send(full(9))
    assert slot & {*both.slots_of_last} == slot


def test_one_array_of_a_block_keeps_all_of_it(both: Both):
    warm_up(both)
    large, small = both.send(full(1, MB // 2), full(2, 10))
    slot = both.slots_of_last
    del large

    both.send(full(3))

    assert both.slots_of_last != slot
    assert set(small.tolist()) == {2}


def test_an_array_that_the_users_code_keeps_in_the_worker_never_changes(both: Both):
    warm_up(both)
    both.begin()
    kept = both.arena.empty((MB,), np.uint8)
    kept[:] = 1
    both.transfer(kept)
    slot = both.slots_of_last

    for number in range(2, 6):
        both.send(full(number))
        assert both.slots_of_last != slot
    assert set(kept.tolist()) == {1}

    del kept
    (other,) = both.send(full(8))
    both.send(full(9))
    assert both.slots_of_last == slot
    assert other[0] == 8


def test_an_array_kept_in_the_worker_can_be_sent_again(both: Both):
    warm_up(both)
    both.begin()
    cached = both.arena.empty((1000,), np.uint8)
    cached[:] = 1
    (first,) = both.transfer(cached)
    both.begin()
    (second,) = both.transfer(cached)

    first[:] = 2

    assert set(second.tolist()) == {1}


def test_a_slot_on_which_nothing_was_sent_is_free_at_once(both: Both):
    warm_up(both)
    for _ in range(10):
        both.begin()
        both.arena.empty((1000,), np.uint8)
        assert both.transfer() == []

    assert both.num_slots == 1


def test_a_lease_may_end_in_any_thread(both: Both):
    warm_up(both)
    holder = both.send(full(1))
    slot = both.slots_of_last

    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()
    both.send(full(2))

    assert both.slots_of_last == slot


def test_freed_slots_are_given_back_in_portions(both: Both):
    kept = [both.send(full(number, 100)) for number in range(10)]
    kept.clear()

    assert len(both.mapped_slots.take_freed(4)) == 4
    assert len(both.mapped_slots.take_freed(100)) == 6
    assert both.mapped_slots.take_freed(100) == []


# How large slots are.


def test_a_block_larger_than_any_before_finds_room(both: Both):
    warm_up(both, 1000)
    for size in (2000, 300_000, 5 * MB, 100, 20 * MB):
        (arrived,) = both.send(full(size % 251, size))
        assert arrived.nbytes == size
        assert set(np.unique(arrived).tolist()) == {size % 251}


def test_a_block_of_which_only_some_fits_is_sent_in_two_slots(both: Both):
    warm_up(both, 100_000)
    values = [full(1, 50_000), full(2, 200_000), full(3, 10)]

    arrived = both.send(*values)

    assert [array.nbytes for array in arrived] == [50_000, 200_000, 10]
    assert [set(np.unique(array).tolist()) for array in arrived] == [{1}, {2}, {3}]
    assert len(both.slots_of_last) == 2


def test_once_the_larger_size_is_known_one_slot_holds_it(both: Both):
    warm_up(both, 100_000)
    for _ in range(3):
        both.send(full(2, 3 * MB))

    assert len(both.slots_of_last) == 1


def test_blocks_of_varying_size_share_slots(both: Both):
    rng = np.random.default_rng(0)
    for _ in range(200):
        both.send(full(1, int(rng.integers(900_000, MB))))

    assert both.num_slots <= 3


def test_larger_ranges_get_larger_slots(both: Both):
    both.begin(1)
    both.transfer(full(1, 100_000), num_positions=1)
    both.begin(10)

    arrays = [both.arena.empty((100_000,), np.uint8) for _ in range(10)]
    both.transfer(*arrays, num_positions=10)

    assert len(both.slots_of_last) == 1


@given(st.integers(1, 1 << 45))
def test_little_is_wasted(num_bytes: int):
    smallest = DEFAULT_POLICY.min_slot_bytes
    size = _rounded_up(num_bytes, smallest)

    assert size >= num_bytes
    assert size == smallest or size < 1.25 * num_bytes + 1
    assert _rounded_up(size, smallest) == size


# When slots are given back to the system.


@idle_after(10)
def test_a_slot_that_is_idle_for_long_is_unmapped_by_both(both: Both):
    kept = [both.send(full(number)) for number in range(8)]
    assert both.num_slots >= 8
    kept.clear()

    for _ in range(30):
        both.send(full(1))

    assert both.num_slots <= 2
    assert len(both.closed) >= 6
    assert both.memory.shared_bytes == sum(
        slot.mapping.num_bytes for slot in both.arena._slots.values()
    )


@pytest.mark.parametrize(
    "both", [TuningPolicy(large_block_bytes=MB)], indirect=True, ids=["all are large"]
)
def test_a_worker_keeps_two_large_slots_that_are_free(both: Both):
    kept = [both.send(full(number)) for number in range(5)]
    assert both.num_slots == 5
    del kept[1:]

    both.arena.release(both.mapped_slots.take_freed(10))
    closed = both.arena.close_surplus()

    assert len(closed) == 3
    assert both.num_slots == 2
    assert set(kept[0][0].tolist()) == {0}
    both.mapped_slots.drop(closed)


@idle_after(3)
def test_a_slot_that_somebody_holds_is_never_unmapped(both: Both):
    warm_up(both)
    (in_parent,) = both.send(full(1))
    both.begin()
    in_worker = both.arena.empty((MB,), np.uint8)
    in_worker[:] = 2
    both.transfer(in_worker)

    for _ in range(30):
        both.send(full(3))

    assert set(in_parent.tolist()) == {1}
    assert set(in_worker.tolist()) == {2}


def test_when_the_worker_is_gone_its_batches_stay_as_long_as_somebody_holds_them():
    both = Both()
    warm_up(both)
    (one,) = both.send(full(1))
    (other,) = both.send(full(2))
    slots = both.memory.shared_bytes

    both.close()
    both.mapped_slots.close()

    assert 2 * MB <= both.memory.shared_bytes <= slots
    assert set(one.tolist()) == {1}
    del one
    assert MB <= both.memory.shared_bytes < 2 * MB
    assert set(other.tolist()) == {2}
    del other
    assert both.memory.shared_bytes == 0


def test_a_slot_that_turns_out_to_be_too_small_is_replaced_in_the_same_block():
    both = Both()
    warm_up(both)

    (array,) = both.send(full(1, 3 * MB))

    assert both.num_slots == 1
    assert both.memory.shared_bytes < 3.1 * MB
    assert array[-1] == 1
    both.close()


def test_the_parent_never_learns_of_a_slot_that_is_replaced_before_it_is_sent():
    both = Both()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    kept = both.send(full(0))

    (array,) = both.send(full(1, 3 * MB))

    assert both.num_slots == 2
    assert both.closed == []
    assert len(os.listdir("/proc/self/fd")) == before
    assert (kept[0][0], array[-1]) == (0, 1)
    both.close()


def test_nothing_keeps_a_descriptor():
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    both = Both()

    kept = [both.send(full(number % 256, 70_000)) for number in range(300)]

    assert len(os.listdir("/proc/self/fd")) == before
    assert [arrays[0][0] for arrays in kept] == [number % 256 for number in range(300)]
    kept.clear()
    both.close()
    assert both.memory.shared_bytes == 0


class Life(RuleBasedStateMachine):
    """Blocks of any size come and are let go of in any order, in both processes."""

    held = Bundle("held")
    held_by_the_worker = Bundle("held_by_the_worker")

    @initialize()
    def start(self) -> None:
        self.both = Both(TuningPolicy(slot_idle_blocks=4, min_slot_bytes=4096))
        self.next_value = 0
        self.known: dict[int, tuple[Any, int]] = {}

    @rule(target=held, sizes=st.lists(st.integers(0, 30_000), max_size=4), foreign=st.booleans())
    def send(self, sizes: list[int], foreign: bool) -> list[int]:
        values = [full(self._value(), size) for size in sizes]
        if foreign:
            self.both.begin()
            arrived = self.both.transfer(*values)
        else:
            arrived = self.both.send(*values)
        return self._note(arrived)

    @rule(target=held_by_the_worker, size=st.integers(1, 30_000))
    def send_and_keep_in_the_worker(self, size: int) -> list[int]:
        self.both.begin()
        array = self.both.arena.empty((size,), np.uint8)
        array[:] = self._value()
        self.both.transfer(array)
        return self._note([array])

    @rule(keys=consumes(held))
    def let_go(self, keys: list[int]) -> None:
        for key in keys:
            del self.known[key]

    @rule(keys=consumes(held_by_the_worker))
    def let_go_in_the_worker(self, keys: list[int]) -> None:
        for key in keys:
            del self.known[key]

    def _value(self) -> int:
        self.next_value += 1
        return self.next_value % 251

    def _note(self, arrays: list[Any]) -> list[int]:
        keys: list[int] = []
        for array in arrays:
            key = len(keys) + 10 * self.next_value
            if array.size:
                self.known[key] = array, int(array[0])
                keys.append(key)
        return keys

    @invariant()
    def nothing_that_is_held_changes(self) -> None:
        for array, value in getattr(self, "known", {}).values():
            assert (array == value).all()

    @invariant()
    def no_two_slots_overlap_and_both_sides_know_the_same(self) -> None:
        if hasattr(self, "both"):
            arena, shelf = self.both.arena, self.both.mapped_slots
            assert set(shelf._mappings) == set(arena._slots)
            assert len(arena._free) == len(set(arena._free))

    def teardown(self) -> None:
        if hasattr(self, "both"):
            self.known.clear()
            self.both.close()
            assert self.both.memory.shared_bytes == 0


TestLife = Life.TestCase
TestLife.settings = settings(deadline=None, max_examples=40, stateful_step_count=30)
