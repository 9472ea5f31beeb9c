"""The codec of `tf.train.Example` against protobuf's own."""

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import example, given
from hypothesis import strategies as st

from gristmill._data.example_proto.parse import parse_example
from gristmill._data.example_proto.serialize import format_example
from gristmill.errors import FormatError, PlanError, PlanTypeError

FIELD = descriptor_pb2.FieldDescriptorProto


def make_example_class() -> Any:
    """Build the message types by hand: TensorFlow is not there, and need not be."""
    file = descriptor_pb2.FileDescriptorProto(
        name="example_of_the_tests.proto", package="tests", syntax="proto3"
    )
    for name, kind in (
        ("BytesList", FIELD.TYPE_BYTES),
        ("FloatList", FIELD.TYPE_FLOAT),
        ("Int64List", FIELD.TYPE_INT64),
    ):
        values = file.message_type.add(name=name)
        values.field.add(name="value", number=1, label=FIELD.LABEL_REPEATED, type=kind)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, kind) in enumerate(
        [("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List")], 1
    ):
        feature.field.add(
            name=name,
            number=number,
            label=FIELD.LABEL_OPTIONAL,
            type=FIELD.TYPE_MESSAGE,
            type_name=f".tests.{kind}",
            oneof_index=0,
        )
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label=FIELD.LABEL_OPTIONAL, type=FIELD.TYPE_STRING)
    for message, name, label, kind in (
        (entry, "value", FIELD.LABEL_OPTIONAL, "Feature"),
        (features, "feature", FIELD.LABEL_REPEATED, "Features.FeatureEntry"),
        (file.message_type.add(name="Example"), "features", FIELD.LABEL_OPTIONAL, "Features"),
    ):
        message.field.add(
            name=name,
            number=2 if message is entry else 1,
            label=label,
            type=FIELD.TYPE_MESSAGE,
            type_name=f".tests.{kind}",
        )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tests.Example"))


Example = make_example_class()


def by_protobuf(data: bytes) -> dict[str, Any]:
    """Return what protobuf reads, in the form that `same` takes."""
    found: dict[str, Any] = {}
    for key, feature in Example.FromString(data).features.feature.items():
        kind = feature.WhichOneof("kind") or ""
        values = list(getattr(feature, kind).value) if kind else []
        dtype = {"float_list": np.float32, "int64_list": np.int64}.get(kind)
        found[key] = values if dtype is None else np.array(values, dtype)
    return found


def reported(features: dict[str, Any]) -> dict[str, Any]:
    """Make features comparable, NaN and -0.0 included."""
    return {
        key: (str(values.dtype), values.tobytes()) if isinstance(values, np.ndarray) else values
        for key, values in features.items()
    }


INTS = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300)
FLOATS = st.floats(width=32, allow_nan=False)
FEATURES = st.dictionaries(
    st.text(max_size=5),
    st.lists(st.binary(max_size=200), min_size=1, max_size=4)
    | st.lists(INTS, max_size=150).map(lambda values: np.array(values, np.int64))
    | st.lists(FLOATS, max_size=70).map(lambda values: np.array(values, np.float32)),
    max_size=5,
)


@given(FEATURES)
def test_protobuf_reads_what_is_written(features: dict[str, Any]):
    assert reported(by_protobuf(format_example(features))) == reported(features)


@given(FEATURES)
def test_what_protobuf_writes_is_read(features: dict[str, Any]):
    message = Example()
    for key, values in features.items():
        feature = message.features.feature[key]
        if isinstance(values, list):
            feature.bytes_list.value.extend(values)
        elif values.dtype == np.float32:
            feature.float_list.value.extend(values.tolist())
            feature.float_list.SetInParent()
        else:
            feature.int64_list.value.extend(values.tolist())
            feature.int64_list.SetInParent()

    assert reported(parse_example(message.SerializeToString())) == reported(features)


def field(number: int, content: bytes | int, wire: int = 2) -> bytes:
    """Write one field of any message."""
    tag = varint(8 * number + wire)
    if isinstance(content, int):
        return tag + varint(content)
    return tag + (varint(len(content)) if wire == 2 else b"") + content


