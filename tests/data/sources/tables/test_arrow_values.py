import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.tables.arrow_values import (
    concatenate,
    dense_of,
    null_rows,
    take_slices,
    to_dense,
    to_values,
    translate_arrow_errors,
)
from gristmill.errors import CorruptFileError, FormatError, PlanError
from tests.data.sources.tables.small_tables import same, tables, to_python


def tensors(values: list[Any], kind: Any) -> Any:
    return pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))


@settings(max_examples=50)
@given(table=tables(), data=st.data())
def test_values_of_any_slice_equal_those_of_pyarrow(table: pa.Table, data: st.DataObject):
    first = data.draw(st.integers(0, len(table)))
    for column in table.slice(first, data.draw(st.integers(0, 12))).columns:
        assert to_python(to_values(column.combine_chunks())) == column.to_pylist()


@settings(max_examples=50)
@given(table=tables(), data=st.data())
def test_a_value_does_not_depend_on_its_neighbours(table: pa.Table, data: st.DataObject):
    for column in table.columns:
        array = column.combine_chunks()
        values = to_values(array)
        for index in range(len(array)):
            assert same(to_values(array.slice(index, 1)), values[index : index + 1])


@settings(max_examples=50)
@given(table=tables(is_dense=True))
def test_dense_columns_are_arrays_of_the_dtype_and_shape_of_their_type(table: pa.Table):
    for column in table.columns:
        array, dense = column.combine_chunks(), dense_of(column.type)
        assert dense is not None
        values = to_dense(array)
        assert (values.dtype, values.shape) == (dense.dtype, (len(array), *dense.shape))
        assert values.tolist() == column.to_pylist()
        assert dense.num_bytes * len(array) == values.nbytes


@pytest.mark.parametrize("kind", [pa.int64(), pa.float32(), pa.timestamp("ns")], ids=str)
def test_dense_values_are_views_of_the_memory_of_arrow(kind: Any):
    items = pa.array(np.arange(8)).cast(kind)
    address = items.buffers()[1].address
    lists = pa.FixedSizeListArray.from_arrays(items, 2)
    assert to_dense(items).__array_interface__["data"][0] == address
    assert to_dense(lists.slice(1)).__array_interface__["data"][0] == address + kind.bit_width // 4


def test_numbers_are_scalars_of_the_dtype_of_the_column_even_among_nulls():
    values = to_values(pa.array([1, None, 3], pa.uint16()))
    assert values == [1, None, 3]
    assert [type(value) for value in values] == [np.uint16, type(None), np.uint16]


def test_lists_of_numbers_are_writable_copies():
    array = pa.array([[1, 2], [], None, [3]], pa.list_(pa.float32()))
    first, empty, none, last = to_values(array)
    assert (first.dtype, first.tolist()) == (np.float32, [1, 2])
    assert (empty.dtype, empty.shape) == (np.float32, (0,))
    assert none is None
    last[0] = 7
    first[0] = 9
    assert array.to_pylist() == [[1, 2], [], None, [3]]


def test_a_list_of_numbers_with_a_null_inside_is_a_list():
    values = to_values(pa.array([[1, None], [2, 3]], pa.list_(pa.int8())))
    assert same(values, [[np.int8(1), None], np.array([2, 3], np.int8)])


def test_nested_lists_with_a_null_inside_are_lists_down_to_the_null():
    kind = pa.list_(pa.list_(pa.int8(), 2), 2)
    values = to_values(pa.array([[[1, 2], [3, None]], [[1, 2], None], [[1, 2], [3, 4]]], kind))
    pair = np.array([1, 2], np.int8)
    assert same(values[0], [pair, [np.int8(3), None]])
    assert same(values[1], [pair, None])
    assert same(values[2], np.array([[1, 2], [3, 4]], np.int8))


def test_lists_of_lists_of_one_size_are_arrays_of_two_axes():
    values = to_values(pa.array([[[1, 2], [3, 4]], []], pa.list_(pa.list_(pa.int8(), 2))))
    assert [one.shape for one in values] == [(2, 2), (0, 2)]


@pytest.mark.parametrize("permutation", [None, [1, 0]])
def test_tensors_equal_those_of_pyarrow(permutation: Any):
    kind = pa.fixed_shape_tensor(pa.int32(), [2, 3], permutation=permutation)
    array = tensors([list(range(6)), list(range(6, 12))], kind)
    dense = dense_of(kind)
    assert dense is not None
    assert dense.shape == array.to_numpy_ndarray().shape[1:]
    assert to_dense(array).tolist() == array.to_numpy_ndarray().tolist()
    assert np.array_equal(to_values(array.slice(1))[0], array.to_numpy_ndarray()[1])


