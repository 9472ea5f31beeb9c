"""Each record of a pass is read once, however the pass is executed, and whatever is tried."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from tests.policies import TRIES_AT_ONCE, with_policy

TOTAL = 3000


class Counted:
    """Notes each read in a file: a single write to its end, from any thread or process."""

    def __init__(self, path: Path, *, wait_s: float = 0.0, length: int = TOTAL) -> None:
        self._path = path
        self._wait_s = wait_s
        self._length = length
        path.touch()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        os.write(file, b"%d\n" % index)
        os.close(file)
        if self._wait_s:
            time.sleep(self._wait_s)  # stands for a disk or a network
        return index

    @property
    def reads(self) -> Counter[int]:
        return Counter(map(int, self._path.read_text().split()))


STEPS: dict[str, list[Any]] = {
    "records": [],
    "batches": [gm.Batch(7)],
    "filtered": [gm.FilterOperation(lambda x: x % 3 == 0)],
    "filtered batches": [gm.FilterOperation(lambda x: x % 3 == 0), gm.Batch(16)],
    "batches of batches": [gm.Batch(5), gm.MapOperation(sum), gm.Batch(4)],
    "large batches": [gm.Batch(1000)],
}

EXECUTORS: dict[str, dict[str, Any]] = {
    "inline": {"read_options": gm.ReadOptions(num_threads=0)},
    "1 thread": {"read_options": gm.ReadOptions(num_threads=1)},
    "4 threads": {"read_options": gm.ReadOptions(num_threads=4)},
    "16 threads": {},
    "1 worker": {"worker_count": 1},
    "3 workers": {"worker_count": 3},
    "any workers": {"worker_count": None},
}


@pytest.mark.parametrize("tries", [False, True], ids=["default", "tries at once"])
@pytest.mark.parametrize("wait_s", [0.0, 0.001], ids=["fast", "waits"])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_loader_reads_each_record_once(
    executor: str, steps: str, wait_s: float, tries: bool, tmp_path: Path
):
    total = 400 if wait_s else TOTAL
    source = Counted(tmp_path / "reads", wait_s=wait_s, length=total)
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.IndexSampler(total, shuffle=True, seed=1, num_epochs=1),
        operations=STEPS[steps],
        **EXECUTORS[executor],
    )
    with with_policy(loader, TRIES_AT_ONCE) if tries else loader as running:
        for _ in running:
            pass
    assert source.reads == Counter(range(total))


class Uneven(Counted):
    """A source some of whose records take long, so that their worker is late."""

    def __getitem__(self, index: int) -> int:
        if index % 97 == 0:
            time.sleep(0.01)  # stands for a large file
        return super().__getitem__(index)


@pytest.mark.parametrize("num_threads", [0, 4], ids=["", "with threads"])
@pytest.mark.parametrize("batch_size", [1, 8])
@pytest.mark.parametrize("worker_count", [2, 4])
def test_workers_that_take_over_the_tasks_of_late_ones_read_each_record_once(
    worker_count: int, batch_size: int, num_threads: int, tmp_path: Path
):
    source = Uneven(tmp_path / "reads", length=2000)
    with gm.DataLoader(
        data_source=source,
        sampler=gm.IndexSampler(2000, num_epochs=1),
        operations=[gm.Batch(batch_size)],
        worker_count=worker_count,
        read_options=gm.ReadOptions(num_threads=num_threads),
    ) as loader:
        assert [index for batch in loader for index in batch.tolist()] == list(range(2000))
    assert source.reads == Counter(range(2000))


DATASETS: dict[str, Callable[[gm.MapDataset[Any]], Any]] = {
    "records": lambda ds: ds,
    "batches": lambda ds: ds.batch(7),
    "a stream of batches": lambda ds: ds.to_iter_dataset().batch(7),
    "a mix": lambda ds: gm.MapDataset.mix([ds[:1500], ds[1500:]]).batch(16),
    "a mix of streams": lambda ds: gm.IterDataset.mix(
        [ds[:1500].to_iter_dataset(), ds[1500:].to_iter_dataset()]
    ),
    "filtered": lambda ds: ds.filter(lambda x: x % 5 == 0).to_iter_dataset().batch(3),
    "a window": lambda ds: gm.experimental.WindowShuffleIterDataset(
        ds.to_iter_dataset(), window_size=50, seed=1
    ).batch(9),
}


@pytest.mark.parametrize("program", DATASETS)
@pytest.mark.parametrize("num_workers", [0, 1, 2])
def test_a_dataset_reads_each_record_once(program: str, num_workers: int, tmp_path: Path):
    source = Counted(tmp_path / "reads")
    ds = DATASETS[program](gm.MapDataset.source(source))
    ds = ds if isinstance(ds, gm.IterDataset) else ds.to_iter_dataset()
    with iter(ds.mp_prefetch(gm.MultiprocessingOptions(num_workers=num_workers))) as iterator:
        for _ in iterator:
            pass
    assert source.reads == Counter(range(TOTAL))


@pytest.mark.parametrize("busy", [(0, 400), (100, 300)])
def test_a_consumer_that_is_busy_at_times_reads_each_record_once(
    busy: tuple[int, int], tmp_path: Path
):
    source = Counted(tmp_path / "reads")
    iterator = iter(gm.load(source, num_epochs=1, batch_size=5))
    for number, _ in enumerate(iterator):
        if busy[0] <= number < busy[1]:
            time.sleep(0.0005)  # a training step: the stream has a background thread now
    assert source.reads == Counter(range(TOTAL))
