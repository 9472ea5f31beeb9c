"""Records decoded by the block are those that TFDS decodes one by one."""

import pickle
from collections.abc import Sequence
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._example import find_features, format_example, take_floats, take_integers
from gristmill.adapters._tfds_decode import Decoder, Features
from gristmill.adapters._tfds_layout import describe
from gristmill.testing._records import difference
from tests.adapters.tfds_builders import as_file, picture, tfds

FEATURES = tfds.features.FeaturesDict(
    {
        "a": tfds.features.Tensor(shape=(3,), dtype=np.uint8),
        "b": {"c": np.int64, "d": tfds.features.Text()},
        "e": tfds.features.Tensor(shape=(2, 2), dtype=np.float32),
        "f": np.bool_,
        "image": tfds.features.Image(shape=(4, 5, 1)),
    }
)


class UndecodableError(Exception):
    pass


def blame(place: int, error: Exception) -> Exception:
    return UndecodableError(place, error)


def decoder(keys: Any = None) -> Decoder:
    """Give one as a worker gets it, which asks TFDS only if it must."""
    there = pickle.loads(pickle.dumps(Features(FEATURES)))
    return Decoder(describe(tfds, FEATURES, keys), there)


def decode(records: Sequence[bytes], made: Decoder | None = None) -> list[Any]:
    made = made or decoder()
    return made.decode(records, blame).rows(made.layout)


def by_tfds(record: bytes) -> Any:
    """Give what TFDS gives, with its numbers in the types that the features say."""
    made: Any = FEATURES.deserialize_example_np(record)
    inner = made["b"]
    types = {"c": np.int64}
    return {
        **made,
        "b": {name: _typed(value, types.get(name)) for name, value in inner.items()},
        "f": _typed(made["f"], np.bool_),
    }


def _typed(value: Any, kind: Any) -> Any:
    return value if kind is None or value is None else kind(value)


def message(number: int = 0, **changed: Any) -> bytes:
    rng = np.random.default_rng(number)
    made: dict[str, Any] = {
        "a": rng.integers(0, 256, 3),
        "b/c": int(rng.integers(-(2**63), 2**63 - 1)),
        "b/d": rng.bytes(number % 5),
        "e": rng.normal(size=4).astype(np.float32),
        "f": int(rng.integers(0, 2)),
        "image": as_file(picture(number, (4, 5, 1))),
    }
    names = {name.replace("__", "/"): value for name, value in changed.items()}
    return format_example({**made, **names})


records = st.builds(
    lambda a, c, d, e, f: message(a=a, b__c=c, b__d=d, e=e, f=f),
    hnp.arrays(np.uint8, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=200),
    hnp.arrays(np.float32, 4, elements=st.floats(width=32)),
    st.integers(0, 1),
)


@given(records=st.lists(records, max_size=8))
def test_any_records_are_those_of_tfds(records: list[bytes]):
    got = decode(records)

    assert len(got) == len(records)
    for record, one in zip(records, got, strict=True):
        assert difference(by_tfds(record), one) is None


def test_few_records_are_left_to_tfds_where_it_is_loaded(monkeypatch: pytest.MonkeyPatch):
    features = Features(FEATURES)
    asked: list[bytes] = []
    by_one = Features.decode
    monkeypatch.setattr(
        Features, "decode", lambda self, record: asked.append(record) or by_one(self, record)
    )
    made = Decoder(describe(tfds, FEATURES), features)

    few = decode([message(1), message(2)], made)
    assert len(asked) == 2
    many = decode([message(1), message(2)] * 10, made)
    assert len(asked) == 2

    assert [difference(one, other) for one, other in zip(few, many[-2:], strict=True)] == [None] * 2


@given(place=st.integers(0, 10_000), byte=st.integers(0, 255), number=st.integers(0, 20))
def test_a_damaged_record_is_what_tfds_makes_of_it(place: int, byte: int, number: int):
    record = bytearray(message(number))
    record[place % len(record)] = byte
    try:
        expected = by_tfds(bytes(record))
    except Exception:
        with pytest.raises(UndecodableError):
            decode([bytes(record)])
        return

    assert difference(expected, decode([message(1), bytes(record), message(2)])[1]) is None


@given(length=st.integers(0, 10_000), number=st.integers(0, 20))
def test_a_record_that_is_cut_short_is_what_tfds_makes_of_it(length: int, number: int):
    record = message(number)
    record = record[: length % len(record)]
    try:
        expected = by_tfds(record)
    except Exception:
        with pytest.raises(UndecodableError) as caught:
            decode([message(1), record, message(2)])
        assert caught.value.args[0] == 1
        return

    assert difference(expected, decode([record])[0]) is None


