"""Which worker computes what when: reported by the records themselves, through pipes."""

import os
import select
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import PlanError
from tests.policies import TuningPolicy, with_policy
from tests.time_limits import PATIENCE_S

cloudpickle.register_pickle_by_value(sys.modules[__name__])

A_WHILE_S = 0.3  # how long to look whether something happens that must not


class Pipe:
    """A pipe with a name, by which a worker reports to a test where it is, or waits for it."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)

    def tell(self, number: int) -> None:
        """In a worker: pass a number on to the test."""
        descriptor = os.open(self.path, os.O_WRONLY)
        os.write(descriptor, struct.pack("<q", number))
        os.close(descriptor)

    def wait(self) -> None:
        """In a worker: wait until the test opens the pipe."""
        os.close(os.open(self.path, os.O_RDONLY))


class Ear:
    """The test's end of a pipe: what was reported, in that order."""

    def __init__(self, pipe: Pipe) -> None:
        self._descriptor = os.open(pipe.path, os.O_RDWR | os.O_NONBLOCK)
        self.heard: list[int] = []

    def listen(self, seconds: float) -> bool:
        """Wait for more; report whether any came."""
        if not select.select([self._descriptor], [], [], seconds)[0]:
            return False
        data = os.read(self._descriptor, 8 * 1000)
        self.heard += [number for (number,) in struct.iter_unpack("<q", data)]
        return True

    def until(self, holds: Callable[[list[int]], object]) -> None:
        """Listen until what was reported meets a condition."""
        while not holds(self.heard):
            assert self.listen(PATIENCE_S), f"heard only {self.heard}"

    def until_silence(self) -> list[int]:
        """Listen until nothing is reported any more, for a while."""
        while self.listen(A_WHILE_S):
            pass
        return self.heard

    def close(self) -> None:
        os.close(self._descriptor)


