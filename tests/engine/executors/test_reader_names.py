"""Threads that read have Grain's names, which sources parse."""

import re
import threading
import time
from typing import Any

import pytest

import gristmill as gm


class NamedReads:
    """Records that are the name of the thread which read them, and who else read at the time."""

    def __init__(self, length: int, wait_s: float = 0.0) -> None:
        self._length = length
        self._wait_s = wait_s

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> str:
        time.sleep(self._wait_s)
        return threading.current_thread().name


class Partitions:
    """One iterator per thread, chosen by the number in the name of the thread that reads."""

    def __init__(self, num_threads: int, length: int) -> None:
        self._length = length
        self._generators = [self._numbers(number) for number in range(num_threads)]

    def _numbers(self, number: int) -> Any:
        for index in range(self._length):
            time.sleep(0.0005)
            yield (number, index)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[int, int]:
        number = int(threading.current_thread().name.split("_")[1])
        return next(self._generators[number])  # fails if two threads have the same number


def numbers_of(names: list[str]) -> set[int]:
    assert all(re.fullmatch(r"grain-prefetch_\d+", name) for name in names), set(names)
    return {int(name.split("_")[1]) for name in names}


@pytest.mark.parametrize("worker_count", [0, 1])
@pytest.mark.parametrize("num_threads", [1, 2, 16])
@pytest.mark.parametrize("wait_s", [0.0, 0.002])
def test_a_source_of_a_loader_is_read_by_threads_with_a_number(
    worker_count: int, num_threads: int, wait_s: float
):
    with gm.DataLoader(
        data_source=NamedReads(200, wait_s),
        sampler=gm.IndexSampler(200, num_epochs=1),
        read_options=gm.ReadOptions(num_threads=num_threads),
        worker_count=worker_count,
    ) as loader:
        assert numbers_of(list(loader)) <= set(range(num_threads))


@pytest.mark.parametrize("num_threads", [1, 16])
def test_a_source_of_a_dataset_is_read_by_threads_with_a_number(num_threads: int):
    options = gm.ReadOptions(num_threads=num_threads)
    ds = gm.MapDataset.source(NamedReads(100)).to_iter_dataset(options)
    assert numbers_of(list(ds)) <= set(range(num_threads))


def test_without_threads_the_consumer_reads_under_its_own_name():
    options = gm.ReadOptions(num_threads=0)
    ds = gm.MapDataset.source(NamedReads(10)).to_iter_dataset(options)
    assert set(ds) == {threading.current_thread().name}


def test_a_thread_has_its_own_name_again_when_it_has_read():
    name = threading.current_thread().name
    iterator = iter(gm.MapDataset.source(NamedReads(10)))
    next(iterator)
    assert threading.current_thread().name == name


def test_threads_that_read_at_the_same_time_have_different_numbers():
    source = Partitions(16, 400)
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.IndexSampler(400, num_epochs=1),
        operations=[gm.Batch(10, batch_fn=list)],
        read_options=gm.ReadOptions(num_threads=16),
    )
    pairs = [pair for batch in loader for pair in batch]
    assert len(pairs) == len(set(pairs)) == 400
