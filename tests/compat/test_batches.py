"""What is in a batch: containers, dtypes, shapes and bytes are Grain's, for any kind of record."""

import array
import collections
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.side_by_side import (
    STEADY,
    assert_same_stream,
    batching,
    make_loader,
    mapping,
    oracle,
    ours,
    stream,
)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Plain:
    """To JAX, and so to Grain, an opaque leaf."""

    value: int


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Registered:
    """A pytree node, because the user has registered it with JAX."""

    image: Any
    label: Any


@dataclasses.dataclass
class WithStatic:
    image: Any
    name: str


jax.tree_util.register_dataclass(WithStatic, data_fields=["image"], meta_fields=["name"])


class Pair:
    """A pytree node that is no dataclass."""

    def __init__(self, left: Any, right: Any):
        self.left = left
        self.right = right


jax.tree_util.register_pytree_node(
    Pair, lambda pair: ((pair.left, pair.right), None), lambda _, children: Pair(*children)
)


def image(i: int) -> np.ndarray:
    return np.arange(12, dtype=np.uint8).reshape(2, 2, 3) + np.uint8(i)


RECORDS = {
    "int": lambda i: i,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 2 == 0,
    "complex": lambda i: complex(i, -i),
    "int, then float": lambda i: i if i < 2 else i + 0.5,
    "str": lambda i: "x" * (i + 1),
    "bytes": lambda i: b"x" * (i + 1),
    "empty str": lambda i: "",
    "numpy scalar": lambda i: np.float32(i),
    "numpy bool": lambda i: np.bool_(i % 2),
    "zero-dimensional array": lambda i: np.array(i, dtype=np.int16),
    "array": image,
    "empty array": lambda i: np.zeros((0, 3), dtype=np.float32),
    "fortran order": lambda i: np.asfortranarray(np.arange(6.0).reshape(2, 3) + i),
    "strided": lambda i: (np.arange(24) + i)[::3],
    "reversed": lambda i: (np.arange(5) + i)[::-1],
    "read only": lambda i: np.broadcast_to(np.float32(i), (2, 3)),
    "array of str": lambda i: np.array(["a" * i, "bc"]),
    "array of objects": lambda i: np.array([i, "text", None], dtype=object),
    "structured array": lambda i: np.array([(i, 0.5)], dtype=[("a", np.int8), ("b", np.float64)]),
    "datetime": lambda i: np.datetime64("2026-01-01") + np.timedelta64(i, "D"),
    "nan and infinity": lambda i: np.array([np.nan, np.inf, -0.0, i]),
    "bfloat16": lambda i: np.array([i, 0.5], dtype=ml_dtypes.bfloat16),
    "jax array": lambda i: jnp.arange(3, dtype=jnp.int32) + i,
    "arrays of two dtypes": lambda i: np.array([i], dtype=np.int32 if i % 2 else np.float32),
    "bytearray": lambda i: bytearray([i, 1]),
    "memoryview": lambda i: memoryview(array.array("h", [i, 1])),
    "array of the standard library": lambda i: array.array("h", [i, 1]),
    "range": lambda i: range(i, i + 3),
    "deque": lambda i: collections.deque([i, 1.5]),
    "dict": lambda i: {"image": image(i), "label": i},
    "dict out of order": lambda i: {"z": i, "a": i, "m": i} if i % 2 else {"m": i, "z": i, "a": i},
    "ordered dict": lambda i: collections.OrderedDict(b=i, a=float(i)),
    "default dict": lambda i: collections.defaultdict(list, a=i),
    "tuple": lambda i: (image(i), i),
    "list": lambda i: [i, float(i), str(i)],
    "empty containers": lambda i: {"none": (), "nothing": {}, "some": i},
    "namedtuple": lambda i: Point(i, np.zeros(2)),
    "nested": lambda i: {"a": [(i, {"b": Point(i, [image(i)])})], "c": {"d": {"e": str(i)}}},
    "none in a dict": lambda i: {"a": None, "b": i},
    "none in a tuple": lambda i: (None, i, [None]),
    "mixed leaves": lambda i: {"s": f"name {i}", "b": bytes([65 + i]), "f": np.float16(i)},
    "registered dataclass": lambda i: Registered(image(i), {"label": i}),
    "registered dataclass with a static field": lambda i: WithStatic(image(i), "name"),
    "registered class": lambda i: Pair(i, image(i)),
}


@pytest.mark.parametrize("batch_size", [1, 3, 5])
@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_a_batch_of_any_record_is_grains(record, batch_size):
    assert_same_stream(
        lambda api: make_loader(api, [record(i) for i in range(5)], batching(batch_size))
    )


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS.keys())
def test_a_record_that_is_not_batched_comes_as_in_grain(record):
    assert_same_stream(lambda api: make_loader(api, range(4), mapping(record)))


