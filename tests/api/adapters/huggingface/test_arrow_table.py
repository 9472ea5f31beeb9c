"""Columns of Arrow tables are read as `datasets` reads them, whatever their types and chunks."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasets import Dataset, concatenate_datasets
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill._api.adapters.huggingface import source as _hf_source
from gristmill._api.adapters.huggingface.arrow_table import (
    RowSelection,
    dense_type,
    has_nulls,
    make_columns,
)
from tests.api.adapters.huggingface.hf_samples import (
    KINDS,
    as_python,
    convert,
    is_same,
    make,
    since_midnight,
)

NAMES = sorted(KINDS)
LAW = settings(
    deadline=None,
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def tables(draw: st.DrawFn, names: list[str]) -> Dataset:
    """Draw a dataset of some rows, with nulls or without, in one chunk or several."""
    may_be_null = draw(st.booleans())
    counts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))

    def values(name: str, count: int) -> list[Any]:
        value = KINDS[name].values
        values = st.none() | value if may_be_null else value
        return draw(st.lists(values, min_size=count, max_size=count))

    datasets = [make({name: values(name, count) for name in names}) for count in counts]
    return concatenate_datasets(datasets) if len(datasets) > 1 else datasets[0]


def read(dataset: Any, indices: list[int]) -> list[Any]:
    """Return rows that are read in one call, as columns where that is possible."""
    return list(convert(dataset).slice(indices))


def check_numpy(dataset: Any) -> None:
    check_numpy_once(dataset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_hf_source, "MAX_JOINED_BYTES", 0)  # as if the table were large
        check_numpy_once(dataset)


def check_numpy_once(dataset: Any) -> None:
    formatted = dataset.with_format("numpy")
    rows = list(range(len(dataset)))

    for order in (rows, rows[::-1]):
        for index, row in zip(order, read(formatted, order), strict=True):
            assert is_same(row, formatted[index]), (row, formatted[index])
    for index in rows:
        assert is_same(convert(formatted)[index], formatted[index])


def check_plain(dataset: Any) -> None:
    rows = list(range(len(dataset)))

    for order in (rows, rows[::-1]):
        for index, row in zip(order, read(dataset, order), strict=True):
            expected = {name: since_midnight(value) for name, value in dataset[index].items()}
            assert as_python(row) == expected
            assert all(_is_stored_type(dataset, name, value) for name, value in row.items())


def _is_stored_type(dataset: Any, name: str, value: Any) -> bool:
    """Return whether numbers have the NumPy type that the feature declares."""
    dtype = getattr(dataset.features[name], "dtype", "")
    if value is None or isinstance(value, list) or not dtype.startswith(("int", "uint", "float")):
        return True  # a list contains None
    expected = np.dtype(dtype)
    return isinstance(value, np.generic | np.ndarray) and value.dtype == expected


@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
@settings(LAW, max_examples=3)
def test_a_row_in_numpy_format_is_that_of_datasets(name: str, data: st.DataObject):
    check_numpy(data.draw(tables([name])))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "open grid"])
@given(data=st.data())
@settings(LAW, max_examples=3)
def test_a_row_without_a_format_has_the_stored_values(name: str, data: st.DataObject):
    check_plain(data.draw(tables([name])))


STEPS = ["shuffle", "select", "range", "sort", "double", "beside", "backwards"]


def rearranged(dataset: Any, steps: list[str]) -> Any:
    """Apply methods to a dataset that change the order of its rows or add columns."""
    for number, step in enumerate(steps):
        count = len(dataset)
        match step:
            case "shuffle":
                dataset = dataset.shuffle(seed=number)
            case "select":
                dataset = dataset.select([index * 7 % count for index in range(count + 1)])
            case "range":
                dataset = dataset.select(range(count // 3, count))
            case "backwards":
                dataset = dataset.select(range(count - 1, -1, -1))
            case "double":
                dataset = concatenate_datasets([dataset, dataset])
            case "sort":
                dataset = dataset.select(np.argsort(dataset.with_format(None)["int8"]).tolist())
            case _:
                name = f"more {number}"
                more = Dataset.from_dict({name: [[index, 1] for index in range(count)]})
                dataset = concatenate_datasets([dataset, more], axis=1)
    return dataset


@given(
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    steps=st.lists(st.sampled_from(STEPS), max_size=4),
    kind=st.sampled_from([None, "numpy"]),
)
@LAW
def test_rows_have_the_order_of_the_dataset(counts: list[int], steps: list[str], kind: str | None):
    numbers = iter(range(100))
    datasets = [
        make({"int8": ids, "list": [[one] * 2 for one in ids], "string": list(map(str, ids))})
        for ids in ([next(numbers) for _ in range(count)] for count in counts)
    ]
    dataset = rearranged(concatenate_datasets(datasets), steps)

    (check_plain if kind is None else check_numpy)(dataset)


def test_strings_and_bytes_keep_trailing_nuls_that_datasets_cuts_off_in_numpy():
    dataset = Dataset.from_dict({"text": ["a\0"], "bytes": [b"b\0\0"]}).with_format("numpy")

    assert dataset[0] == {"text": "a", "bytes": b"b"}
    assert convert(dataset)[0] == {"text": "a\0", "bytes": b"b\0\0"}


LISTS = st.none() | st.lists(st.none() | st.integers(0, 9), max_size=3)


@given(chunks=st.lists(st.lists(LISTS, max_size=4), max_size=3), data=st.data())
@LAW
def test_a_column_of_lists_is_gathered_if_all_have_one_length_and_no_null(
    chunks: list[list[Any]], data: st.DataObject
):
    stored = [row for chunk in chunks for row in chunk]
    kind = pa.list_(pa.int32())
    table = pa.table({"x": pa.chunked_array([pa.array(chunk, kind) for chunk in chunks], kind)})
    (column,) = make_columns(table, ["x"], [()])
    positions = st.integers(0, len(stored) - 1)
    rows = data.draw(st.lists(positions, min_size=1, max_size=6)) if stored else []
    expected = [stored[row] for row in rows]

    selection = RowSelection(np.array(rows, np.int64))
    values, irregular = column.read_values(selection)
    gathered = column.gather(selection)

    assert as_python(values) == expected
    has_null = [row is None or None in row for row in expected]
    assert sorted(irregular) == np.flatnonzero(has_null).tolist()
    lengths = {None if one else len(row) for one, row in zip(has_null, expected, strict=True)}
    if not rows or None in lengths or len(lengths) > 1:
        assert gathered is None
    else:
        assert gathered is not None
        order = selection.order_by_chunk(column.locator)
        assert [gathered[position].tolist() for position in order] == expected


@pytest.mark.parametrize(
    ("values", "kind", "is_dense", "holds_null"),
    [
        ([1, 2], pa.int8(), True, False),
        ([[1], [2, None]], pa.list_(pa.int8()), True, True),
        ([[[1, 2]], [[None, 3]]], pa.list_(pa.list_(pa.int8(), 2)), True, True),
        ([[[1]], [[2]]], pa.list_(pa.list_(pa.int8())), False, False),
        ([["a"], None], pa.list_(pa.string()), False, True),
    ],
    ids=str,
)
def test_types_of_numbers_and_nulls_at_any_depth_are_recognized(
    values: Any, kind: Any, is_dense: bool, holds_null: bool
):
    assert (dense_type(kind) is not None) == is_dense
    assert has_nulls(pa.array(values, kind)) == holds_null