class Gate:
    """Where workers wait until the test opens it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._descriptor = -1

    def open(self) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self._pipe.path, os.O_RDWR)

    def close(self) -> None:
        self.open()  # nobody is left waiting
        os.close(self._descriptor)


@pytest.fixture
def road(tmp_path: Path) -> Pipe:
    """Return the pipe by which records report that they were read."""
    return Pipe(tmp_path / "road")


@pytest.fixture
def ear(road: Pipe) -> Iterator[Ear]:
    ear = Ear(road)
    yield ear
    ear.close()


@pytest.fixture
def barrier(tmp_path: Path) -> Pipe:
    """Return the pipe at which a slow record waits."""
    return Pipe(tmp_path / "barrier")


@pytest.fixture
def gate(barrier: Pipe) -> Iterator[Gate]:
    gate = Gate(barrier)
    yield gate
    gate.close()


class Source:
    """Record by record reports that it is read; some of them wait before."""

    def __init__(self, size: int, road: Pipe, barrier: Pipe, slow: int, num_bytes: int = 0) -> None:
        self.size = size
        self.road = road
        self.barrier = barrier
        self.slow = slow
        self.num_bytes = num_bytes

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if index == self.slow:
            self.barrier.wait()
        self.road.tell(index)
        return np.full(self.num_bytes, index % 256, np.uint8) if self.num_bytes else index


BLOCKS_OF_ONE = TuningPolicy(max_block_positions=1)


def loader_of(
    source: Any, *operations: Any, policy: TuningPolicy = BLOCKS_OF_ONE, **arguments: Any
) -> gm.DataLoader:
    arguments.setdefault("sampler", gm.IndexSampler(len(source), num_epochs=1, seed=0))
    arguments.setdefault("worker_count", 2)
    arguments.setdefault("read_options", gm.ReadOptions(num_threads=0))
    loader = gm.DataLoader(data_source=source, operations=operations, **arguments)
    return with_policy(loader, policy)


def test_a_slow_record_holds_nobody_up_but_itself(road: Pipe, ear: Ear, barrier: Pipe, gate: Gate):
    with iter(loader_of(Source(200, road, barrier, slow=0))) as iterator:
        iterator.start_prefetch()
        ear.until(lambda heard: len({*heard}) >= 100)  # four were planned
        assert 0 not in ear.heard
        gate.open()

        assert list(iterator) == list(range(200))


def test_what_is_taken_on_beyond_a_slow_record_is_bounded(
    road: Pipe, ear: Ear, barrier: Pipe, gate: Gate
):
    policy = TuningPolicy(max_block_positions=1, max_blocks_per_worker=5)
    with iter(loader_of(Source(200, road, barrier, slow=0), policy=policy)) as iterator:
        iterator.start_prefetch()
        ear.until(lambda heard: len({*heard}) >= 9)
        assert len({*ear.until_silence()}) <= 2 * 5 + 1
        gate.open()

        assert list(iterator) == list(range(200))


def test_who_is_free_takes_over_what_waits_behind_a_slow_record(
    road: Pipe, ear: Ear, barrier: Pipe, gate: Gate
):
    # The first worker is given 0 and 2, the second 1 and 3.
    with iter(loader_of(Source(4, road, barrier, slow=0))) as iterator:
        iterator.start_prefetch()
        ear.until(lambda heard: {*heard} == {1, 2, 3})
        gate.open()

        assert list(iterator) == [0, 1, 2, 3]


def test_what_was_taken_over_is_not_done_twice(
    road: Pipe, ear: Ear, barrier: Pipe, gate: Gate, tmp_path: Path
):
    late = Pipe(tmp_path / "late")

    def wait_if_second(number: int, num_workers: int) -> None:
        if number == 1:
            late.wait()

    # While the second worker, which is given 1 and 3, is not yet up, the first takes over 3.
    loader = loader_of(
        Source(5, road, barrier, slow=3),
        worker_options=gm.WorkerOptions(worker_init_fn=wait_if_second),
    )
    second = Gate(late)
    with iter(loader) as iterator:
        iterator.start_prefetch()
        ear.until(lambda heard: {0, 2} <= {*heard})
        ear.until_silence()  # it is at 3
        second.open()
        ear.until(lambda heard: {1, 4} <= {*heard})
        gate.open()

        assert list(iterator) == [0, 1, 2, 3, 4]
    second.close()


def test_elements_come_as_soon_as_they_are_there(road: Pipe, ear: Ear, barrier: Pipe, gate: Gate):
    with iter(loader_of(Source(20, road, barrier, slow=1))) as iterator:
        assert next(iterator) == 0
        gate.open()
        assert list(iterator) == list(range(1, 20))


def test_an_error_waits_for_a_slow_record_before_it(
    road: Pipe, ear: Ear, barrier: Pipe, gate: Gate
):
    def fail_at_five(element: int) -> int:
        road.tell(1000 + element)
        if element == 5:
            raise ValueError("five")
        return element

    loader = loader_of(Source(20, road, barrier, slow=3), fail_at_five, worker_count=3)
    with iter(loader) as iterator:
        seen = [next(iterator) for _ in range(3)]
        ear.until(lambda heard: 1005 in heard)
        assert 3 not in ear.heard
        gate.open()

        assert [*seen, next(iterator), next(iterator)] == [0, 1, 2, 3, 4]
        with pytest.raises(ValueError, match="five"):
            next(iterator)


def test_a_worker_that_is_at_what_nobody_wants_any_more_holds_nobody_up(
    road: Pipe, ear: Ear, barrier: Pipe, gate: Gate
):
    loader = loader_of(Source(60, road, barrier, slow=0), worker_count=3)
    with iter(loader) as iterator:
        iterator.set_state(_state_at(40))
        assert next(iterator) == 40
        iterator.set_state(_state_at(0))
        iterator.start_prefetch()
        ear.until(lambda heard: 1 in heard)  # so a worker is at record 0

        iterator.set_state(_state_at(50))

        assert list(iterator) == list(range(50, 60))


def _state_at(position: int) -> bytes:
    inline = gm.DataLoader(
        data_source=Quiet(60),
        sampler=gm.IndexSampler(60, num_epochs=1, seed=0),
        read_options=gm.ReadOptions(num_threads=0),
    )
    iterator = iter(inline)
    for _ in range(position):
        next(iterator)
    return iterator.get_state()


class Quiet:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index

    def __repr__(self) -> str:
        return f"Source(<{self.size} records>)"


MB = 1 << 20


@pytest.mark.parametrize("budget", [None, 6 * MB])
def test_the_memory_budget_bounds_what_is_ahead_of_a_slow_record(
    road: Pipe, ear: Ear, barrier: Pipe, gate: Gate, budget: int | None
):
    loader = loader_of(
        Source(60, road, barrier, slow=10, num_bytes=MB),
        worker_count=3,
        worker_options=gm.WorkerOptions(memory_budget_bytes=budget),
    )
    with iter(loader) as iterator:
        sums = [int(next(iterator)[-1]) for _ in range(10)]
        if budget is None:
            ear.until(lambda heard: 40 in heard)
        else:
            assert 11 <= max(ear.until_silence()) <= 10 + 6
        gate.open()
        sums += [int(element[-1]) for element in iterator]

    assert sums == list(range(60))


def test_a_budget_too_small_for_one_element_reports_how_much_that_takes(
    road: Pipe, ear: Ear, barrier: Pipe
):
    loader = loader_of(
        Source(20, road, barrier, slow=-1, num_bytes=2 * MB),
        worker_options=gm.WorkerOptions(memory_budget_bytes=MB),
    )
    with iter(loader) as iterator:
        for _ in range(2):
            with pytest.raises(
                PlanError,
                match=r"^`memory_budget_bytes` is 1,048,576, but one element takes 2,097,152\. "
                r"Set it to at least that; 4 times as much keeps 2 workers busy\.",
            ):
                next(iterator)


def test_more_workers_than_records_is_fine():
    with iter(loader_of(range(2), gm.Batch(5), worker_count=3)) as iterator:
        assert [batch.tolist() for batch in iterator] == [[0, 1]]


def test_two_iterators_have_workers_of_their_own():
    loader = loader_of(range(40), gm.Batch(3))
    with iter(loader) as one, iter(loader) as other:
        next(other)
        pairs = [(a.tolist(), b.tolist()) for a, b in zip(one, other, strict=False)]

    assert pairs[0] == ([0, 1, 2], [3, 4, 5])
    assert pairs[-1] == ([36, 37, 38], [39])


# Where things lie in memory.


def test_a_source_in_memory_exists_once_for_all_workers():
    source = gm.ArraySource(np.arange(8 * MB, dtype=np.uint8).reshape(64, -1))

    def where(element: Any) -> str:
        (large,) = [arrays for arrays in _arrays_of(source) if arrays.nbytes == 8 * MB]
        return _mapping_of(large.__array_interface__["data"][0])

    with iter(loader_of(source, where)) as iterator:
        described = list(iterator)

    for mapping in described:
        assert "memfd:gristmill" in mapping
        assert "\nAnonymous: 0 kB\n" in mapping  # nobody has a page of his own


def _arrays_of(source: gm.ArraySource) -> list[Any]:
    arrays = source.arrays
    return [arrays] if isinstance(arrays, np.ndarray) else list(arrays.values())


def _mapping_of(address: int) -> str:
    """Return what the system reports about the mapping an address lies in."""
    described: list[str] = []
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            low, high = (int(end, 16) for end in first.split("-"))
            if described:
                break
            if low <= address < high:
                described.append(line)
        elif described:
            described.append(" ".join([first, *rest]))
    return "\n".join(described) + "\n"


def test_without_memfd_files_that_nobody_sees_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def forget_memfd(number: int, num_workers: int) -> None:
        del os.memfd_create
        tempfile.tempdir = str(tmp_path)

    source = gm.ArraySource(np.arange(20.0 * 50_000).reshape(20, -1))
    loader = loader_of(
        source, gm.Batch(2), worker_options=gm.WorkerOptions(worker_init_fn=forget_memfd)
    )
    with iter(loader) as iterator:
        kept = list(iterator)
        assert iterator.stats().shared_memory_bytes > 0
        assert list(tmp_path.iterdir()) == []

    assert np.concatenate(kept).tolist() == source.arrays.tolist()


def test_batches_of_workers_lie_on_cache_lines_and_may_be_kept():
    source = gm.ArraySource(np.arange(100, dtype=np.int64)[:, None] * np.ones(5000, np.int64))
    with iter(loader_of(source, gm.Batch(4))) as iterator:
        kept = list(iterator)

    assert {batch.__array_interface__["data"][0] % 64 for batch in kept} == {0}
    assert [batch[:, 17].tolist() for batch in kept] == [
        list(range(first, first + 4)) for first in range(0, 100, 4)
    ]


# What a worker needs to receive, and what not.


class OwnGenerator:
    """A source of randomness that cannot be sent to another process."""

    def __init__(self, index: int) -> None:
        self.lock = threading.Lock()
        self.index = index


class OwnSampler:
    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> gm.RecordMetadata:
        rng: Any = OwnGenerator(index)
        return gm.RecordMetadata(index, index, rng)


class Draw(gm.RandomMap):
    def random_map(self, element: int, rng: Any) -> int:
        return 100 * rng.index + element


@pytest.mark.parametrize("operations", [[], [Draw()], [Draw(), gm.Batch(4)]])
def test_generators_that_nobody_needs_any_more_are_not_sent(operations: list[Any]):
    sampler = OwnSampler()

    def elements(worker_count: int) -> list[Any]:
        loader = loader_of(range(20), *operations, sampler=sampler, worker_count=worker_count)
        with iter(loader) as iterator:
            return [np.asarray(element).tolist() for element in iterator]

    assert elements(2) == elements(0)


def test_workers_get_their_number_before_anything_else(road: Pipe, ear: Ear, barrier: Pipe):
    def tell(number: int, num_workers: int) -> None:
        road.tell(-100 * num_workers - number)

    loader = loader_of(
        Source(50, road, barrier, slow=-1),
        worker_count=3,
        worker_options=gm.WorkerOptions(worker_init_fn=tell),
    )
    with iter(loader) as iterator:
        assert list(iterator) == list(range(50))

    ear.until_silence()
    assert sorted(number for number in ear.heard if number < 0) == [-302, -301, -300]
    assert ear.heard[0] < 0