def varint(value: int) -> bytes:
    digits = [value >> shift & 127 for shift in range(0, max(value.bit_length(), 1), 7)]
    return bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])


def one(feature: bytes, key: bytes = b"x") -> bytes:
    """Write an Example of one feature, given as it is."""
    return field(1, field(1, field(1, key) + field(2, feature)))


def both_read(data: bytes) -> Any:
    """Return what both read, if they agree."""
    found = parse_example(data)
    assert reported(found) == reported(by_protobuf(data))
    return found


def test_numbers_may_be_packed_or_not_or_both():
    floats = field(1, np.array([1, 2], np.float32).tobytes()) + field(1, np.float32(3).tobytes(), 5)
    ints = field(1, 7, 0) + field(1, varint(8) + varint(2**64 - 1)) + field(1, b"") + field(1, 9, 0)

    assert both_read(one(field(2, floats)))["x"].tolist() == [1, 2, 3]
    assert both_read(one(field(3, ints)))["x"].tolist() == [7, 8, -1, 9]


@pytest.mark.parametrize("count", [1, 40])
def test_bits_above_the_64th_do_not_count(count: int):
    assert (
        both_read(one(field(3, field(1, (b"\xff" * 9 + b"\x7e") * count))))["x"].tolist()
        == [2**63 - 1] * count
    )


@pytest.mark.parametrize("count", [1, 40, 1000])
def test_integers_are_read_alike_however_many_there_are(count: int):
    numbers = [0, 1, -1, 127, 128, 2**31, 2**63 - 1, -(2**63), 300, -300] * count
    found = both_read(format_example({"x": np.array(numbers, np.int64)}))
    assert found["x"].tolist() == numbers


def test_parts_of_one_message_are_merged_and_of_one_key_the_last_entry_counts():
    values = [field(1, field(1, letter)) for letter in (b"a", b"b", b"c")]
    merged = field(1, field(1, field(1, b"x") + field(2, values[0]) + field(2, values[1])))

    assert both_read(merged) == {"x": [b"a", b"b"]}
    assert both_read(one(values[0]) + one(values[1], b"y")) == {"x": [b"a"], "y": [b"b"]}
    assert both_read(one(values[0]) + one(values[2])) == {"x": [b"c"]}
    assert both_read(one(values[0] + field(3, field(1, 5, 0))))["x"].tolist() == [5]


def test_a_feature_may_be_empty_or_of_no_kind():
    assert both_read(b"") == {}
    assert both_read(one(b"")) == {"x": []}
    assert both_read(field(1, field(1, b""))) == {"": []}
    assert both_read(one(field(1, b""))) == {"x": []}
    assert both_read(one(field(2, b"")))["x"].dtype == np.float32
    assert both_read(one(field(3, b"")))["x"].dtype == np.int64
    assert format_example({"x": []}) == one(b"")


@pytest.mark.parametrize(
    "unknown",
    [
        field(9, 5, 0),
        field(9, b"12345678", 1),
        field(9, b"any"),
        field(9, b"1234", 5),
        field(1, 5, 0),
        field(9, field(3, b"nested") + field(4, field(5, 1, 0) + field(4, b"", 4), 3), 3)
        + field(9, b"", 4),
        field(2**29 - 1, b"any"),
    ],
)
def test_unknown_fields_are_skipped_wherever_they_are(unknown: bytes):
    entry = field(1, b"x") + field(2, unknown + field(1, unknown + field(1, b"a")))
    data = unknown + field(1, unknown + field(1, entry))
    if unknown != field(1, 5, 0):  # a number in the place of a value is one, and not unknown
        data += one(field(2, unknown + field(1, b"1234")), b"y")

    assert both_read(data)["x"] == [b"a"]
    assert parse_example(field(1, field(1, unknown + entry)))["x"] == [b"a"]


