import collections
import dataclasses
import enum
import types
from collections import OrderedDict, defaultdict, deque
from pathlib import PurePosixPath
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gristmill._data.batching.stack import stack
from gristmill.errors import BatchError


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Example:
    image: Any
    label: Any


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class FrozenExample:
    image: Any
    label: Any


@dataclasses.dataclass
class CountedExample:
    image: Any
    label: Any = dataclasses.field(init=False, default=7)


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class JaxExample:
    image: Any
    name: str = dataclasses.field(metadata={"static": True})


class Colour(enum.IntEnum):
    RED = 1
    BLUE = 2


class Items(list[Any]):
    pass


def assert_same(stacked: Any, expected: Any) -> None:
    """Compare arrays to the bit: type, shape and content; and check that the memory is its own."""
    assert type(stacked) is np.ndarray
    assert stacked.dtype == expected.dtype
    assert stacked.shape == expected.shape
    np.testing.assert_array_equal(stacked, expected)
    assert stacked.flags.writeable


ARRAYS = {
    "bool": np.array([True, False]),
    "uint8": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "int16": np.arange(6, dtype=np.int16),
    "float16": np.linspace(0, 1, 4, dtype=np.float16),
    "float32": np.linspace(0, 1, 4, dtype=np.float32),
    "longdouble": np.linspace(0, 1, 4, dtype=np.longdouble),
    "complex64": np.array([1 + 2j, 3 - 4j], dtype=np.complex64),
    "datetime64": np.array(["2026-01-01", "NaT"], dtype="datetime64[s]"),
    "timedelta64": np.array([1, 2], dtype="timedelta64[ms]"),
    "text": np.array(["a", "bcd"]),
    "bytes": np.array([b"a", b"bcd"]),
    "structured": np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i4"), ("b", "f8")]),
    "big-endian": np.arange(4, dtype=">i4"),
    "0-d": np.array(5, dtype=np.int8),
    "zero-size": np.zeros((0, 3), dtype=np.float32),
    "zero-size inside": np.zeros((2, 0, 3), dtype=np.int64),
    "fortran": np.asfortranarray(np.arange(6).reshape(2, 3)),
    "strided": np.arange(12).reshape(3, 4)[::2, ::3],
    "reversed": np.arange(5)[::-1],
    "transposed": np.arange(6).reshape(2, 3).T,
    "broadcast": np.broadcast_to(np.arange(3), (2, 3)),
    "just small": np.arange(16_384, dtype=np.uint8),
    "just large": np.arange(16_385, dtype=np.uint16),
    "large fortran": np.asfortranarray(np.arange(20_000.0).reshape(100, 200)),
    "object": np.array([{"a": 1}, (1, 2)], dtype=object),
}


@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_stack_as_numpy_stacks_them(name: str, count: int):
    array = ARRAYS[name]
    assert_same(stack([array] * count), np.stack([array] * count))


@pytest.mark.parametrize("name", ARRAYS)
def test_a_stack_of_one_array_is_a_copy(name: str):
    array = ARRAYS[name]
    assert not np.shares_memory(stack([array]), array)


def test_read_only_arrays_stack_into_memory_that_can_be_written():
    array = np.arange(3)
    array.flags.writeable = False
    stacked = stack([array, array])
    stacked[0] = 9
    assert stacked.tolist() == [[9, 9, 9], [0, 1, 2]]


@pytest.mark.parametrize(
    "scalars",
    [
        [1, 2, 3],
        [True, False],
        [1.5, 2.5],
        [1 + 2j, 3j],
        [1, 2.5],
        [True, 2],
        [Colour.RED, Colour.BLUE],
        [np.int8(1), np.int16(300)],
        [np.uint8(1), np.int8(-1)],
        [np.float16(1), np.float32(2)],
        [np.float32(1), 2],
        [np.uint8(1), 2],
        [np.bool_(True), np.bool_(False)],
        ["a", "bcd"],
        ["", ""],
        [b"a", b"bcd"],
        [np.str_("a"), "bc"],
        [np.datetime64("2026-01-01"), np.datetime64("2026-01-01T05", "h")],
        [np.timedelta64(1, "s"), np.timedelta64(1, "ms")],
    ],
    ids=repr,
)
def test_scalars_become_the_array_that_numpy_makes_of_them(scalars: list[Any]):
    assert_same(stack(scalars), np.array(scalars))