@pytest.mark.parametrize("record", [image, RECORDS["dict"], RECORDS["nested"], RECORDS["str"]])
def test_a_batch_of_batches_is_grains(record):
    assert_same_stream(
        lambda api: make_loader(
            api,
            range(13),
            mapping(record),
            batching(2, drop_remainder=True),
            batching(3, drop_remainder=True),
        )
    )


@pytest.mark.parametrize(
    "dtype",
    ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"],
)
def test_a_source_that_is_an_array_yields_grains_elements_and_batches(dtype):
    source = np.arange(42).reshape(7, 3, 2).astype(dtype)
    assert_same_stream(lambda api: make_loader(api, source))
    assert_same_stream(lambda api: make_loader(api, source, batching(3)))
    assert_same_stream(lambda api: make_loader(api, source[:, 0, 0], batching(3)))

    def shuffled(api):
        sampler = api.IndexSampler(7, shuffle=True, num_epochs=2, seed=1)
        return make_loader(api, source, mapping(lambda x: {"x": x}), batching(4), sampler=sampler)

    assert_same_stream(shuffled)


def test_a_shared_memory_source_yields_grains_elements_and_batches():
    values = [1, 2.5, True, "text", b"bytes", None]
    sources = {api: api.InMemoryDataSource(values) for api in (oracle, ours)}
    assert_same_stream(lambda api: make_loader(api, sources[api]))
    pairs = assert_same_stream(
        lambda api: make_loader(api, sources[api], batching(2, batch_fn=list))
    )
    assert pairs == [[1, 2.5], [True, "text"], [b"bytes", None]]
    for source in sources.values():
        source.close()
        source.unlink()


LEAVES = st.one_of(
    st.just(lambda i: i),
    st.just(lambda i: i * 0.25),
    st.just(lambda i: str(i) * 2),
    st.just(lambda i: bytes([97 + i])),
    st.just(lambda i: None),
    st.just(image),
    st.just(lambda i: np.float32(i)),
    st.just(lambda i: np.full((3, 1), i, dtype=np.int16)),
)
TREES = st.recursive(
    LEAVES,
    lambda children: st.one_of(
        st.lists(children, max_size=3),
        st.lists(children, max_size=3).map(tuple),
        st.tuples(children, children).map(lambda pair: Point(*pair)),
        st.dictionaries(st.text("abcxyz", min_size=1, max_size=3), children, max_size=3),
    ),
    max_leaves=8,
)


def fill(tree: Any, i: int) -> Any:
    """The record number `i` of a tree whose leaves are functions of the number."""
    if isinstance(tree, dict):
        return {key: fill(value, i) for key, value in tree.items()}
    if isinstance(tree, Point):
        return Point(fill(tree.x, i), fill(tree.y, i))
    if isinstance(tree, list | tuple):
        return type(tree)(fill(value, i) for value in tree)
    return tree(i)


@STEADY
@given(
    tree=TREES.filter(lambda tree: fill(tree, 0) is not None),
    num_records=st.integers(1, 7),
    batch_size=st.integers(1, 4),
)
def test_a_batch_of_any_nested_record_is_grains(tree, num_records, batch_size):
    records = [fill(tree, i) for i in range(num_records)]
    assert_same_stream(lambda api: make_loader(api, records, batching(batch_size)))


def test_dataclasses_are_objects_to_grain_and_batched_by_field_by_ours():
    def batch(api):
        return stream(make_loader(api, [Plain(1), Plain(2)], batching(2)))[0]

    assert batch(oracle).dtype == object
    assert batch(ours).value.tolist() == [1, 2]


def test_a_record_that_is_none_is_a_batch_of_none_in_grain_and_an_error_in_ours():
    assert stream(make_loader(oracle, [None, None], batching(2))) == [None]
    with pytest.raises(ValueError, match="a record is None"):
        stream(make_loader(ours, [None, None], batching(2)))


def test_a_batch_of_one_in_foreign_byte_order_is_native_in_ours_as_larger_ones_are_in_grain():
    def dtypes(api):
        records = [np.arange(3, dtype=">i4")] * 3
        return [batch.dtype.isnative for batch in stream(make_loader(api, records, batching(2)))]

    assert dtypes(oracle) == [True, False]
    assert dtypes(ours) == [True, True]


def test_records_of_a_last_batch_that_is_dropped_are_read_by_grain_and_not_by_ours():
    class FailsAtTheEnd:
        def __len__(self):
            return 5

        def __getitem__(self, index):
            if index == 4:
                raise ValueError("read")
            return index

    def program(api):
        return stream(make_loader(api, FailsAtTheEnd(), lambda api: api.Batch(2, True)))

    with pytest.raises(ValueError, match="read"):
        program(oracle)
    assert [batch.tolist() for batch in program(ours)] == [[0, 1], [2, 3]]
