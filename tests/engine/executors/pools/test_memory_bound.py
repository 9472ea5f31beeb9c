"""Large blocks need two slots of each worker at most, in whatever order anything happens."""

import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import DenseLineage
from gristmill._engine.executors.pools.base import WorkerPool
from gristmill._engine.executors.pools.executor import PooledExecutor
from gristmill._engine.executors.pools.session import PoolSession
from gristmill._engine.executors.pools.task import FindHolder, Task
from gristmill._engine.executors.processes.arena import (
    Arena,
    MappedMemory,
    MappedSlots,
    SlotTransfer,
)
from gristmill._engine.executors.serialization.packed_sources import PackedSource
from gristmill._engine.executors.serialization.plan_payload import PickledPlan
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill._metrics.counters import Counters
from gristmill.options import ReadOptions, WorkerOptions

SMALLEST = 100_000
POLICY = TuningPolicy(large_block_bytes=SMALLEST)


class Reply:
    """A block of one array."""

    work = ()

    def __init__(self, array: Any, positions: range, find_holder: FindHolder) -> None:
        self.array: Any = array
        self.positions = positions
        self.num_bytes: int = array.nbytes
        self.find_holder = find_holder

    def decode(self) -> BlockResult:
        array, self.array = self.array, None
        lineage = DenseLineage.of_records(self.positions, num_flat_maps=0)
        return BlockResult(Block([array], lineage))


class SimulatedWorker:
    """A worker whose messages arrive, and whose tasks run, when the simulation decides."""

    def __init__(self, number: int, sizes: Sequence[int], memory: MappedMemory) -> None:
        self.number = number
        self.sizes = sizes
        self.slots = MappedSlots(memory)
        self.arena = Arena(POLICY)
        self.to_worker: deque[Callable[[], None]] = deque()
        self.to_parent: deque[Callable[[], None]] = deque()
        self.num_permits = 0
        self.tasks: deque[Task] = deque()

    def take_back(self, max_count: int) -> int:
        count = min(max_count, self.num_permits)
        self.num_permits -= count
        return count

    def handle_message(self) -> None:
        self.to_worker.popleft()()

    def be_received(self) -> None:
        self.to_parent.popleft()()

    def accept(self, task: Task, freed: list[int]) -> None:
        self.arena.release(freed)
        self.tasks.append(task)

    def reuse(self, freed: list[int]) -> None:
        self.arena.release(freed)
        self.to_parent.append(partial(self.slots.drop, self.arena.close_surplus()))

    def compute(self, complete: Callable[[int, int, Reply], None]) -> None:
        self.num_permits -= 1
        while self.to_worker:  # the permit may be that of a later task
            self.handle_message()
        task = self.tasks.popleft()
        self.arena.begin(len(task.positions))
        array = self.arena.empty((self.sizes[task.positions.start],), np.uint8)
        array[:] = task.positions.start % 251
        transfer = self.arena.transfer([array.data], len(task.positions))
        self.to_parent.append(partial(self.arrive, task, transfer, complete))

    def arrive(
        self, task: Task, transfer: SlotTransfer, complete: Callable[[int, int, Reply], None]
    ) -> None:
        self.slots.drop(transfer.closed)
        for (number, size), descriptor in zip(transfer.opened, transfer.descriptors, strict=True):
            self.slots.open(number, size, descriptor)
        ((slot, offset, size),) = transfer.slot_ranges
        view, lease = self.slots.lease(slot)
        array = view[offset : offset + size]
        complete(self.number, task.number, Reply(array, task.positions, partial(self.hold, lease)))

    def hold(self, lease: int) -> int | None:
        return self.number if self.slots.is_leased([lease]) else None


