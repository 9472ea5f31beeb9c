import pickle
import re
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from gristmill import Batch, DataLoader, SequentialSampler
from gristmill._data.example_proto.serialize import format_example
from gristmill._data.transforms.example import Feature, ParseExample
from gristmill.errors import FormatError, MissingFileError, PlanError, PlanTypeError

RECORD = format_example(
    {
        "image": np.arange(6),
        "label": 7,
        "name": "Zürich",
        "raw": [b"a\0", b"\xff"],
        "box": np.array([0.5, -1, 2, 1e30], np.float32),
        "nothing": [],
        "no_floats": np.zeros(0, np.float32),
    }
)


def take(name: str, *arguments: Any, **options: Any) -> Any:
    return ParseExample({name: Feature(*arguments, **options)}).map(RECORD)[name]


def test_without_features_it_yields_all_as_they_are():
    found = ParseExample().map(RECORD)

    assert list(found) == ["image", "label", "name", "raw", "box", "nothing", "no_floats"]
    assert found["raw"] == [b"a\0", b"\xff"]
    assert found["image"].tolist() == list(range(6))
    assert found["nothing"] == []


def test_with_features_it_yields_these_and_in_this_order():
    found = ParseExample({"label": Feature((), np.int64), "image": Feature((2, 3), np.uint8)}).map(
        RECORD
    )

    assert list(found) == ["label", "image"]
    assert found["image"].tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("label", np.int64),
        ("label", np.uint8),
        ("image", "int32"),
        ("image", ">u2"),
        ("box", np.float32),
        ("box", float),
        ("box", ml_dtypes.bfloat16),
    ],
)
def test_numbers_are_of_the_type_asked_for(name: str, dtype: Any):
    found = take(name, None, dtype)

    assert found.dtype == np.dtype(dtype)
    np.testing.assert_allclose(
        found.astype(np.float64), ParseExample().map(RECORD)[name], rtol=1e-2
    )
    found[:] = 0  # its own memory


def test_one_value_is_no_array():
    assert type(take("label", (), np.int32)) is np.int32
    assert take("label", (1,), np.int32).shape == (1,)
    assert take("name") == "Zürich".encode()
    assert take("name", (), str) == "Zürich"


def test_several_values_of_bytes_are_an_array_of_objects():
    found = take("raw", (2, 1))
    assert (found.dtype, found.tolist()) == (object, [[b"a\0"], [b"\xff"]])
    assert take("raw", None, object).tolist() == [b"a\0", b"\xff"]
    assert take("name", (1,), str).tolist() == ["Zürich"]


def test_booleans_are_integers_of_zero_and_one():
    record = format_example({"x": [True, False]})
    found = ParseExample({"x": Feature((2,), bool)}).map(record)["x"]
    assert (found.dtype, found.tolist()) == (bool, [True, False])


@pytest.mark.parametrize("name", ["nothing", "no_floats"])
@pytest.mark.parametrize("dtype", [bytes, np.float32])
def test_any_number_of_values_may_be_none(name: str, dtype: Any):
    found = take(name, None, dtype)
    assert (found.dtype, found.shape) == (np.dtype(object if dtype is bytes else dtype), (0,))


@pytest.mark.parametrize(
    ("shape", "dtype", "default", "expected"),
    [
        ((), np.int64, 3, 3),
        ((), bytes, b"x", b"x"),
        ((), str, "x", "x"),
        ((2, 2), np.float32, 0.1, np.full((2, 2), np.float32(0.1))),
        ((2,), np.int8, [1, 2], np.array([1, 2], np.int8)),
        ((2,), np.float16, np.ones(2), np.ones(2, np.float16)),
        ((2,), bytes, b"x", np.array([b"x", b"x"], object)),
        ((2,), str, ["x", "y"], np.array(["x", "y"], object)),
        (None, np.float32, (), np.zeros(0, np.float32)),
        (None, np.float32, 1, np.ones(1, np.float32)),
        (None, bytes, [], np.zeros(0, object)),
        (None, np.float32, [1, 2, 3], np.array([1, 2, 3], np.float32)),
    ],
)
@pytest.mark.parametrize("name", ["absent", "nothing"])
def test_a_missing_feature_has_its_default(
    name: str, shape: Any, dtype: Any, default: Any, expected: Any
):
    if name == "nothing" and shape is None:
        return  # any number may be none
    found = take(name, shape, dtype, default)

    assert type(found) is type(expected) or type(found) is np.int64
    np.testing.assert_array_equal(found, expected)
    assert np.asarray(found).dtype == np.asarray(expected).dtype


