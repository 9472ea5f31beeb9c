"""Batches of arrays of unequal length."""

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as grain
from gristmill.errors import BatchError, PlanError, PlanTypeError
from gristmill.experimental import get_element_spec
from gristmill.transforms import PadBatch, pad_batch

ROWS = [np.array([1, 2, 3]), np.array([4]), np.array([5, 6])]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"length": {"token": 8}},
            r"`length` .* for 'token', but an element has only \['x', 'y'\]",
        ),
        ({"value": {"y": {"z": 1}}}, r"`value` .* for 'z', but an element\['y'\] has only \['a'\]"),
        (
            {"add_mask": {"x": {"z": True}}},
            r"`add_mask` .* 'z', but an element\['x'\] has only \[\]",
        ),
        ({"leaves": ["x", "tokens"]}, r"`leaves` .* for 'tokens', but an element has only"),
    ],
)
def test_options_for_arrays_that_do_not_exist_are_an_error(options: dict[str, Any], message: str):
    with pytest.raises(PlanError, match=message):
        pad_batch([{"x": np.arange(3), "y": {"a": np.arange(2)}}], **options)


@given(
    lengths=st.lists(st.integers(0, 12), min_size=1, max_size=9),
    side=st.sampled_from(["left", "right"]),
    value=st.integers(-5, 5),
    multiple=st.integers(1, 5),
    more=st.integers(0, 3),
)
def test_rows_keep_their_values_and_the_rest_is_padding(
    lengths: list[int], side: Any, value: int, multiple: int, more: int
):
    rows = [{"x": np.arange(10, 10 + length), "n": length} for length in lengths]
    pad = PadBatch(side=side, value=value, multiple_of=multiple, add_mask=True, add_lengths=True)

    batch = pad.make(rows, num_rows=len(rows) + more)

    width = -(-max(lengths) // multiple) * multiple
    assert batch["x"].shape == batch["x_mask"].shape == (len(rows) + more, width)
    assert batch["x_length"].tolist() == lengths + [0] * more
    for row, length in enumerate(lengths):
        assert batch["x"][row][batch["x_mask"][row]].tolist() == rows[row]["x"].tolist()
        inside = slice(width - length, None) if side == "left" else slice(length)
        assert batch["x_mask"][row][inside].all()
    assert (batch["x"][~batch["x_mask"]] == value).all()
    assert batch["n"].tolist() == lengths + [0] * more


def test_by_default_arrays_are_padded_to_the_longest_with_zeros_on_the_right():
    assert pad_batch(ROWS).tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0]]


def test_a_batch_function_pads_in_a_loader_and_in_both_kinds_of_datasets():
    expected = [[[1, 2, 3], [4, 0, 0]], [[5, 6]]]
    loader = grain.load(ROWS, num_epochs=1, transformations=[grain.Batch(2, batch_fn=PadBatch())])
    ds = grain.MapDataset.source(ROWS)

    for batches in (loader, ds.pad_batch(2), ds.to_iter_dataset().pad_batch(2)):
        assert [batch.tolist() for batch in batches] == expected
    assert [batch.tolist() for batch in ds.batch(2, batch_fn=pad_batch)] == expected
    assert len(ds.pad_batch(2, drop_remainder=True)) == 1


def test_equal_lengths_are_stacked_as_in_any_batch():
    rows = [np.arange(3), np.arange(3)]
    assert pad_batch(rows).tolist() == [[0, 1, 2], [0, 1, 2]]


def test_options_are_given_for_each_array():
    rows = [{"a": [1], "b": {"c": [2, 2]}, "d": [9]}, {"a": [1, 1], "b": {"c": [2]}, "d": [9]}]
    batch = pad_batch(
        rows,
        length={"a": 4},
        multiple_of={"b": {"c": 3}},
        value={"a": -1, "b": {"c": 7}},
        side={"b": "left"},
        add_mask={"a": True},
    )

    assert batch["a"].tolist() == [[1, -1, -1, -1], [1, 1, -1, -1]]
    assert batch["b"]["c"].tolist() == [[7, 2, 2], [7, 7, 2]]
    assert batch["d"].tolist() == [[9], [9]]
    assert set(batch) == {"a", "a_mask", "b", "d"}


