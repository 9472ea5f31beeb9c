import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import plain, same, tables

from gristmill._arrow import (
    dense_of,
    join,
    null_rows,
    pick,
    to_dense,
    to_values,
    told_as_ours,
)
from gristmill.errors import CorruptFileError, FormatError, PlanError


def tensors(values: list[Any], kind: Any) -> Any:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


@settings(max_examples=50)
@given(table=tables(), data=st.data())
def test_values_are_those_of_pyarrow_of_any_slice(table: pa.Table, data: st.DataObject):
    first = data.draw(st.integers(0, len(table)))
    for column in table.slice(first, data.draw(st.integers(0, 12))).columns:
        assert plain(to_values(column.combine_chunks())) == column.to_pylist()


@settings(max_examples=50)
@given(table=tables(), data=st.data())
def test_a_value_is_the_same_whatever_is_beside_it(table: pa.Table, data: st.DataObject):
    for column in table.columns:
        array = column.combine_chunks()
        values = to_values(array)
        for index in range(len(array)):
            assert same(to_values(array.slice(index, 1)), values[index : index + 1])


@settings(max_examples=50)
@given(table=tables(is_dense=True))
def test_dense_columns_are_arrays_of_the_dtype_and_shape_that_the_type_says(table: pa.Table):
    for column in table.columns:
        array, dense = column.combine_chunks(), dense_of(column.type)
        assert dense is not None
        made = to_dense(array)
        assert (made.dtype, made.shape) == (dense.dtype, (len(array), *dense.shape))
        assert made.tolist() == column.to_pylist()
        assert dense.num_bytes * len(array) == made.nbytes


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.timestamp("ns")], ids=str)
def test_dense_values_are_views_of_arrows_memory(kind: Any):
    items = pa.array(np.arange(8)).cast(kind)
    address = items.buffers()[1].address
    lists = pa.FixedSizeListArray.from_arrays(items, 2)
    assert to_dense(items).__array_interface__["data"][0] == address
    assert to_dense(lists.slice(1)).__array_interface__["data"][0] == address + kind.bit_width // 4


def test_numbers_are_scalars_of_the_dtype_of_the_column_also_among_nulls():
    values = to_values(pa.array([1, None, 3], pa.uint16()))
    assert values == [1, None, 3]
    assert [type(value) for value in values] == [np.uint16, type(None), np.uint16]


def test_lists_of_numbers_are_arrays_of_their_own_that_may_be_written():
    array = pa.array([[1, 2], [], None, [3]], pa.list_(pa.float32()))
    first, empty, none, last = to_values(array)
    assert (first.dtype, first.tolist()) == (np.float32, [1, 2])
    assert (empty.dtype, empty.shape) == (np.float32, (0,))
    assert none is None
    last[0] = 7
    first[0] = 9
    assert array.to_pylist() == [[1, 2], [], None, [3]]


def test_a_list_of_numbers_with_a_null_inside_is_a_list():
    made = to_values(pa.array([[1, None], [2, 3]], pa.list_(pa.int8())))
    assert same(made, [[np.int8(1), None], np.array([2, 3], np.int8)])


def test_a_row_of_arrays_with_a_null_inside_is_a_list_of_what_is_whole():
    kind = pa.list_(pa.list_(pa.int8(), 2), 2)
    made = to_values(pa.array([[[1, 2], [3, None]], [[1, 2], None], [[1, 2], [3, 4]]], kind))
    pair = np.array([1, 2], np.int8)
    assert same(made[0], [pair, [np.int8(3), None]])
    assert same(made[1], [pair, None])
    assert same(made[2], np.array([[1, 2], [3, 4]], np.int8))


def test_lists_of_lists_of_one_size_are_arrays_of_two_axes():
    made = to_values(pa.array([[[1, 2], [3, 4]], []], pa.list_(pa.list_(pa.int8(), 2))))
    assert [one.shape for one in made] == [(2, 2), (0, 2)]


@pytest.mark.parametrize("permutation", [None, [1, 0]])
def test_tensors_are_what_pyarrow_makes_of_them(permutation: Any):
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation)
    array = tensors([list(range(6)), list(range(6, 12))], kind)
    dense = dense_of(kind)
    assert dense is not None
    assert dense.shape == array.to_numpy_ndarray().shape[1:]
    assert to_dense(array).tolist() == array.to_numpy_ndarray().tolist()
    assert np.array_equal(to_values(array.slice(1))[0], array.to_numpy_ndarray()[1])


def test_a_tensor_with_a_null_inside_is_the_list_that_is_stored():
    kind = pa.fixed_shape_tensor(pa.int8(), [2, 1])
    made = to_values(tensors([[1, 2], [3, None], None], kind))
    assert same(made, [np.array([[1], [2]], np.int8), [np.int8(3), None], None])


def test_values_of_an_extension_type_are_those_it_is_stored_as():
    array = pa.array([1, None], pa.int8()).cast(pa.bool8())
    assert to_values(array) == [1, None]
    assert dense_of(array.type) == dense_of(pa.int8())