class SimulatedPool(WorkerPool):
    """Workers of which one makes a step whenever the stream waits, chosen by chance."""

    def __init__(
        self, sizes: Sequence[int], *, num_workers: int, chance: random.Random, caller: "Caller"
    ) -> None:
        super().__init__("key", WorkerOptions())
        self.mapped = MappedMemory()
        self.workers = [SimulatedWorker(n, sizes, self.mapped) for n in range(num_workers)]
        self.chance = chance
        self.caller = caller
        self.speeds = [chance.choice([1, 1, 30]) for _ in self.workers]
        for worker in self.workers:
            self.scheduler.add_worker(worker.number, worker.take_back)
            self.scheduler.mark_ready(worker.number)

    @property
    def packed_sources(self) -> Sequence[PackedSource]:
        return []

    @property
    def num_workers(self) -> int:
        return len(self.workers)

    def wait(self, timeout_s: float | None = None) -> bool:
        while self.chance.random() < 0.3:  # what the caller does ends no wait
            self.caller.step(self.chance)
        steps: list[Callable[[], object]] = []
        for worker, speed in zip(self.workers, self.speeds, strict=True):
            if worker.to_parent:
                steps += [worker.be_received] * speed
            if worker.to_worker:
                steps += [worker.handle_message] * speed
            if worker.tasks and worker.num_permits:
                steps += [partial(worker.compute, self._complete)] * speed
        assert steps or timeout_s is not None, "it waits forever"
        if steps:
            self.chance.choice(steps)()
        return False

    def _complete(self, worker: int, task: int, reply: Reply) -> None:
        self.scheduler.complete(worker, task, reply)

    def _send(self, worker: int, task: Task) -> None:
        if self.chance.random() < 0.5:
            self.caller.step(self.chance)
        self.workers[worker].num_permits += 1
        freed = self.workers[worker].slots.take_freed(1000)
        self.workers[worker].to_worker.append(partial(self.workers[worker].accept, task, freed))

    def _withdraw(self, worker: int, task: Task) -> None:
        tasks = self.workers[worker].tasks
        self.workers[worker].to_worker.append(lambda: tasks.remove(task))

    def release_slots(self, min_bytes: int) -> None:
        for worker in self.workers:
            if worker.slots.num_freed_bytes >= min_bytes:
                freed = worker.slots.take_freed(1000)
                worker.to_worker.append(partial(worker.reuse, freed))

    @property
    def most_slots(self) -> int:
        """The number of slots, as the parent maps them or as the workers do."""
        return max(
            sum(len(worker.slots._mappings) for worker in self.workers),
            sum(len(worker.arena._slots) for worker in self.workers),
        )

    @property
    def shared_bytes(self) -> int:
        return self.mapped.shared_bytes

    def holds(self, plan: PickledPlan) -> bool:
        raise NotImplementedError

    @property
    def has_lost_workers(self) -> bool:
        return False

    @property
    def is_ready(self) -> bool:
        return True

    def start(self) -> None: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...
    def wait_until_woken(self, timeout_s: float) -> None: ...

    def dispose(self) -> None:
        for worker in self.workers:
            worker.slots.close()
            for slot in worker.arena._slots.values():
                slot.mapping.close()


class Caller:
    """Takes the blocks that a thread prefetches, and keeps some."""

    def __init__(self, kept: frozenset[int] = frozenset(), *, has_two: bool) -> None:
        """Take blocks.

        Args:
            kept: The numbers of the blocks to keep.
            has_two: Whether each block is dropped after the next one is taken, as in a `for` loop.
        """
        self.ready: deque[Any] = deque()
        self.has: list[Any] = []
        self.kept: list[Any] = []
        self.num_taken = 0
        self._keep = kept
        self._max_has = 2 if has_two else 1

    def steps(self) -> list[Callable[[], object]]:
        if len(self.has) >= self._max_has:
            return [self._drop]
        return [self._take] if self.ready else []

    def step(self, chance: random.Random) -> None:
        steps = self.steps()
        if steps:
            chance.choice(steps)()

    def _take(self) -> None:
        array = self.ready.popleft()
        assert set(array[::997].tolist()) == {self.num_taken % 251}
        if self.num_taken in self._keep:
            self.kept.append(array)
        self.num_taken += 1
        self.has.append(array)

    def _drop(self) -> None:
        del self.has[0]