def test_lengths_and_masks_stand_beside_arrays_that_are_not_in_a_dict():
    values, lengths, mask = pad_batch(ROWS, add_lengths=True, add_mask=True)
    assert (values.shape, lengths.tolist(), int(mask.sum())) == ((3, 3), [3, 1, 2], 6)

    pairs = [(row, 1) for row in ROWS]
    (inner, inner_mask), ones = pad_batch(pairs, add_mask={0: True})
    assert inner.tolist() == values.tolist()
    assert inner_mask.tolist() == mask.tolist()
    assert ones.tolist() == [1, 1, 1]


def test_named_tuples_and_dataclasses_stay_what_they_are():
    Pair = collections.namedtuple("Pair", "x y")

    @dataclasses.dataclass
    class Example:
        x: Any
        y: int

    assert pad_batch([Pair([1, 2], 0), Pair([3], 1)]).x.tolist() == [[1, 2], [3, 0]]
    assert pad_batch([Example([1, 2], 0), Example([3], 1)], length={"x": 3}).x.shape == (2, 3)


def test_only_the_leaves_that_are_listed_are_padded():
    rows = [{"a": [1], "b": [1, 2]}, {"a": [1, 2], "b": [3, 4]}]
    assert pad_batch(rows, leaves="a")["b"].tolist() == [[1, 2], [3, 4]]
    with pytest.raises(BatchError, match=r"shapes .* only if their key is in `leaves`, and 'a'"):
        pad_batch(rows, leaves=["b"])


def test_arrays_of_more_axes_are_padded_along_the_first():
    rows = [np.ones((2, 3), np.float32), np.ones((1, 3), np.float32)]
    batch = pad_batch(rows, length=4)
    assert (batch.shape, batch.dtype, float(batch.sum())) == ((2, 4, 3), np.float32, 9.0)
    with pytest.raises(BatchError, match=r"shapes \(2, 3\) and \(2, 4\). Only the first axis"):
        pad_batch([np.ones((2, 3)), np.ones((2, 4))])


def test_types_promote_without_loss():
    assert pad_batch([np.array([1], np.int8), np.array([2, 3], np.int32)]).dtype == np.int32
    assert pad_batch([np.array(["a"]), np.array(["bcd", "e"])]).tolist() == [
        ["a", ""],
        ["bcd", "e"],
    ]
    assert pad_batch([[], [1, 2]]).dtype == np.int64  # an empty list has no type of its own
    with pytest.raises(BatchError, match="int64 and uint64"):
        pad_batch([np.array([1], np.int64), np.array([2, 3], np.uint64)])
    with pytest.raises(BatchError, match="Convert all records to one type"):
        pad_batch([np.array(["a"]), np.array([1, 2])])


@pytest.mark.parametrize(
    ("value", "dtype"), [(-1, np.uint8), (256, np.uint8), (0.5, np.int32), (float("nan"), np.int64)]
)
def test_padding_that_the_dtype_cannot_hold_is_refused(value: Any, dtype: Any):
    with pytest.raises(
        BatchError, match=r"batch: the padding .* does not fit into .* Pass another"
    ):
        pad_batch([np.zeros(2, dtype), np.zeros(1, dtype)], value=value)


def test_padding_is_rounded_to_floats_as_any_float_is():
    assert pad_batch([np.zeros(2, np.float32), np.zeros(1, np.float32)], value=0.1).dtype == "f4"


def test_not_a_number_pads_floats():
    assert np.isnan(pad_batch([np.zeros(2), np.zeros(1)], value=float("nan"))[1, 1])