def test_a_default_is_new_for_each_record():
    step = ParseExample({"absent": Feature((2,), np.int64, default=[1, 2])})
    step.map(RECORD)["absent"][:] = 9
    assert step.map(RECORD)["absent"].tolist() == [1, 2]


def test_a_default_is_not_used_where_there_are_values():
    assert take("label", (), np.int64, 3) == 7
    with pytest.raises(FormatError, match="has 6 values"):
        take("image", (2,), np.int64, 0)


def _says(message: str) -> Any:
    return pytest.raises(FormatError, match=f"^{re.escape(message)}$")


def test_a_missing_feature_is_reported_with_those_there_are():
    names = "['box', 'image', 'label', 'name', 'no_floats', 'nothing', 'raw']"
    with _says(
        f"The Example has no feature 'absent'; it has {names}. Remove it from `features`, or set "
        "its `default`."
    ):
        take("absent", None, np.int64)


@pytest.mark.parametrize(
    ("name", "dtype", "reported"),
    [
        ("name", np.int64, "bytes, but a `dtype` of int64 is for integers. Use `dtype=bytes`."),
        ("label", str, "integers, but a `dtype` of str is for bytes. Use `dtype=np.int64`."),
        ("label", float, "integers, but a `dtype` of float64 is for floats. Use `dtype=np.int64`."),
        ("box", int, "floats, but a `dtype` of int64 is for integers. Use `dtype=np.float32`."),
    ],
)
def test_another_kind_of_values_is_reported(name: str, dtype: Any, reported: str):
    with _says(f"Feature {name!r} holds {reported}"):
        take(name, None, dtype)


@pytest.mark.parametrize(("name", "count"), [("image", 6), ("nothing", 0)])
def test_another_number_of_values_is_reported(name: str, count: int):
    with _says(
        f"Feature {name!r} has {count} values, but a `shape` of (2, 2) needs 4. Use `shape=None` "
        "if their number varies."
    ):
        take(name, (2, 2), np.int64)


@pytest.mark.parametrize(
    ("name", "dtype", "reported"),
    [
        ("label", bool, "7, which bool"),
        ("box", np.float16, "1.0000000150474662e+30, which float16"),
    ],
)
def test_a_number_that_the_type_cannot_hold_is_reported(name: str, dtype: Any, reported: str):
    with _says(f"Feature {name!r} holds {reported} cannot hold. Use a wider `dtype`."):
        take(name, None, dtype)


@pytest.mark.parametrize(
    ("value", "dtype"), [(300, np.uint8), (-1, np.uint64), (-1, np.uint8), (2**40, np.int32)]
)
def test_no_integer_wraps_around(value: int, dtype: Any):
    step = ParseExample({"x": Feature(None, dtype)})
    with _says(
        f"Feature 'x' holds {value}, which {np.dtype(dtype)} cannot hold. Use a wider `dtype`."
    ):
        step.map(format_example({"x": [1, value]}))


def test_infinity_and_not_a_number_are_floats_of_any_width():
    record = format_example({"x": [float("inf"), float("nan")]})
    found = ParseExample({"x": Feature(None, np.float16)}).map(record)["x"]
    np.testing.assert_array_equal(found, np.array([np.inf, np.nan], np.float16))


def test_bytes_that_are_no_text_are_reported():
    with _says("Feature 'raw' holds bytes that are not valid UTF-8. Use `dtype=bytes`."):
        take("raw", None, str)


def test_bytes_that_are_no_example_are_refused():
    with pytest.raises(FormatError, match=r"^These bytes are not a `tf.train.Example`: "):
        ParseExample().map(b"\xff")


def test_an_element_that_is_not_bytes_is_refused():
    with pytest.raises(PlanTypeError) as caught:
        ParseExample().map({"image": 1})
    assert str(caught.value) == (
        "`ParseExample` needs the bytes of a record, got dict. Make it the first step after the "
        "source."
    )


@pytest.mark.parametrize("features", [{}, [], ["x"], "x"])
def test_features_that_are_no_dict_are_refused(features: Any):
    message = "`features` must be a dict of `Feature`s, or None for all features, got "
    with pytest.raises(PlanTypeError, match=f"^{message}{re.escape(repr(features))}\\.$"):
        ParseExample(features)