@pytest.mark.parametrize(
    ("first", "second", "promoted"),
    [
        ("int8", "int64", "int64"),
        ("int64", "int8", "int64"),
        ("uint8", "int8", "int16"),
        ("uint32", "int32", "int64"),
        ("float16", "float32", "float32"),
        ("float32", "float64", "float64"),
        ("int32", "float32", "float64"),
        ("bool", "uint8", "uint8"),
        ("float32", "complex64", "complex64"),
    ],
)
def test_arrays_of_several_widths_promote_and_keep_their_values(
    first: str, second: str, promoted: str
):
    rows = [np.ones(2, dtype=first), np.ones(2, dtype=second)]
    stacked = stack(rows)
    assert stacked.dtype == promoted == np.stack(rows).dtype
    assert stacked.tolist() == [[1, 1], [1, 1]]


def test_a_wide_value_in_a_later_record_is_not_cut_to_the_first_records_width():
    wide = 2**40
    stacked = stack([{"x": np.array([1], np.int8)}, {"x": np.array([wide], np.int64)}])
    assert stacked["x"].tolist() == [[1], [wide]]


def test_a_float_among_integers_is_not_cut_to_an_integer():
    assert stack([1, 2, 2.5]).tolist() == [1.0, 2.0, 2.5]


@pytest.mark.parametrize(
    "rows",
    [
        [np.uint64(1), np.int64(1)],
        [2**63, -1],
        [np.array([1], np.uint64), np.array([1], np.int8)],
    ],
    ids=repr,
)
def test_integers_that_would_become_floats_are_refused(rows: list[Any]):
    with pytest.raises(BatchError, match=r'^batch\["n"\]: integers that no 64-bit integer type'):
        stack([{"n": row} for row in rows])


def test_integers_that_fit_into_unsigned_64_bits_keep_their_values():
    assert stack([2**63 + 1, 1]).tolist() == [2**63 + 1, 1]


def test_integers_past_64_bits_stay_python_integers():
    stacked = stack([2**70, 1])
    assert stacked.dtype == object
    assert stacked.tolist() == [2**70, 1]


@pytest.mark.parametrize("texts", [[b"ab\0", b"c"], ["ab\0", "c"], [np.bytes_(b"ab\0"), b"c"]])
def test_a_text_that_ends_in_nul_keeps_its_end(texts: list[Any]):
    stacked = stack(texts)
    assert stacked.tolist() == texts
    assert [len(text) for text in stacked] == [3, 1]


def test_texts_without_nul_at_the_end_become_numpy_text():
    assert stack([b"a\0b", b"c"]).dtype == "S3"
    assert stack(["a", "bcd"]).dtype == "<U3"


def test_text_arrays_take_the_width_of_the_widest():
    stacked = stack([np.array(["a"]), np.array(["bcd"])])
    assert stacked.dtype == "<U3"
    assert stacked.tolist() == [["a"], ["bcd"]]


@pytest.mark.parametrize(
    "leaves",
    [
        [{1}, {2, 3}],
        [PurePosixPath("a"), PurePosixPath("b")],
        [object(), object()],
    ],
    ids=["set", "path", "object"],
)
def test_any_other_object_is_kept_as_it_is(leaves: list[Any]):
    stacked = stack(leaves)
    assert stacked.dtype == object
    assert stacked.shape == (2,)
    assert stacked[0] is leaves[0]
    assert stacked[1] is leaves[1]


@pytest.mark.parametrize("kind", [deque, bytearray, memoryview], ids=lambda kind: kind.__name__)
def test_sequences_that_are_no_containers_are_arrays_of_their_items(kind: Any):
    assert stack([kind(b"ab"), kind(b"cd")]).tolist() == [[97, 98], [99, 100]]
    assert stack([range(2), range(1, 3)]).tolist() == [[0, 1], [1, 2]]