def test_a_tensor_with_a_null_inside_is_a_list_of_its_stored_values():
    kind = pa.fixed_shape_tensor(pa.int8(), [2, 1])
    values = to_values(tensors([[1, 2], [3, None], None], kind))
    assert same(values, [np.array([[1], [2]], np.int8), [np.int8(3), None], None])


def test_values_of_an_extension_type_are_its_stored_values():
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
    values = to_values(pa.array([when], pa.timestamp("us", tz="+02:00")))
    assert values == [np.datetime64("2020-01-01T10:00:00", "us")]


def test_dictionary_encoded_numbers_are_decoded():
    values = to_values(pa.array([5, None, 6], pa.int16()).dictionary_encode())
    assert same(values, [np.int16(5), None, np.int16(6)])


def test_structs_are_dicts_even_without_fields_and_null_structs_are_none():
    assert to_values(pa.array([{}, None], pa.struct([]))) == [{}, None]
    nested = pa.array([{"a": {"b": 1}}, {"a": None}, None])
    assert to_values(nested) == [{"a": {"b": 1}}, {"a": None}, None]


def test_columns_of_nulls_and_decimals_are_converted_by_pyarrow():
    assert to_values(pa.nulls(2)) == [None, None]
    assert to_values(pa.array([decimal.Decimal("1.5")])) == [decimal.Decimal("1.5")]


@pytest.mark.parametrize("kind", [pa.string_view(), pa.list_view(pa.int8())], ids=str)
def test_string_views_and_list_views_are_converted_by_pyarrow(kind: Any):
    values = ["a", None] if kind == pa.string_view() else [[1], None]
    assert to_values(pa.array(values, kind)) == values


def test_null_rows_includes_values_with_a_null_inside():
    array = pa.array([[1, 2], None, [3, None]], pa.list_(pa.int8(), 2))
    found = null_rows(array)
    assert found is not None
    assert found.tolist() == [False, True, True]
    assert null_rows(array.slice(0, 1)) is None


@pytest.mark.parametrize("may_share", [True, False])
@pytest.mark.parametrize(
    "within", [[2], [1, 2, 3], [3, 1, 1], range(5, 25), range(0, 24, 2), [*range(9), 10, 9, 11]]
)
def test_take_slices_returns_the_requested_values(within: Any, may_share: bool):
    array = pa.array(list("abcdefghijklmnopqrstuvwxyz"))
    values = concatenate(take_slices(array, np.array(within), may_share=may_share))
    assert values.to_pylist() == [array[index].as_py() for index in within]


def test_consecutive_values_are_not_copied_if_they_may_be_shared():
    array = pa.array([b"abc"] * 30)
    address = array.buffers()[2].address
    for within in (np.arange(1, 3), np.arange(1, 20)):
        for may_share in (True, False):
            for values in take_slices(array, within, may_share=may_share):
                assert (values.buffers()[2].address == address) == may_share


def test_arrays_with_different_dictionaries_are_concatenated():
    arrays = [pa.array(["a", "b"]).dictionary_encode(), pa.array(["c", None]).dictionary_encode()]
    assert to_values(concatenate(arrays)) == ["a", "b", "c", None]


def test_arrays_that_need_64_bit_offsets_are_concatenated():
    offsets = pa.py_buffer(np.array([0, 2**30], np.int32))
    items = pa.nulls(2**30)  # need no memory
    array = pa.Array.from_buffers(pa.list_(pa.null()), 1, [None, offsets], children=[items])
    joined = concatenate([array, array])
    assert (len(joined), len(joined.values)) == (2, 2**31)


def test_arrays_of_different_types_are_not_concatenated():
    with pytest.raises(pa.ArrowInvalid):
        concatenate([pa.array([1], pa.int8()), pa.array([1], pa.int16())])


def test_errors_of_pyarrow_become_file_errors_with_the_path():
    with (
        pytest.raises(CorruptFileError, match=r"damaged or truncated: bad magic. Copy") as caught,
        translate_arrow_errors("a.parquet", "table"),
    ):
        raise pa.ArrowInvalid("bad magic.\nand more")
    assert caught.value.path == "a.parquet"


def test_a_feature_that_pyarrow_does_not_support_is_a_format_error():
    with (
        pytest.raises(FormatError, match=r"cannot read the table: no codec. Install a newer"),
        translate_arrow_errors("a.parquet", "table"),
    ):
        raise pa.ArrowNotImplementedError("no codec")


@pytest.mark.parametrize("error", [PlanError("ours"), pa.ArrowMemoryError("full")])
def test_errors_of_gristmill_and_memory_errors_are_not_translated(error: Exception):
    with pytest.raises(type(error)) as caught, translate_arrow_errors("a.parquet", "table"):
        raise error
    assert caught.value is error
