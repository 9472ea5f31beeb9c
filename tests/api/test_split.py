"""`split` and `k_fold` of sources, as the source of a `DataLoader`."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill.errors import PlanError, PlanTypeError, StateError


class Squares:
    """A source of the user's own, with nothing but the two methods."""

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < 30:
            raise IndexError(index)
        return index * index


class ManySquares(Squares):
    """The same with many records in one call."""

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return [index * index for index in indices]


SOURCES: dict[str, Any] = {
    "list": [index * index for index in range(30)],
    "own": Squares(),
    "many": ManySquares(),
    "array": np.arange(30) ** 2,
    "columns": gm.ArraySource(np.arange(30) ** 2),
    "dataset of a source": gm.MapDataset.source(Squares()),
}


def read(source: Any, **options: Any) -> list[int]:
    loader = gm.load(source, num_epochs=1, batch_size=4, **options)
    return [int(number) for batch in loader for number in batch]


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
@pytest.mark.parametrize("worker_count", [0, 1])
def test_the_parts_of_any_source_are_disjoint_and_complete(source: Any, worker_count: int):
    train, test = gm.split(source, [0.8, 0.2], seed=0)
    assert (len(train), len(test)) == (24, 6)
    parts = [read(part, worker_count=worker_count) for part in (train, test)]
    assert sorted([*parts[0], *parts[1]]) == [index * index for index in range(30)]
    assert parts[0] == read(gm.split(SOURCES["list"], [0.8, 0.2], seed=0)[0])


def test_a_source_and_a_dataset_are_split_alike():
    of_source = gm.split(Squares(), [0.5, 0.5], seed=7)
    of_dataset = gm.MapDataset.source(Squares()).split([0.5, 0.5], seed=7)
    assert [[*part] for part in of_source] == [[*part] for part in of_dataset]


def test_columns_are_read_as_columns():
    train, _ = gm.split(gm.ArraySource({"x": np.arange(9)}), [6, 3], seed=0)
    assert train.is_columnar
    assert not gm.split([1, 2], [1, 1], seed=0)[0].is_columnar
    (batch,) = gm.load(train, num_epochs=1, batch_size=6)
    assert batch["x"].tolist() == [record["x"] for record in train]


def test_all_epochs_of_a_loader_have_the_same_records():
    _, test = gm.split(range(50), [0.7, 0.3], seed=1)
    loader = gm.load(test, num_epochs=4, shuffle=True, seed=0, batch_size=15)
    epochs = [sorted(batch.tolist()) for batch in loader]
    assert len(epochs) == 4
    assert all(epoch == epochs[0] for epoch in epochs)


def test_the_folds_of_a_source_are_tested_once_each():
    tested: list[int] = []
    for i in range(4):
        train, test = gm.k_fold(range(10), 4, i, seed=0, stratify=[0, 1] * 5)
        assert sorted([*train, *test]) == [*range(10)]
        tested += test
    assert sorted(tested) == [*range(10)]


def test_a_state_of_one_part_does_not_restore_the_other():
    train, test = gm.split(range(20), [10, 10], seed=0)
    iterator = iter(gm.load(train, num_epochs=1))
    next(iterator)
    state = iterator.get_state()
    for other in (test, gm.split(range(20), [10, 10], seed=1)[0]):
        with pytest.raises(StateError, match="another source"):
            iter(gm.load(other, num_epochs=1)).set_state(state)
    again = iter(gm.load(gm.split(range(20), [10, 10], seed=0)[0], num_epochs=1))
    again.set_state(state)
    assert [*again] == [*train][1:]


def test_the_repr_has_neither_data_nor_addresses():
    train, _ = gm.split(Squares(), [0.5, 0.5], seed=0)
    assert repr(train) == "SplitSource(Squares, [0:15] of 30, seed=0)"
    assert "list" in repr(gm.split([*range(9)], [0.5, 0.5], seed=0)[0])


def test_an_index_out_of_bounds_is_refused():
    train, _ = gm.split(range(4), [2, 2], seed=0)
    for index in (-1, 2):
        with pytest.raises(IndexError, match=r"`index` must be in \[0, 2\)"):
            train[index]
        with pytest.raises(IndexError, match=r"`index` must be in \[0, 2\)"):
            train.__getitems__([0, index])


def test_what_is_not_a_source_is_refused():
    with pytest.raises(PlanTypeError, match="`data_source` is a dict"):
        gm.split({"x": [1]}, [1.0], seed=0)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(PlanError, match="`source` is empty"):
        gm.split([], [1.0], seed=0)