def sized(tag: int, *parts: bytes) -> bytes:
    """Give a field of a message, shorter than 16 kB."""
    data = b"".join(parts)
    return bytes([tag, len(data) & 127 | 128, len(data) >> 7]) + data


def entries(record: bytes) -> bytes:
    """Give what is in the only field of a message, which is longer than 127 bytes."""
    return record[3:]


SAME_KEY = entries(message(3)) + entries(message(4, extra=bytes(200)))
TWO_KINDS = sized(
    0x0A,
    sized(0x0A, b"b/c"),
    sized(0x12, sized(0x1A, sized(0x0A, b"\x05"))),
    sized(0x12, sized(0x12, sized(0x0A, np.float32(6).tobytes()))),
)

UNUSUAL: dict[str, bytes] = {
    "a feature twice in one": sized(0x0A, SAME_KEY),
    "a feature of two kinds": sized(0x0A, entries(message(3)), TWO_KINDS),
    "more features": message(extra=[1, 2, 3]),
    "in parts": message(1) + message(2),
    "a feature twice": message(3) + format_example({"b/c": 5}),
    "integers as floats": message(f=1.0),
    "another picture": message(image=as_file(picture(1, (4, 5, 3)), "jpeg", "L")),
    "numbers one by one": message(4) + bytes.fromhex("0a0d 0a0b 0a03 622f63 1204 1a02 0805"),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_unusual_is_left_to_tfds(kind: str):
    expected = by_tfds(UNUSUAL[kind])

    got = decode([message(1), UNUSUAL[kind], message(2)])

    assert difference(expected, got[1]) is None
    assert difference(by_tfds(message(2)), got[2]) is None


@pytest.mark.parametrize("values", [[1, 2, 256], [1, -2, 3]])
def test_numbers_out_of_bounds_are_what_tfds_makes_of_them(values: list[int]):
    record = message(a=values)

    assert difference(by_tfds(record), decode([message(1), record])[1]) is None


@pytest.mark.parametrize("values", [[1, 2], [1, 2, 3, 4]])
def test_too_few_or_too_many_numbers_are_an_error_as_for_tfds(values: list[int]):
    record = message(a=values)
    with pytest.raises(ValueError, match="reshape"):
        by_tfds(record)

    with pytest.raises(UndecodableError):
        decode([message(1), record])


def test_a_feature_that_is_missing_is_what_tfds_makes_of_it():
    record = format_example({"b/c": 1})

    with pytest.raises(UndecodableError) as caught:
        decode([message(1), record])

    assert caught.value.args[0] == 1


def test_only_what_is_wanted_is_decoded():
    made = decoder(keys=("f", {"text": "b"}))

    got = decode([message(3, image=b"no picture")], made)

    expected = by_tfds(message(3))
    assert difference((expected["f"], {"text": expected["b"]}), got[0]) is None


def test_many_records_are_decoded_in_parts_to_the_same():
    many = [message(number % 7, b__d=bytes(number)) for number in range(600)]

    got = decode(many)

    assert [len(one["b"]["d"]) for one in got] == list(range(600))
    assert difference(by_tfds(many[599]), got[599]) is None


@given(st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=6))
def test_lists_of_integers_are_right_if_there_are_so_many_that_fit(lists: list[list[int]]):
    pieces = [find_piece(values) for values in lists]

    values, is_right = take_integers(pieces, (2,), np.dtype(np.int16))

    fit = [len(one) == 2 and all(-(2**15) <= n < 2**15 for n in one) for one in lists]
    assert is_right.tolist() == fit
    assert values[is_right].tolist() == [one for one, fits in zip(lists, fit, strict=True) if fits]


def find_piece(values: list[int]) -> bytes:
    """Give integers as they are packed."""
    if not values:
        return b""
    found = find_features([format_example({"x": values})], ["x"])
    assert found.is_whole.all()
    return found.pieces(np.array([0]), 0)[0]


def test_lists_of_floats_are_right_if_there_are_so_many():
    pieces = [np.array(values, "<f4").tobytes() for values in ([1, 2], [3], [4, 5])]

    values, is_right = take_floats(pieces, (2,), np.dtype(np.float64))

    assert is_right.tolist() == [True, False, True]
    assert values[is_right].tolist() == [[1, 2], [4, 5]]