def test_sequences_of_different_lengths_cannot_be_stacked():
    with pytest.raises(BatchError, match="same structure"):
        stack([range(2), range(3)])


def test_object_arrays_are_not_taken_apart():
    rows = [np.array([[1], [2, 3]], dtype=object)] * 2
    stacked = stack(rows)
    assert stacked.shape == (2, 2)
    assert stacked[1, 1] == [2, 3]


def test_jax_arrays_become_numpy_arrays_of_their_own_memory():
    rows = [jnp.arange(3), jnp.arange(3) + 1]
    stacked = stack(rows)
    assert_same(stacked, np.array([[0, 1, 2], [1, 2, 3]], np.int32))
    stacked[:] = 9
    assert rows[0].tolist() == [0, 1, 2]


def test_jax_scalars_stack_like_numpy_scalars():
    assert_same(stack([jnp.float32(1), jnp.float32(2)]), np.array([1, 2], np.float32))


def test_bfloat16_keeps_its_type():
    row = jnp.ones(2, jnp.bfloat16)
    stacked = stack([row, row])
    assert stacked.dtype == jnp.bfloat16
    assert stacked.shape == (2, 2)


def test_zero_dimensional_arrays_and_scalars_mix():
    assert_same(stack([np.array(1), np.int64(2), 3]), np.array([1, 2, 3]))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"a": 1, "b": 2.0}, {"a": [1, 1], "b": [2.0, 2.0]}),
        ([1, 2], [[1, 1], [2, 2]]),
        ((1, 2), ([1, 1], [2, 2])),
        ((1,), ([1, 1],)),
        (Pair(1, {"x": 2}), Pair([1, 1], {"x": [2, 2]})),
        (Example(1, 2), Example([1, 1], [2, 2])),
        (FrozenExample(image=1, label=2), FrozenExample(image=[1, 1], label=[2, 2])),
        (OrderedDict(b=1, a=2), OrderedDict(b=[1, 1], a=[2, 2])),
        (Items([1, 2]), Items([[1, 1], [2, 2]])),
        ({"a": None, "b": 1}, {"a": None, "b": [1, 1]}),
        ({"a": {"b": ({"c": [1]},)}}, {"a": {"b": ({"c": [[1, 1]]},)}}),
        ({1: 2, (3, 4): 5}, {1: [2, 2], (3, 4): [5, 5]}),
        ({"a": {}, "b": 1, "c": ()}, {"a": {}, "b": [1, 1], "c": ()}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_tree_keeps_its_structure_and_its_classes(record: Any, expected: Any):
    stacked = stack([record, record])
    assert type(stacked) is type(record)
    assert _listed(stacked) == expected


def _listed(tree: Any) -> Any:
    if isinstance(tree, np.ndarray):
        return tree.tolist()
    if isinstance(tree, dict):
        return type(tree)((key, _listed(value)) for key, value in tree.items())
    if isinstance(tree, Pair):
        return Pair(*map(_listed, tree))
    if isinstance(tree, list | tuple):
        return type(tree)(map(_listed, tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return dataclasses.replace(
            tree, **{f.name: _listed(getattr(tree, f.name)) for f in dataclasses.fields(tree)}
        )
    return tree


def test_a_defaultdict_keeps_its_factory():
    stacked = stack([defaultdict(list, a=1), defaultdict(list, a=2)])
    assert stacked["a"].tolist() == [1, 2]
    assert stacked["new"] == []


def test_defaultdicts_with_other_keys_are_refused_and_left_as_they_are():
    records = [defaultdict(int, a=1), defaultdict(int, b=2)]
    with pytest.raises(BatchError, match=r"^batch: keys "):
        stack(records)
    assert dict(records[1]) == {"b": 2}


def test_a_counter_stacks_like_a_dict():
    stacked = stack([collections.Counter(a=1), collections.Counter(a=2)])
    assert stacked["a"].tolist() == [1, 2]


def test_a_read_only_mapping_stacks_like_a_dict():
    record = types.MappingProxyType({"a": 1})
    assert stack([record, record])["a"].tolist() == [1, 1]


def test_a_dataclass_may_have_fields_that_its_constructor_does_not_take():
    stacked = stack([CountedExample(1), CountedExample(2)])
    assert stacked.image.tolist() == [1, 2]
    assert stacked.label.tolist() == [7, 7]


def test_a_class_registered_with_jax_keeps_its_static_fields():
    stacked = stack([JaxExample(1, "a"), JaxExample(2, "a")])
    assert stacked.image.tolist() == [1, 2]
    assert stacked.name == "a"


def test_static_fields_that_differ_are_refused():
    with pytest.raises(BatchError, match=r"^batch: "):
        stack([JaxExample(1, "a"), JaxExample(2, "b")])


def test_the_leaves_of_a_class_registered_with_jax_go_by_their_names():
    with pytest.raises(BatchError, match=r"^batch\.image: shapes"):
        stack([JaxExample(np.zeros(1), "a"), JaxExample(np.zeros(2), "a")])


def test_an_array_that_cannot_come_to_numpy_is_reported_with_its_leaf():
    key = jax.random.key(0)
    with pytest.raises(Exception, match=r'batch\["key"\]'):
        stack([{"key": key}, {"key": key}])


def test_the_keys_are_sorted_at_every_level():
    stacked = stack([{"b": 1, "a": {"d": 2, "c": 5}}, {"a": {"c": 6, "d": 4}, "b": 3}])
    assert list(stacked) == ["a", "b"]
    assert list(stacked["a"]) == ["c", "d"]
    assert stacked["b"].tolist() == [1, 3]


def test_stacking_leaves_the_records_as_they_were():
    records = [{"x": np.arange(3), "y": [1, 2]} for _ in range(2)]
    stack(records)["x"][:] = 9
    assert [record["x"].tolist() for record in records] == [[0, 1, 2]] * 2
    assert [record["y"] for record in records] == [[1, 2]] * 2


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"image": np.zeros((28, 28))}, {"image": np.zeros((28, 27))}],
            r'^batch\["image"\]: shapes \(28, 28\) and \(28, 27\)\. Crop, resize or pad',
        ),
        ([{"x": 1}, {"x": np.zeros(2)}], r'^batch\["x"\]: shapes \(\) and \(2,\)\.'),
        ([(1, np.zeros(2)), (1, np.zeros(3))], r"^batch\[1\]: shapes \(2,\) and \(3,\)\."),
        ([np.zeros(2), np.zeros(3)], r"^batch: shapes \(2,\) and \(3,\)\."),
        ([Pair(1, np.zeros(2)), Pair(1, 2)], r"^batch\.right: shapes \(2,\) and \(\)\."),
        ([Example(np.zeros(2), 0), Example(np.zeros(1), 0)], r"^batch\.image: shapes"),
        ([{"a": [{3: np.zeros(1)}]}, {"a": [{3: 1}]}], r'^batch\["a"\]\[0\]\[3\]: shapes'),
        ([{"t": "a"}, {"t": 1}], r'^batch\["t"\]: str and int\. Convert all records to one type'),
        ([{"t": b"a"}, {"t": "a"}], r'^batch\["t"\]: bytes and str\.'),
        ([{"t": "a"}, {"t": 1.5}], r'^batch\["t"\]: str and float\.'),
        ([{"t": np.datetime64("2026")}, {"t": 1}], r'^batch\["t"\]: datetime64 and int\.'),
        (
            [{"t": np.array(["a"])}, {"t": np.array([1])}],
            r'^batch\["t"\]: <U1\[1\] and int64\[1\]\.',
        ),
        ([{"t": object()}, {"t": "a"}], r'^batch\["t"\]: '),
        (
            [{"a": 1}, [1]],
            r"^batch: dict and list\. .* the same structure but got: \{'a': 1\} and \[1\]\.$",
        ),
        ([{"a": 1}, {"a": [1]}], r'^batch\["a"\]: '),
        ([{"a": [1]}, {"a": 1}], r'^batch\["a"\]: list and int\.'),
        ([{"a": 1}, OrderedDict(a=1)], r"^batch: dict and OrderedDict\."),
        ([{"a": None}, {"a": 1}], r'^batch\["a"\]: None and int\. Replace nulls in'),
        ([{"a": 1}, {"a": None}], r'^batch\["a"\]: '),
        (
            [{"a": 1, "b": 2}, {"a": 1, "c": 2}],
            r"^batch: keys \['a', 'b'\] and keys \['a', 'c'\]\. Let a map return the",
        ),
        ([{"a": 1}, {"a": 1, "b": 2}], r"^batch: "),
        (
            [{"l": [1, 2]}, {"l": [1]}],
            r'^batch\["l"\]: a list of 2 and a list of 1\. Convert lists of varying length',
        ),
    ],
)
def test_records_that_do_not_fit_are_refused_by_the_name_of_the_leaf(rows: list[Any], message: str):
    with pytest.raises(BatchError, match=message):
        stack(rows)


