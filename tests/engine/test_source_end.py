"""A source that raises `StopIteration` ends the epoch, under every executor, as in Grain."""

import logging
from collections.abc import Callable
from typing import Any

import grain
import pytest

import gristmill as gm
from gristmill.types import Element


class Stream:
    """A stream behind `__getitem__`, which ends before its length."""

    def __init__(self, end: int, length: int = 1000) -> None:
        self._end = end
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if index >= self._end:
            raise StopIteration
        return index

    def __repr__(self) -> str:
        return f"Stream(end={self._end})"


class BatchedStream(Stream):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [self[index] for index in indices]


EXECUTORS: dict[str, dict[str, Any]] = {
    "inline": {"read_options": gm.ReadOptions(num_threads=0)},
    "threads": {"read_options": gm.ReadOptions(num_threads=4)},
    "processes": {"worker_count": 2},
}

OPERATIONS: dict[str, Callable[[Any], list[Any]]] = {
    "none": lambda api: [],
    "batches": lambda api: [api.transforms.Batch(4)],
    "full batches": lambda api: [api.transforms.Batch(4, drop_remainder=True)],
    "filtered batches": lambda api: [Odd(api), api.transforms.Batch(4)],
}


def Odd(api: Any) -> Any:  # noqa: N802 - makes a class of either side
    class Odd(api.transforms.Filter):
        def filter(self, element: int) -> bool:
            return element % 2 == 1

    return Odd()


def sampler(api: Any) -> Any:
    return api.samplers.IndexSampler(
        1000, shard_options=api.sharding.NoSharding(), num_epochs=1, seed=0
    )


def as_lists(elements: Any) -> list[Any]:
    return [getattr(element, "tolist", lambda element=element: element)() for element in elements]


@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("operations", OPERATIONS)
@pytest.mark.parametrize("end", [0, 1, 30, 32])
@pytest.mark.parametrize("kind", [Stream, BatchedStream])
def test_a_loader_ends_where_its_source_does_and_keeps_the_last_batch(
    executor: str, operations: str, end: int, kind: type[Stream]
):
    expected = as_lists(
        grain.DataLoader(
            data_source=kind(end),
            sampler=sampler(grain),
            operations=OPERATIONS[operations](grain),
            read_options=grain.ReadOptions(num_threads=0),
        )
    )
    with gm.DataLoader(
        data_source=kind(end),
        sampler=sampler(gm),
        operations=OPERATIONS[operations](gm),
        **EXECUTORS[executor],
    ) as loader:
        assert as_lists(loader) == expected


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_state_after_the_end_stands_at_the_end(executor: str):
    with gm.DataLoader(
        data_source=Stream(10), sampler=sampler(gm), operations=[gm.Batch(4)], **EXECUTORS[executor]
    ) as loader:
        iterator = iter(loader)
        first = next(iterator)
        after_one = iterator.get_state()
        assert [first.tolist(), *as_lists(iterator)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert next(iterator, None) is None
        other = iter(loader)
        other.set_state(iterator.get_state())
        assert list(other) == []
        other.set_state(after_one)
        assert as_lists(other) == [[4, 5, 6, 7], [8, 9]]


DATASETS: dict[str, Callable[[Any, Any], Any]] = {
    "records": lambda api, ds: ds,
    "a stream of batches": lambda api, ds: ds.to_iter_dataset().batch(4),
    "mapped": lambda api, ds: ds.map(lambda x: x + 1).to_iter_dataset().filter(lambda x: x % 3),
    "shuffled": lambda api, ds: ds[:40].shuffle(seed=1),
    "mixed": lambda api, ds: api.MapDataset.mix([ds, api.MapDataset.range(500)], [2, 1]),
    "mixed streams": lambda api, ds: api.IterDataset.mix(
        [ds.to_iter_dataset(), api.MapDataset.range(500).to_iter_dataset()], [2, 1]
    ),
}


@pytest.mark.parametrize("num_threads", [0, 4])
@pytest.mark.parametrize("program", DATASETS)
def test_a_dataset_ends_where_its_source_does(program: str, num_threads: int):
    made: list[Any] = []
    for api in (grain, gm):
        ds = DATASETS[program](api, api.MapDataset.source(Stream(30)))
        if isinstance(ds, api.MapDataset):
            ds = ds.to_iter_dataset(api.ReadOptions(num_threads=num_threads))
        made.append(as_lists(ds))
    assert made[1] == made[0]


def test_a_dataset_of_batches_keeps_the_last_one():
    ds = gm.MapDataset.source(Stream(10)).batch(4)
    assert as_lists(ds) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_zipped_datasets_end_with_the_first_source():
    ds = gm.MapDataset.source(Stream(3))  # Grain raises a RuntimeError
    assert list(gm.experimental.ZipMapDataset([ds, ds])) == [(0, 0), (1, 1), (2, 2)]


def test_a_dataset_of_a_users_ends_where_it_reports():
    class Ending(gm.MapDataset[int]):
        def __len__(self) -> int:
            return len(self._parent)

        def __getitem__(self, index: Any) -> Any:
            return self._parent[index]

    assert list(Ending(gm.MapDataset.source(Stream(7)))) == list(range(7))


def test_an_index_past_the_end_raises_stop_iteration():
    ds = gm.MapDataset.source(Stream(7))
    assert ds[6] == 6
    with pytest.raises(StopIteration):
        ds[7]


def test_the_end_is_logged_once(caplog: pytest.LogCaptureFixture):
    ds = gm.MapDataset.source(Stream(7)).to_iter_dataset()
    with caplog.at_level(logging.INFO, logger="gristmill"):
        assert len(list(gm.experimental.RepeatIterDataset(ds, 3))) == 21
    ends = [record for record in caplog.records if "StopIteration" in record.message]
    assert [record.message for record in ends] == [
        "The epoch ends: reading Stream(end=7) raised StopIteration, on element 7."
    ]


def test_records_that_raise_are_skipped_up_to_the_end():
    def fail_on_three(x: int) -> int:
        return 1 // (x - 3) * 0 + x

    loader = gm.DataLoader(
        data_source=Stream(6),
        sampler=sampler(gm),
        operations=[fail_on_three],
        on_error=gm.SkipErrors(budget=1),
    )
    assert list(loader) == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_transform_that_raises_stop_iteration_is_an_error(executor: str):
    def stop(x: Element) -> Element:
        raise StopIteration

    with (
        gm.DataLoader(
            data_source=range(10),
            sampler=gm.IndexSampler(10, num_epochs=1),
            operations=[stop],
            **EXECUTORS[executor],
        ) as loader,
        pytest.raises(RuntimeError, match="A step raised StopIteration"),
    ):
        list(loader)
