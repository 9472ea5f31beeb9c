"""`slice` and `[]` with indices: lists as in Grain, and datasets of indices as in its head."""

import logging
from typing import Any

import grain
import numpy as np
import pytest

import gristmill
from gristmill import MapDataset
from gristmill.errors import PlanError, PlanTypeError, UnknownIndexError
from gristmill.experimental import InterleaveIterDataset, get_next_index, set_next_index


@pytest.mark.parametrize(
    "indices",
    [[3, 1, 4, 1, 5], (0,), np.array([9, 8]), range(3), [], MapDataset.range(10)[::2]],
    ids=str,
)
def test_a_slice_by_indices_has_the_elements_at_them(indices: Any):
    expected = list(indices)

    assert list(MapDataset.range(10).slice(indices)) == expected
    assert list(MapDataset.range(10)[indices]) == expected


def test_indices_go_on_in_the_next_epoch_of_the_parent():
    parent = MapDataset.range(10).map_with_index(lambda index, element: (index, element))
    picked = parent.slice(MapDataset.source([2, 5]))

    assert [picked[index] for index in range(4)] == [(2, 2), (5, 5), (12, 2), (15, 5)]
    assert list(picked[1:]) == [(5, 5)]


def test_an_endless_dataset_of_indices_is_refused():
    with pytest.raises(PlanError, match=r"^A dataset of indices must be finite\. Slice it first\."):
        MapDataset.range(10).slice(MapDataset.range(3).repeat())


def test_indices_that_are_not_integers_are_refused():
    words: Any = MapDataset.source(["a"])
    with pytest.raises(PlanTypeError, match="must be an integer"):
        MapDataset.range(10).slice(words)


# The next index of an interleave


def interleaved(api: Any, count: int) -> Any:
    datasets = [api.MapDataset.range(10).batch(2).to_iter_dataset() for _ in range(count)]
    return iter(api.experimental.InterleaveIterDataset(datasets, cycle_length=4))


@pytest.mark.parametrize("api", [grain, gristmill])
def test_an_interleave_of_one_dataset_has_a_next_index(api: Any):
    iterator = interleaved(api, 1)
    assert api.experimental.get_next_index(iterator) == 0
    next(iterator)
    assert api.experimental.get_next_index(iterator) == 1
    api.experimental.set_next_index(iterator, 3)
    assert api.experimental.get_next_index(iterator) == 3
    assert next(iterator).tolist() == [6, 7]


@pytest.mark.parametrize("api", [grain, gristmill])
def test_the_next_index_of_several_is_not_implemented(api: Any):
    iterator = interleaved(api, 2)
    with pytest.raises(NotImplementedError):
        api.experimental.get_next_index(iterator)
    with pytest.raises(NotImplementedError):
        api.experimental.set_next_index(iterator, 1)


@pytest.mark.parametrize("api", [grain, gristmill])
def test_the_next_index_above_a_filter_is_not_implemented(api: Any):
    iterator = iter(api.MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2))
    with pytest.raises(NotImplementedError):
        api.experimental.get_next_index(iterator)


def test_an_interleave_without_its_dataset_has_no_next_index():
    datasets: Any = MapDataset.source([None])
    iterator = iter(InterleaveIterDataset(datasets, cycle_length=1))
    with pytest.raises(UnknownIndexError):
        set_next_index(iterator, 1)
    assert get_next_index(iterator) == 0


# Options


def test_a_prefetch_buffer_smaller_than_the_threads_is_logged(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING, "gristmill"):
        gristmill.ReadOptions(num_threads=10, prefetch_buffer_size=5)
    assert "prefetch_buffer_size=5 is smaller than num_threads=10" in caplog.text
    caplog.clear()
    gristmill.ReadOptions(num_threads=10, prefetch_buffer_size=0)
    gristmill.ReadOptions(num_threads=5, prefetch_buffer_size=5)
    assert not caplog.records