@pytest.mark.parametrize("present", [1, "a", 1.5, np.zeros(3)], ids=repr)
def test_a_leaf_that_is_missing_in_one_record_is_reported_as_none(present: Any):
    with pytest.raises(BatchError, match=r'^batch\["a"\]: .*\bNone\b'):
        stack([{"a": present}, {"a": None}])


def test_structured_arrays_with_other_fields_are_refused():
    rows = [np.zeros(2, [("a", int)]), np.zeros(2, [("b", float)])]
    with pytest.raises(BatchError, match=r'^batch\["s"\]: '):
        stack([{"s": row} for row in rows])


@pytest.mark.parametrize(
    ("rows", "row"),
    [
        ([np.zeros(2), np.zeros(2), np.zeros(3)], 2),
        (["a", "b", 3], 2),
        ([{"a": 1}, {"a": 1}, {"b": 1}], 2),
        ([[1], [1], [1, 2]], 2),
        ([{"a": 1}, {"a": 1}, [1]], 2),
        ([1, 2, None], 2),
    ],
    ids=repr,
)
def test_the_error_reports_which_row_differs(rows: list[Any], row: int):
    with pytest.raises(BatchError) as caught:
        stack(rows)
    assert caught.value.row == row


@pytest.mark.parametrize("rows", [[None], [None, None], [1, None], [None, {"a": 1}]])
def test_a_record_that_is_none_is_refused(rows: list[Any]):
    with pytest.raises(BatchError, match=r"^batch: a record is None\. Filter such records out"):
        stack(rows)