def test_an_array_longer_than_the_length_is_an_error_that_names_the_record():
    with pytest.raises(BatchError, match=r"has length 3, but is padded to 2. Cut it") as caught:
        pad_batch([[1], [1, 2, 3]], length=2)
    assert caught.value.row == 1


def test_a_list_that_is_not_of_numbers_is_refused():
    with pytest.raises(BatchError, match="a list of numbers contains something else"):
        pad_batch([[1, "a"], [2]])
    with pytest.raises(BatchError, match="a list of numbers contains something else"):
        pad_batch([[1, [2]], [2]])


def test_a_leaf_of_the_name_that_padding_adds_is_not_replaced():
    with pytest.raises(BatchError, match="padding adds 'x_mask', but the elements have it"):
        pad_batch([{"x": [1], "x_mask": 0}], add_mask=True)


def test_elements_that_do_not_fit_together_are_an_error_as_in_any_batch():
    with pytest.raises(BatchError, match="keys"):
        pad_batch([{"a": [1]}, {"b": [1]}])
    with pytest.raises(BatchError, match="a record is None"):
        pad_batch([None, [1]])
    with pytest.raises(BatchError):
        pad_batch([[1], None])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"length": 0}, PlanError, "`length` must be at least 1"),
        ({"length": {"a": -1}}, PlanError, r"`length\['a'\]` must be at least 1"),
        ({"multiple_of": 1.5}, PlanTypeError, "`multiple_of` must be an integer"),
        ({"side": "top"}, PlanError, '`side` must be "left" or "right", got \'top\''),
        ({"add_mask": "yes"}, PlanTypeError, "`add_mask` must be True or False"),
        ({"leaves": 1.5}, PlanTypeError, "`leaves` must be a key of the elements"),
        ({"length": 4, "multiple_of": 4}, PlanError, "contradict each other"),
    ],
)
def test_options_are_checked_when_the_pipeline_is_built(options: Any, error: Any, message: str):
    with pytest.raises(error, match=message):
        PadBatch(**options)


def test_an_unknown_option_is_an_error():
    with pytest.raises(TypeError, match="lenght"):
        grain.MapDataset.range(3).pad_batch(2, lenght=3)


def test_the_spec_has_the_padded_length_where_it_is_known():
    source = grain.ArraySource({"x": np.zeros((6, 5), np.int16), "y": np.zeros(6, np.int8)})
    ds = grain.MapDataset.source(source)
    spec = get_element_spec(ds.pad_batch(2, drop_remainder=True, length={"x": 8}, add_mask=True))

    batch: Any = ds.pad_batch(2, length={"x": 8}, add_mask=True)[0]
    assert {name: (leaf.shape, leaf.dtype) for name, leaf in spec.items()} == {
        name: (leaf.shape, leaf.dtype) for name, leaf in batch.items()
    }
    assert get_element_spec(ds.pad_batch(2))["x"].shape == (None, None)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_statistics_show_how_much_is_padding(num_workers: int):
    ds = grain.MapDataset.source([[1], [2, 2, 2, 2]] * 3)
    for stream in (ds.to_iter_dataset().pad_batch(2), ds.pad_batch(2).to_iter_dataset()):
        options = grain.MultiprocessingOptions(num_workers=num_workers)
        with iter(stream.mp_prefetch(options)) as iterator:
            assert len(list(iterator)) == 3
            stats = iterator.stats()
        assert (stats.steps[-1].num_values, stats.steps[-1].num_padding) == (24, 9)
        assert stats.padding_share == 9 / 24
        assert "Batch(2) pads: 37.5% of the values of its arrays are padding" in str(stats)


def test_what_is_padded_outside_of_a_pipeline_is_not_counted():
    iterator = iter(grain.MapDataset.range(4).to_iter_dataset().map(lambda x: x).batch(2))
    pad_batch([[1], [2, 2]])
    list(iterator)
    assert iterator.stats().padding_share == 0.0