@pytest.mark.parametrize("features", [{"x": np.int64}, {b"x": Feature()}])
def test_a_feature_is_a_name_and_a_feature(features: Any):
    message = r"^`features` must have a `Feature\(shape, dtype\)` for each name, got "
    with pytest.raises(PlanTypeError, match=message):
        ParseExample(features)


@pytest.mark.parametrize("shape", [3, "ab", {2}])
def test_a_shape_that_is_no_tuple_is_refused(shape: Any):
    message = "`shape` must be a tuple of sizes, or None for any number of values, got "
    with pytest.raises(PlanTypeError, match=f"^{message}{re.escape(repr(shape))}\\.$"):
        Feature(shape)


def test_sizes_are_integers_that_are_not_negative():
    assert Feature([np.int64(2), 3]).shape == (2, 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError, match=r"^`shape` must be at least 0, got -1\.$"):
        Feature((-1,))


@pytest.mark.parametrize("dtype", [complex, "M8[s]", "V4", "no type", [("a", int)]])
def test_a_type_that_no_feature_can_have_is_refused(dtype: Any):
    message = "`dtype` must be bytes, str, bool, or a type of integers or floats, got "
    with pytest.raises(PlanTypeError, match=f"^{message}{re.escape(repr(dtype))}\\.$"):
        Feature((), dtype)


@pytest.mark.parametrize(
    ("shape", "dtype", "default"),
    [
        ((), np.int64, 0.5),
        ((), np.uint8, -1),
        ((), np.int64, "a"),
        ((), np.int64, {}),
        ((), np.int64, 2**70),
        ((), np.int64, [1, 2]),
        ((2,), np.int64, [1, 2, 3]),
        ((2,), np.int64, []),
        ((), np.float16, 1e30),
        ((), np.float32, [None]),
        ((), bytes, "text"),
        ((), str, b"bytes"),
        ((), bytes, 1),
        ((), bytes, []),
    ],
)
def test_a_default_that_does_not_fit_is_refused_at_once(shape: Any, dtype: Any, default: Any):
    reported = np.dtype(dtype).name
    with pytest.raises(PlanError) as caught:
        Feature(shape, dtype, default)
    assert str(caught.value) == (
        f"`default` must be one value of type {reported}, or as many as `shape` needs, "
        f"got {default!r}."
    )


def test_it_is_a_value_that_can_be_pickled_and_reported():
    step = ParseExample({"x": Feature((2,), np.int32, default=0)})

    assert pickle.loads(pickle.dumps(step)) == step
    assert repr(step) == (
        "ParseExample(features={'x': Feature(shape=(2,), dtype=dtype('int32'), default=0)})"
    )


def test_features_with_equal_defaults_are_equal():
    defaults = [np.ones(2), [1.0, 1.0]]
    one, other = (Feature((2,), np.float32, default) for default in defaults)
    assert one == other


def test_a_loader_batches_what_it_yields():
    records = [format_example({"x": np.arange(3) + i, "y": f"{i}"}) for i in range(4)]
    step = ParseExample({"x": Feature((3,), np.int32), "y": Feature((), str)})
    loader = DataLoader(
        data_source=records, sampler=SequentialSampler(4), operations=[step, Batch(4)]
    )
    batch = next(iter(loader))

    assert batch["x"].tolist() == [[i, i + 1, i + 2] for i in range(4)]
    assert batch["y"].tolist() == ["0", "1", "2", "3"]


def test_features_are_read_from_a_file(tmp_path: Path):
    path = tmp_path / "features.json"
    path.write_text('{"a": {"dtype": "uint8", "shape": [2]}, "b": {"dtype": "str", "shape": null}}')

    assert ParseExample.read(path).features == {
        "a": Feature((2,), np.uint8),
        "b": Feature(None, str),
    }


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {"shape": []}}'])
def test_a_file_of_something_else_is_reported(tmp_path: Path, text: str):
    path = tmp_path / "features.json"
    path.write_text(text)

    with pytest.raises(FormatError, match="does not contain features"):
        ParseExample.read(path)


def test_a_missing_file_of_features_is_reported(tmp_path: Path):
    with pytest.raises(MissingFileError, match="does not exist"):
        ParseExample.read(tmp_path / "features.json")