def test_a_masked_array_is_refused_as_its_mask_would_be_lost():
    masked = np.ma.array([1, 2], mask=[True, False])
    with pytest.raises(BatchError, match=r'^batch\["m"\]: a masked array would lose its mask\.'):
        stack([{"m": masked}, {"m": masked}])


VIEWS = {
    "flipped": lambda image: image[:, ::-1],
    "upside down": lambda image: image[::-1],
    "channels reversed": lambda image: image[..., ::-1],
    "transposed": lambda image: image.swapaxes(0, 1),
    "every second pixel": lambda image: image[::2, ::2],
    "cropped": lambda image: image[3:90, 5:95],
    "channels first in memory": lambda image: np.moveaxis(np.moveaxis(image, 2, 0).copy(), 0, 2),
    "the same pixel everywhere": lambda image: np.broadcast_to(image[:1, :1], image.shape),
    "whole": lambda image: image,
}


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
@pytest.mark.parametrize("num_channels", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("name", VIEWS)
def test_large_images_are_stacked_whatever_view_of_memory_they_are(
    name: str, num_channels: int, dtype: type
):
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (100, 100, num_channels)).astype(dtype) for _ in range(3)]
    views = [VIEWS[name](image) for image in images]
    mixed = [view if row % 2 else view.copy() for row, view in enumerate(views)]

    np.testing.assert_array_equal(stack(views), np.stack(views))
    np.testing.assert_array_equal(stack(mixed), np.stack(views))
