"""Items are converted to the same elements one by one and many at a time."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from gristmill._api.adapters.torch.convert import many_to_numpy, to_numpy
from gristmill._base.trees.columns import Columns, RaggedError
from gristmill.testing._records import difference

Pair = namedtuple("Pair", ["x", "y"])


@dataclass
class Sample:
    image: Any
    label: int


class Tagged(torch.Tensor):
    """A subclass of tensors, as torchvision has."""


def same(expected: Any, got: Any) -> None:
    assert difference(expected, got) is None


def rows_of(made: Columns | list[Any]) -> list[Any]:
    return made.rows() if isinstance(made, Columns) else made


def test_an_item_keeps_its_structure_and_all_leaves_other_than_tensors():
    item = {
        "pair": Pair(torch.arange(2), 1),
        "list": [torch.tensor(1.5), "text", b"bytes", None],
        "sample": Sample(torch.ones(2, dtype=torch.uint8), 3),
        "ordered": OrderedDict(a=torch.tensor([True])),
        "array": np.float32(2),
    }

    same(
        {
            "pair": Pair(np.arange(2), 1),
            "list": [np.float32(1.5), "text", b"bytes", None],
            "sample": Sample(np.ones(2, np.uint8), 3),
            "ordered": OrderedDict(a=np.array([True])),
            "array": np.float32(2),
        },
        to_numpy(item),
    )


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_an_image_becomes_an_array_of_its_pixels(mode: str):
    image = Image.new(mode, (3, 2), color=(7,) * len(mode) if len(mode) > 1 else 7)

    array = to_numpy(image)

    assert array.dtype == np.uint8
    assert array.shape == ((2, 3) if mode == "L" else (2, 3, len(mode)))
    assert (array == 7).all()


def test_a_leaf_of_an_unknown_type_is_kept():
    leaf = object()

    assert to_numpy((leaf, 1))[0] is leaf


def test_a_tensor_made_for_the_item_is_not_copied():
    tensor = torch.arange(5_000.0)

    assert np.shares_memory(to_numpy({"x": tensor})["x"], tensor.numpy())
    (element,) = rows_of(many_to_numpy([{"x": tensor}]))
    assert np.shares_memory(element["x"], tensor.numpy())


def tensor_items(shapes: Any, dtypes: Any) -> st.SearchStrategy[Any]:
    return st.builds(
        lambda shape, dtype, value: torch.full(shape, value).to(dtype),
        shapes,
        dtypes,
        st.integers(0, 100),
    )


LEAVES = st.one_of(
    tensor_items(st.sampled_from([(), (2,), (2, 3), (0,)]), st.just(torch.float32)),
    tensor_items(st.just((2,)), st.sampled_from([torch.float32, torch.int64, torch.bfloat16])),
    st.integers(-5, 2**70),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=3),
    st.none(),
    st.just(np.arange(2)),
    st.just(np.float32(1)),
)
SHAPES = [
    lambda x, y: (x, y),
    lambda x, y: [x, y],
    lambda x, y: {"x": x, "y": y},
    lambda x, y: {"y": x, "x": y},
    Pair,
    lambda x, y: x,
    lambda x, y: (x, {"y": [y]}),
    lambda x, y: (),
    lambda x, y: Sample(x, 1),
]


@given(data=st.data(), count=st.integers(0, 5), is_alike=st.booleans())
@settings(max_examples=300, deadline=None)
def test_many_items_are_converted_like_each_of_them(
    data: st.DataObject, count: int, is_alike: bool
):
    shape = data.draw(st.sampled_from(SHAPES))
    x, y = data.draw(LEAVES), data.draw(LEAVES)
    items = [
        shape(x, y)
        if is_alike
        else data.draw(st.sampled_from(SHAPES))(data.draw(LEAVES), data.draw(LEAVES))
        for _ in range(count)
    ]

    made = rows_of(many_to_numpy(items))

    same([to_numpy(item) for item in items], made)


def test_small_tensors_become_columns_next_to_plain_leaves():
    items = [(torch.full((3,), i), i, f"text {i}", np.arange(i)) for i in range(4)]

    made = many_to_numpy(items)

    assert isinstance(made, Columns)
    same([(np.full(3, i), i, f"text {i}", np.arange(i)) for i in range(4)], made.rows())


@pytest.mark.parametrize(
    "items",
    [
        [torch.zeros(2), torch.zeros(2, dtype=torch.float64)],
        [torch.zeros(2), None],
        [{"x": torch.zeros(2)}, {"y": torch.zeros(2)}],
        [Image.new("L", (2, 2)), Image.new("L", (3, 2))],
        [torch.zeros(2).as_subclass(Tagged), torch.ones(2).as_subclass(Tagged)],
    ],
    ids=["types", "none", "keys", "images", "subclass"],
)
def test_items_that_do_not_fit_into_columns_are_rows(items: list[Any]):
    made = many_to_numpy(items)

    assert isinstance(made, list)
    same([to_numpy(item) for item in items], made)


def test_large_tensors_are_handed_out_without_a_copy_where_they_own_their_memory():
    items = [(torch.full((5_000,), float(number)), number) for number in range(2)]

    made: Any = many_to_numpy(items)

    rows = made.rows()
    same([to_numpy(item) for item in items], rows)
    assert rows[0][0].ctypes.data == items[0][0].data_ptr()
    same(np.stack([items[0][0], items[1][0]]), made.gather()[0])


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
def test_tensors_without_axes_are_stacked_with_their_type(dtype: torch.dtype):
    made: Any = many_to_numpy([torch.tensor(number, dtype=dtype) for number in (0, 1, 1)])

    same(torch.tensor([0, 1, 1], dtype=dtype).numpy(), made.gather())


def test_a_tensor_of_one_number_is_not_one_without_axes():
    made: Any = many_to_numpy([torch.tensor(1), torch.tensor([2])])

    with pytest.raises(RaggedError):
        made.gather()


def test_dicts_with_their_keys_in_another_order_are_columns():
    made: Any = many_to_numpy([{"x": torch.tensor(1), "y": 2}, {"y": 3, "x": torch.tensor(4)}])

    assert made.rows() == [{"x": 1, "y": 2}, {"x": 4, "y": 3}]


@pytest.mark.parametrize("sizes", [(2, 3, 3), (3, 2, 2), (0, 1, 2)])
def test_tensors_of_several_shapes_are_columns_that_cannot_be_gathered(sizes: list[int]):
    items = [(torch.arange(size), number) for number, size in enumerate(sizes)]

    made: Any = many_to_numpy(items)

    same([to_numpy(item) for item in items], made.rows())
    same([to_numpy(item) for item in items[1:]], made[1:].rows())
    with pytest.raises(RaggedError):
        made.gather()


def test_items_without_tensors_are_returned_unchanged():
    items = [(np.zeros(3), 1), (np.ones(3), 2)]

    assert many_to_numpy(items) is items