@pytest.mark.parametrize(
    ("data", "fact", "offset"),
    [
        (b"\n", "they end inside a field", 1),
        (b"\n\x05ab", "a field is longer than its message", 2),
        (b"\n\x02\n\x03", "a field is longer than its message", 4),
        (b"\n\x02\n\x01\n\x00", "a field is longer than its message", 4),
        (b"\x02\x00", "a field number is out of range", 1),
        (varint(2**32 + 10) + b"\x00", "a field number is out of range", 5),
        (b"\x0e\x00", "a field has an unknown wire type", 1),
        (b"\x0c\x00", "a field has an unknown wire type", 1),
        (b"\x48" + b"\xff" * 10 + b"\x01", "a number is longer than 10 bytes", 11),
        (field(9, field(8, b"", 4), 3), "a group ends without a start", 2),
        (b"\x4b" * 102, "more than 100 groups are nested", 101),
        (one(b"", key=b"\xff"), "a key is not UTF-8", 6),
        (one(field(2, field(1, b"12345"))), "a list of floats takes 5 bytes", 13),
        (one(field(3, field(1, b"\x80"))), "a list of integers ends inside a number", 14),
        (one(field(3, field(1, b"\xff" * 10 + b"\x01"))), "a number is longer than 10 bytes", 13),
        (
            one(field(3, field(1, (b"\xff" * 10 + b"\x01") * 20))),
            "a number is longer than 10 bytes",
            18,
        ),
        (one(field(3, field(1, b"\xff" * 200 + b"\x01"))), "a number is longer than 10 bytes", 18),
    ],
)
def test_bytes_that_are_no_example_are_reported_with_the_place(data: bytes, fact: str, offset: int):
    with pytest.raises(FormatError) as caught:
        parse_example(data)
    assert caught.value.message == (
        f"These bytes are not a `tf.train.Example`: {fact}. Check the contents of the records."
    )
    assert caught.value.offset == offset
    with pytest.raises(DecodeError):
        Example.FromString(data)


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from(b"\n\x08\x12\x1a\x0d\x00\x01\x03\x80\xff"), max_size=40).map(bytes)
)
def test_any_bytes_are_read_as_protobuf_reads_them_or_refused(data: bytes):
    _agree(data)


WHOLE = format_example(
    {
        "a": [b"abc", b""],
        "b": np.array([1, -2], np.float32),
        "c": np.arange(-70, 70),
        "long": bytes(200),
    }
)


@given(
    st.integers(0, len(WHOLE)),
    st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=3),
)
def test_damaged_examples_are_read_as_protobuf_reads_them_or_refused(
    stop: int, changes: list[tuple[int, int]]
):
    data = bytearray(WHOLE)
    for place, value in changes:
        data[place] = value
    _agree(bytes(data[:stop]))


def _agree(data: bytes) -> None:
    try:
        expected = by_protobuf(data)
    except DecodeError:
        with pytest.raises(FormatError, match=r"^These bytes are not a `tf.train.Example`: "):
            parse_example(data)
        return
    found = parse_example(data)
    # An entry with an unknown field in it is one to protobuf in C++, and unknown to that in Python.
    unknown = UnknownFieldSet(Example.FromString(data).features)
    if not any(field.field_number == 1 and field.wire_type == 2 for field in unknown):
        assert reported(found) == reported(expected)


