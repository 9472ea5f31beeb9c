"""Nodes that only move elements: errors stay where their element is."""

from typing import Any

import numpy as np

from gristmill import MapDataset
from gristmill._engine.access.reader import open_dataset
from gristmill.experimental import ZipMapDataset


def failing_from(start: int, number: int) -> MapDataset[int]:
    def fail(x: int) -> int:
        if x == number:
            raise ValueError(f"{number}")
        return x

    return MapDataset.range(start, start + 10).map(fail)


def read(dataset: Any, span: Any) -> tuple[list[Any], str]:
    result = open_dataset(dataset._plan_node)(span)
    assert result.block.lineage.positions().tolist() == list(span)[: len(result.block)]
    return result.block.rows(), str(result.error)


def test_elements_of_several_parents_come_in_order_up_to_the_first_error():
    mixed = MapDataset.mix([failing_from(0, 4), failing_from(100, 102), failing_from(200, -1)])

    assert read(mixed, range(6)) == ([0, 100, 200, 1, 101, 201], "None")
    assert read(mixed, range(3, 15)) == ([1, 101, 201, 2], "102")
    assert read(mixed, np.array([11, 12, 7])) == ([203], "4")


def test_a_merge_of_one_parent_at_a_time_reads_only_that():
    both = MapDataset.concatenate([failing_from(0, -1), failing_from(100, 100)])

    assert read(both, range(7, 10)) == ([7, 8, 9], "None")
    assert read(both, range(8, 12)) == ([8, 9], "100")


def test_a_selection_that_raises_is_an_error_of_the_selection():
    selected = MapDataset.select_from_datasets([MapDataset.range(3)], [(0, 1), (0, 2)])

    assert read(selected, range(2)) == ([1, 2], "None")
    rows, message = read(selected, range(1, 3))
    assert rows == []
    assert message == "list index out of range"


def test_the_first_parent_of_a_zip_that_fails_decides():
    zipped = ZipMapDataset([failing_from(0, 5), failing_from(100, 103), failing_from(200, 203)])

    assert read(zipped, range(1, 7)) == ([(1, 101, 201), (2, 102, 202)], "103")


def test_a_shuffle_is_the_same_for_ranges_and_arrays():
    dataset = MapDataset.range(50).shuffle(seed=3)

    for start in (0, 7, 14, 49, 80):
        span = range(start, start + 7)
        assert read(dataset, span) == read(dataset, np.array(span))
        assert read(dataset, span[::2]) == read(dataset, np.array(span[::2]))
