"""Summaries of tables: the same for shards that are merged, whatever the records contain."""

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._base.trees.columns import Columns
from gristmill._data.statistics.column_summary import ColumnSummary, summarize_column
from gristmill._data.statistics.table_summary import TableSummary, summarize_table

LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.sampled_from([np.float32(1.5), np.arange(3), np.zeros((2, 2), np.uint8), 1j, object()])
    | st.sampled_from([np.datetime64("2020-01-01"), np.datetime64("NaT"), np.array("text")])
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=6,
)
RECORDS = st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES) | VALUES, max_size=8)


def described(summary: ColumnSummary) -> tuple[Any, ...]:
    numbers, lengths = summary.numbers, summary.lengths
    return (
        summary.num_values,
        sorted(summary.types),
        None if numbers is None else (numbers.low, numbers.high, numbers.count, numbers.num_nan),
        None if numbers is None or numbers.histogram is None else numbers.histogram.counts.tolist(),
        None if lengths is None else (lengths.low, lengths.high, lengths.count),
        summary.categories.counts,
        None if summary.times is None else [str(time) for time in summary.times],
    )


@settings(max_examples=200)
@given(records=RECORDS, cut=st.integers(0, 8))
def test_merged_summaries_are_that_of_all_records(records: list[Any], cut: int):
    whole = summarize_table(records)

    merged = summarize_table(records[:cut]).merge(summarize_table(records[cut:]))

    assert merged.num_records == whole.num_records == len(records)
    assert set(merged.columns) == set(whole.columns)
    for name, column in whole.columns.items():
        assert described(merged.columns[name]) == described(column)
        assert merged.num_missing(name) == whole.num_missing(name)


def test_columns_and_rows_have_the_same_summary():
    tree = {"x": np.arange(6, dtype=np.float32), "y": np.zeros((6, 2, 3), np.uint8)}
    columns = Columns.of(tree, range(6))

    found = [summarize_table(columns), summarize_table(columns.rows())]

    first, second = ({name: described(c) for name, c in one.columns.items()} for one in found)
    assert first == second


def test_a_record_without_a_key_and_a_null_and_nan_are_missing():
    table = summarize_table([{"x": 1.0}, {"x": None}, {}, {"x": float("nan")}])
    assert table.num_missing("x") == 3


def test_nan_in_arrays_is_not_a_missing_value():
    table = summarize_table([{"x": np.array([np.nan, 1])}])
    assert table.num_missing("x") == 0


def test_nan_in_arrays_is_counted_among_their_numbers():
    table = summarize_table([{"x": np.array([np.nan, 1])}, {"x": None}, {"x": np.array([2.0])}])
    assert (table.num_missing("x"), table.num_missing_inside("x")) == (1, 1)


def test_a_value_that_is_a_dict_in_other_records_is_missing_only_where_it_is_null():
    records = [{"m": {"z": 1}}, {"m": None}, {"m": {}}, {"m": None}]
    whole = summarize_table(records)
    merged = summarize_table(records[:1]).merge(summarize_table(records[1:]))

    assert [table.num_missing("m") for table in (whole, merged)] == [2, 2]
    assert whole.num_missing('m["z"]') == 3


def test_missing_items_of_lists_of_dicts_are_those_that_are_null():
    table = summarize_table([{"t": [{"x": 1}, None, {"x": 2}]}])
    assert (table.num_missing("t[*]"), table.num_expected("t[*]")) == (1, 3)


def test_missing_items_of_lists_are_counted_among_the_items():
    table = summarize_table([{"t": [1.0, None]}, {"t": [None, float("nan"), 2.0]}, {"t": []}])
    assert (table.num_missing("t[*]"), table.num_expected("t[*]")) == (3, 5)


def test_no_records():
    assert dict(summarize_table([]).columns) == {}
    assert (
        TableSummary(num_records=0, columns={}, num_nested={})
        .merge(summarize_table([1]))
        .num_records
        == 1
    )


def test_times_and_shapes():
    times = np.array(["2021-01-01", "2020-01-01", "NaT"], "datetime64[D]")
    column = summarize_column(times)
    assert [str(time) for time in column.times or ()] == ["2020-01-01", "2021-01-01"]
    assert summarize_column([np.zeros((2, 3)), np.zeros((2, 4))]).types == ["float64[2, ?]"]