class Keeper:
    """Hands out one pool."""

    def __init__(self, pool: WorkerPool) -> None:
        self.pool = pool

    def take(self, *args: Any, **options: Any) -> WorkerPool:
        return self.pool

    def put_back(self, pool: WorkerPool, *, keep: bool) -> None: ...


def most_slots(
    sizes: Sequence[int], *, num_workers: int, caller: Caller, seed: int, is_late: bool
) -> int:
    """Run a stream of blocks of one element, and return the most slots that it had."""
    policy = replace(POLICY, late_factor=0.0 if is_late else 1e9)
    chance = random.Random(seed)
    pool = SimulatedPool(sizes, num_workers=num_workers, chance=chance, caller=caller)
    keeper: Any = Keeper(pool)
    session = PoolSession(
        keeper, num_workers=num_workers, options=WorkerOptions(), counters=Counters()
    )
    cut: Any = None  # nothing reads it: the workers are simulated
    executor = PooledExecutor(
        cut, session, buffer_size=1, read=ReadOptions(num_threads=0), policy=policy
    )
    num_submitted = most = 0
    for _ in sizes:
        while len(caller.ready) >= policy.worker_prefetch_blocks:
            caller.step(chance)
        result = None
        while result is None:
            while num_submitted < len(sizes) and executor.has_room:
                executor.submit(range(num_submitted, num_submitted + 1))
                num_submitted += 1
            result = executor.collect(has_more=num_submitted < len(sizes))
            most = max(most, pool.most_slots)
        caller.ready.append(result.block.rows().pop())
        del result
    while caller.ready:
        caller.step(chance)
    assert caller.num_taken == len(sizes)
    executor.close()
    executor.dispose()
    pool.dispose()
    return most


SIZES = st.integers(4, 40).flatmap(
    lambda count: st.sampled_from(
        [
            [SMALLEST] * count,
            [SMALLEST + 9_000 * number for number in range(count)],
            [SMALLEST + 9_000 * (count - number) for number in range(count)],
            [SMALLEST + number * 7919 % 100_000 for number in range(count)],
        ]
    )
)


RUNS = {
    "sizes": SIZES,
    "num_workers": st.integers(2, 4),
    "seed": st.integers(0, 10**6),
    "is_late": st.booleans(),
}


@settings(deadline=None, print_blob=True, max_examples=200)
@given(**RUNS, has_two=st.booleans())
def test_two_slots_of_each_worker(
    sizes: list[int], num_workers: int, seed: int, is_late: bool, has_two: bool
):
    caller = Caller(has_two=has_two)

    most = most_slots(sizes, num_workers=num_workers, caller=caller, seed=seed, is_late=is_late)

    assert most <= 2 * num_workers


@settings(deadline=None, print_blob=True, max_examples=200)
@given(**RUNS, has_two=st.booleans(), kept=st.frozensets(st.integers(0, 39), max_size=5))
def test_blocks_that_are_kept_come_on_top_with_one_more_slot_of_each_worker(
    sizes: list[int],
    num_workers: int,
    seed: int,
    is_late: bool,
    has_two: bool,
    kept: frozenset[int],
):
    caller = Caller(kept, has_two=has_two)

    most = most_slots(sizes, num_workers=num_workers, caller=caller, seed=seed, is_late=is_late)

    assert most <= 3 * num_workers + len(kept)


@settings(deadline=None, print_blob=True, max_examples=50)
@given(sizes=SIZES, seed=st.integers(0, 10**6), is_late=st.booleans(), has_two=st.booleans())
def test_two_slots_of_one_worker_besides_what_the_caller_has(
    sizes: list[int], seed: int, is_late: bool, has_two: bool
):
    caller = Caller(has_two=has_two)

    most = most_slots(sizes, num_workers=1, caller=caller, seed=seed, is_late=is_late)

    assert most <= 2 + (2 if has_two else 1)