def test_nan_is_a_number_and_not_a_null():
    value, null = to_values(pa.array([float("nan"), None]))
    assert np.isnan(value)
    assert null is None


def test_times_keep_their_nanoseconds():
    instant = pa.array([1_600_000_000_123_456_789, None], pa.timestamp("ns"))
    assert to_values(instant) == [np.datetime64(1_600_000_000_123_456_789, "ns"), None]
    assert to_values(pa.array([7], pa.time64("ns"))) == [np.timedelta64(7, "ns")]
    assert to_values(pa.array([7], pa.time32("s"))) == [np.timedelta64(7, "s")]
    assert to_values(pa.array([7], pa.date64())) == [np.datetime64(7, "ms")]


def test_a_timestamp_with_a_zone_is_its_instant_in_utc():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    when = datetime.datetime(2020, 1, 1, 12, tzinfo=zone)
    made = to_values(pa.array([when], pa.timestamp("us", tz="+02:00")))
    assert made == [np.datetime64("2020-01-01T10:00:00", "us")]


def test_a_dictionary_of_numbers_gives_numbers():
    made = to_values(pa.array([5, None, 6], pa.int16()).dictionary_encode())
    assert same(made, [np.int16(5), None, np.int16(6)])


def test_structs_are_dicts_also_without_fields_and_where_they_are_null():
    assert to_values(pa.array([{}, None], pa.struct([]))) == [{}, None]
    nested = pa.array([{"a": {"b": 1}}, {"a": None}, None])
    assert to_values(nested) == [{"a": {"b": 1}}, {"a": None}, None]


def test_columns_of_null_and_decimals_are_what_pyarrow_makes_of_them():
    assert to_values(pa.nulls(2)) == [None, None]
    assert to_values(pa.array([decimal.Decimal("1.5")])) == [decimal.Decimal("1.5")]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.list_view(pa.int8())], ids=str)
def test_views_are_what_pyarrow_makes_of_them(kind: Any):
    values = ["a", None] if kind == pa.string_view() else [[1], None]
    assert to_values(pa.array(values, kind)) == values


def test_null_rows_tells_also_nulls_inside():
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2))
    found = null_rows(array)
    assert found is not None
    assert found.tolist() == [False, True, True]
    assert null_rows(array.slice(0, 1)) is None


@pytest.mark.parametrize("may_share", [True, False])
@pytest.mark.parametrize(
    "within", [[2], [1, 2, 3], [3, 1, 1], range(5, 25), range(0, 24, 2), [*range(9), 10, 9, 11]]
)
def test_picks_are_those_asked_for(within: Any, may_share: bool):
    array = pa.array(list("abcdefghijklmnopqrstuvwxyz"))
    made = join(pick(array, np.array(within), may_share=may_share))
    assert made.to_pylist() == [array[index].as_py() for index in within]


def test_neighbours_are_picked_without_a_copy_where_that_may_be():
    array = pa.array([b"abc"] * 30)
    address = array.buffers()[2].address
    for within in (np.arange(1, 3), np.arange(1, 20)):
        for may_share in (True, False):
            for made in pick(array, within, may_share=may_share):
                assert (made.buffers()[2].address == address) == may_share


def test_arrays_with_dictionaries_of_their_own_are_joined():
    parts = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()]
    assert to_values(join(parts)) == ["a", "b", "c", None]


def test_more_than_offsets_of_four_bytes_can_tell_are_joined():
    offsets = pa.py_buffer(np.array([0, 2**30], np.int32))
    items = pa.nulls(2**30)  # which take no memory
    array = pa.Array.from_buffers(pa.list_(pa.null()), 1, [None, offsets], children=[items])
    joined = join([array, array])
    assert (len(joined), len(joined.values)) == (2, 2**31)


def test_what_cannot_have_longer_offsets_is_not_joined():
    with pytest.raises(pa.ArrowInvalid):
        join([pa.array([1], pa.int8()), pa.array([1], pa.int16())])


def test_errors_of_pyarrow_are_told_as_ours_with_the_path():
    with (
        pytest.raises(CorruptFileError, match=r"damaged or cut short: bad magic. Copy") as caught,
        told_as_ours("a.parquet", "table"),
    ):
        raise pa.ArrowInvalid("bad magic.\nand more")
    assert caught.value.path == "a.parquet"


def test_what_pyarrow_cannot_do_yet_is_not_called_damage():
    with (
        pytest.raises(FormatError, match=r"cannot read the table: no codec. Install a newer"),
        told_as_ours("a.parquet", "table"),
    ):
        raise pa.ArrowNotImplementedError("no codec")


@pytest.mark.parametrize("error", [PlanError("ours"), pa.ArrowMemoryError("full")])
def test_errors_that_say_more_already_stay_what_they_are(error: Exception):
    with pytest.raises(type(error)) as caught, told_as_ours("a.parquet", "table"):
        raise error
    assert caught.value is error
