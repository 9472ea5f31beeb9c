from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.record_locator import RecordLocator, gather

COUNTS = st.lists(st.integers(0, 5), max_size=6)


def locations_of(counts: list[int]) -> list[tuple[int, int]]:
    return [(file, index) for file, count in enumerate(counts) for index in range(count)]


@settings(deadline=None)
@given(counts=COUNTS)
def test_each_record_is_located(counts: list[int]):
    locator = RecordLocator(counts)
    expected = locations_of(counts)
    assert len(locator) == len(expected)
    assert [locator.locate(index) for index in range(len(locator))] == expected


@settings(deadline=None)
@given(counts=COUNTS, data=st.data())
def test_a_selection_per_file_covers_all_requested_records(counts: list[int], data: Any):
    locator = RecordLocator(counts)
    total = len(locator)
    indices = data.draw(st.lists(st.integers(0, total - 1), max_size=20)) if total else []
    expected = locations_of(counts)

    selections = locator.split(indices)

    files = [selection.file for selection in selections]
    assert files == sorted(set(files))
    found: dict[int, tuple[int, int]] = {}
    for selection in selections:
        assert len(selection.indices) == len(selection.rows) > 0
        for row, within in zip(selection.rows.tolist(), selection.indices.tolist(), strict=True):
            found[row] = (selection.file, within)
    assert [found[row] for row in range(len(indices))] == [expected[index] for index in indices]


@pytest.mark.parametrize(
    "span", [range(1, 8, 2), range(7, -1, -3), np.array([7, 0, 3, 3])], ids=str
)
def test_records_are_gathered_in_the_requested_order_with_one_read_per_file(span: Any):
    files = ["abc", "", "defgh"]
    reads: list[int] = []

    def read(file: int, within: Any) -> list[str]:
        reads.append(file)
        return [files[file][index] for index in within]

    records = gather(RecordLocator(list(map(len, files))), span, read)

    assert records == ["abcdefgh"[index] for index in span]
    assert reads == [0, 2]


def test_no_records_need_no_read():
    assert gather(RecordLocator([3]), [], lambda file, within: pytest.fail("it was read")) == []


@pytest.mark.parametrize("counts", [[5], [2, 3], [2, 0, 3, 0]])
@pytest.mark.parametrize("index", [-1, 5])
def test_an_index_out_of_bounds_is_an_error(counts: list[int], index: int):
    locator = RecordLocator(counts)
    message = rf"^`index` must be in \[0, 5\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        locator.locate(index)
    with pytest.raises(IndexError, match=message):
        locator.split([0, index, 1])