def test_arrays_of_numbers_can_be_written_to_and_are_not_the_record():
    data = format_example({"x": np.arange(3), "y": np.array([1, 2], np.float32)})
    before = bytes(bytearray(data))
    for values in parse_example(data).values():
        values[0] = 9  # pyright: ignore[reportArgumentType, reportCallIssue]
    assert data == before


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_anything_like_bytes_is_read(kind: Any):
    assert parse_example(kind(WHOLE))["a"] == [b"abc", b""]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"a", [b"a"]),
        ("ü", ["ü".encode()]),
        (bytearray(b"a"), [b"a"]),
        (memoryview(b"a"), [b"a"]),
        (["a", b"b\0"], [b"a", b"b\0"]),
        ((b"a",), [b"a"]),
        (np.array([["a"], ["b"]]), [b"a", b"b"]),
        (np.array([b"a", b"bc"]), [b"a", b"bc"]),
        (np.array([b"a\0", "b"], object), [b"a\0", b"b"]),
        (np.str_("a"), [b"a"]),
        (np.array([], object), []),
    ],
    ids=lambda value: type(value).__name__,
)
def test_text_and_bytes_become_lists_of_bytes(value: Any, expected: list[bytes]):
    assert both_read(format_example({"x": value})) == {"x": expected}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, [7]),
        (True, [1]),
        ([-(2**63), 2**63 - 1], [-(2**63), 2**63 - 1]),
        ([[1, 2], [3, 4]], [1, 2, 3, 4]),
        (np.uint64(2**63 - 1), [2**63 - 1]),
        (np.arange(4, dtype=np.uint8).reshape(2, 2).T, [0, 2, 1, 3]),
        (np.array([True, False]), [1, 0]),
        (np.array([1, 2], ">i4"), [1, 2]),
        (np.zeros((0, 3), np.int16), []),
        (jnp.arange(3), [0, 1, 2]),
    ],
    ids=repr,
)
def test_integers_become_64_bit_integers(value: Any, expected: list[int]):
    found = both_read(format_example({"x": value}))["x"]
    assert (found.dtype, found.tolist()) == (np.int64, expected)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.5, [0.5]),
        ([1, 0.25], [1, 0.25]),
        (np.float16(0.1), [float(np.float16(0.1))]),
        (np.array([[0.1], [0.2]], np.float32), [float(np.float32(0.1)), float(np.float32(0.2))]),
        (np.array([1.5, -0.0], ">f8"), [1.5, -0.0]),
        (float("inf"), [float("inf")]),
        (np.zeros((2, 0)), []),
        (jnp.ones(2), [1, 1]),
    ],
    ids=repr,
)
def test_floats_become_32_bit_floats(value: Any, expected: list[float]):
    found = both_read(format_example({"x": value}))["x"]
    assert (found.dtype, found.tolist()) == (np.float32, expected)


def test_not_a_number_stays_one():
    assert np.isnan(both_read(format_example({"x": [float("nan")]}))["x"]).all()


@pytest.mark.parametrize("value", [0.1, 1e300, 1e-300, [1.0, 16777217.0]], ids=repr)
def test_a_float_that_32_bits_cannot_hold_is_refused(value: Any):
    first = value[-1] if isinstance(value, list) else value
    with pytest.raises(PlanError) as caught:
        format_example({"x": value})
    assert str(caught.value) == (
        f"Feature 'x' holds {first}, which 32 bits cannot represent exactly, and an Example has no "
        "wider floats. Round it with `np.float32(...)`, or store its bytes."
    )


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, [2**64], np.uint64(2**63)], ids=repr)
def test_an_integer_that_64_bits_cannot_hold_is_refused(value: Any):
    message = (
        r"^Feature 'x' holds an integer that does not fit in a signed 64-bit integer\. Store it as "
        r"bytes\.$"
    )
    with pytest.raises(PlanError, match=message):
        format_example({"x": value})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        ({"y": 1}, "dict"),
        (1j, "complex"),
        ([1j], "list"),
        ([b"a", 1], "int"),
        ([[b"a"]], "list"),
        ([[1], [2, 3]], "list"),
        ([None], "list"),
        (np.array([None]), "NoneType"),
        (np.array(["2020-01-01"], "M8[D]"), "an array of dtype datetime64[D] and shape (1,)"),
        (np.ones(2, ml_dtypes.bfloat16), "an array of dtype bfloat16 and shape (2,)"),
    ],
    ids=repr,
)
def test_what_an_example_cannot_hold_is_refused(value: Any, kind: str):
    with pytest.raises(PlanTypeError) as caught:
        format_example({"x": value})
    assert str(caught.value) == (
        "Feature 'x' must be bytes, strings, integers or floats, or a flat list or an array of "
        f"one of these, got {kind}. Convert it first, or store it as bytes."
    )


def test_a_name_that_is_no_text_is_refused():
    wrong: Any = {b"x": 1}
    with pytest.raises(
        PlanTypeError, match=r"^The name of a feature must be a string, got b'x'\.$"
    ):
        format_example(wrong)


@example({"x": "\ud800"})
@example({"\ud800": 1})
@given(st.just({"x": ["a", "\udfff"]}))
def test_text_that_utf8_cannot_hold_is_refused(features: dict[str, Any]):
    with pytest.raises(PlanError, match="holds half of a surrogate pair, which"):
        format_example(features)
