"""Sources that state how their elements are batched."""

from collections.abc import Sequence
from typing import Any

import pytest

from gristmill import Batch, DataLoader, IterDataset, MapDataset, SequentialSampler


def joined(elements: Sequence[str]) -> str:
    return "+".join(elements)


class Letters(list[str]):
    collate = staticmethod(joined)


LETTERS = MapDataset.source(Letters("abcde"))


@pytest.mark.parametrize(
    "dataset",
    [
        LETTERS,
        LETTERS.map(str.upper),
        LETTERS.seed(1).shuffle(),
        LETTERS[::2],
        LETTERS.to_iter_dataset().filter(lambda letter: letter != "b"),
        MapDataset.concatenate([LETTERS, LETTERS.map(str.upper)]),
        IterDataset.mix([LETTERS.to_iter_dataset(), LETTERS.to_iter_dataset()]),
    ],
    ids=["plain", "map", "shuffle", "slice", "filter", "concatenate", "mix"],
)
def test_batch_asks_the_source_whatever_is_between(dataset: Any):
    elements = list(dataset)
    batches = list(dataset.batch(2))
    assert batches == [joined(elements[at : at + 2]) for at in range(0, len(elements), 2)]


def test_a_batch_function_of_the_users_goes_first():
    assert list(LETTERS.batch(3, batch_fn=len)) == [3, 2]


def test_batches_of_batches_are_stacked():
    batches: Any = LETTERS.batch(2)[:2].batch(2)
    assert batches[0].tolist() == ["a+b", "c+d"]


def test_sources_that_differ_are_stacked():
    both: Any = MapDataset.concatenate([LETTERS, MapDataset.source(["x"])])
    assert both.batch(6)[0].tolist() == [*"abcde", "x"]


@pytest.mark.parametrize("worker_count", [0, 1])
def test_the_loader_asks_it_too(worker_count: int):
    loader = DataLoader(
        data_source=LETTERS,
        sampler=SequentialSampler(5),
        operations=[Batch(2)],
        worker_count=worker_count,
    )
    assert list(loader) == ["a+b", "c+d", "e"]


def test_a_dataset_that_is_only_its_source_is_read_as_that_source():
    loader = DataLoader(data_source=LETTERS, sampler=SequentialSampler(5))
    assert loader._plan_node.parent.source is LETTERS._plan_node.source  # pyright: ignore[reportAttributeAccessIssue]
    assert MapDataset.source(LETTERS)._plan_node.source is LETTERS._plan_node.source  # pyright: ignore[reportAttributeAccessIssue]


def test_other_datasets_are_read_many_elements_at_a_time():
    asked: list[int] = []

    def note(columns: Any) -> Any:
        asked.append(len(columns))
        return columns

    class Noted:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            raise AssertionError("asked for one")

        def __getitems__(self, indices: Sequence[int]) -> list[int]:
            return note(list(indices))

    dataset = MapDataset.source(Noted()).map(str)
    loader = DataLoader(data_source=dataset, sampler=SequentialSampler(8))
    assert list(loader) == list("01234567")
    assert sum(asked) == 8
    assert len(asked) < 8
    assert dataset.__getitems__([3, 9]) == ["3", "1"]  # pyright: ignore[reportAttributeAccessIssue]
