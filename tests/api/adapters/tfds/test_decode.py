"""Records that are decoded together are those that TFDS decodes one by one."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorflow_datasets.core.features import image_feature

from gristmill._api.adapters.tfds.decode import LazyFeatures, RecordDecoder
from gristmill._api.adapters.tfds.layout import make_layout
from gristmill._data.example_proto.serialize import format_example
from gristmill.testing._records import difference
from tests.api.adapters.tfds.tfds_builders import as_file, make_image, tfds

FEATURES = tfds.features.FeaturesDict(
    {
        "a": tfds.features.Tensor(shape=(3,), dtype=np.uint8),
        "b": {"c": np.int64, "d": tfds.features.Text()},
        "e": tfds.features.Tensor(shape=(2, 2), dtype=np.float32),
        "f": np.bool_,
        "image": tfds.features.Image(shape=(4, 5, 1)),
    }
)


@pytest.fixture(scope="module", autouse=True)
def _decode_with_pillow() -> Iterator[None]:
    """Let TFDS decode with Pillow, as it does where OpenCV, which other tests use, is missing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(image_feature, "cv2", None)
        yield


class UndecodableError(Exception):
    pass


def make_error(row: int, error: Exception) -> Exception:
    return UndecodableError(row, error)


def make_decoder(keys: Any = None) -> RecordDecoder:
    """Return a decoder as a worker unpickles it, which loads TFDS only if needed."""
    features = pickle.loads(pickle.dumps(LazyFeatures(FEATURES)))
    return RecordDecoder(make_layout(tfds, FEATURES, keys), features)


def decode(records: Sequence[bytes], decoder: RecordDecoder | None = None) -> list[Any]:
    decoder = decoder or make_decoder()
    return decoder.decode(records, make_error).rows(decoder.layout)


def by_tfds(record: bytes) -> Any:
    """Decode a record by TFDS, and convert its numbers to the types that the features declare."""
    decoded: Any = FEATURES.deserialize_example_np(record)
    types = {"c": np.int64}
    return {
        **decoded,
        "b": {name: _convert(value, types.get(name)) for name, value in decoded["b"].items()},
        "f": _convert(decoded["f"], np.bool_),
    }


def _convert(value: Any, kind: Any) -> Any:
    return value if kind is None or value is None else kind(value)


def message(number: int = 0, **changed: Any) -> bytes:
    rng = np.random.default_rng(number)
    values: dict[str, Any] = {
        "a": rng.integers(0, 256, 3),
        "b/c": int(rng.integers(-(2**63), 2**63 - 1)),
        "b/d": rng.bytes(number % 5),
        "e": rng.normal(size=4).astype(np.float32),
        "f": int(rng.integers(0, 2)),
        "image": as_file(make_image(number, (4, 5, 1))),
    }
    names = {name.replace("__", "/"): value for name, value in changed.items()}
    return format_example({**values, **names})


records = st.builds(
    lambda a, c, d, e, f: message(a=a, b__c=c, b__d=d, e=e, f=f),
    hnp.arrays(np.uint8, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.binary(max_size=200),
    hnp.arrays(np.float32, 4, elements=st.floats(width=32)),
    st.integers(0, 1),
)


@given(records=st.lists(records, max_size=8))
@settings(deadline=None)  # TFDS is slow at its first record
def test_any_records_are_those_of_tfds(records: list[bytes]):
    decoded = decode(records)

    assert len(decoded) == len(records)
    for record, one in zip(records, decoded, strict=True):
        assert difference(by_tfds(record), one) is None


def test_few_records_are_decoded_by_tfds_if_it_is_loaded(monkeypatch: pytest.MonkeyPatch):
    features = LazyFeatures(FEATURES)
    by_tfds: list[bytes] = []
    decode_one = LazyFeatures.decode
    monkeypatch.setattr(
        LazyFeatures,
        "decode",
        lambda self, record: by_tfds.append(record) or decode_one(self, record),
    )
    decoder = RecordDecoder(make_layout(tfds, FEATURES), features)

    few = decode([message(1), message(2)], decoder)
    assert len(by_tfds) == 2
    many = decode([message(1), message(2)] * 10, decoder)
    assert len(by_tfds) == 2

    assert [difference(one, other) for one, other in zip(few, many[-2:], strict=True)] == [None] * 2


@given(position=st.integers(0, 10_000), byte=st.integers(0, 255), number=st.integers(0, 20))
@settings(deadline=None)  # TFDS is slow at its first record
def test_a_damaged_record_is_decoded_as_by_tfds(position: int, byte: int, number: int):
    record = bytearray(message(number))
    record[position % len(record)] = byte
    try:
        expected = by_tfds(bytes(record))
    except Exception:
        with pytest.raises(UndecodableError):
            decode([bytes(record)])
        return

    assert difference(expected, decode([message(1), bytes(record), message(2)])[1]) is None


@given(length=st.integers(0, 10_000), number=st.integers(0, 20))
@settings(deadline=None)  # TFDS is slow at its first record
def test_a_truncated_record_is_decoded_as_by_tfds(length: int, number: int):
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


def sized(tag: int, *values: bytes) -> bytes:
    """Encode a field of a message, shorter than 16 kB."""
    data = b"".join(values)
    return bytes([tag, len(data) & 127 | 128, len(data) >> 7]) + data


def entries(record: bytes) -> bytes:
    """Return the value of the only field of a message, which is longer than 127 bytes."""
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
    "two messages": message(1) + message(2),
    "a feature twice": message(3) + format_example({"b/c": 5}),
    "integers as floats": message(f=1.0),
    "another image": message(image=as_file(make_image(1, (4, 5, 3)), "jpeg", "L")),
    "numbers one by one": message(4) + bytes.fromhex("0a0d 0a0b 0a03 622f63 1204 1a02 0805"),
}


@pytest.mark.parametrize("kind", UNUSUAL)
def test_unusual_records_are_decoded_by_tfds(kind: str):
    expected = by_tfds(UNUSUAL[kind])

    decoded = decode([message(1), UNUSUAL[kind], message(2)])

    assert difference(expected, decoded[1]) is None
    assert difference(by_tfds(message(2)), decoded[2]) is None


@pytest.mark.parametrize("values", [[1, 2, 256], [1, -2, 3]])
def test_numbers_out_of_range_are_decoded_as_by_tfds(values: list[int]):
    record = message(a=values)

    assert difference(by_tfds(record), decode([message(1), record])[1]) is None


@pytest.mark.parametrize("values", [[1, 2], [1, 2, 3, 4]])
def test_too_few_or_too_many_numbers_are_an_error_as_in_tfds(values: list[int]):
    record = message(a=values)
    with pytest.raises(ValueError, match="reshape"):
        by_tfds(record)

    with pytest.raises(UndecodableError):
        decode([message(1), record])


def test_a_missing_feature_is_an_error():
    record = format_example({"b/c": 1})

    with pytest.raises(UndecodableError) as caught:
        decode([message(1), record])

    assert caught.value.args[0] == 1


def test_only_the_fields_of_the_layout_are_decoded():
    decoder = make_decoder(keys=("f", {"text": "b"}))

    decoded = decode([message(3, image=b"no image")], decoder)

    expected = by_tfds(message(3))
    assert difference((expected["f"], {"text": expected["b"]}), decoded[0]) is None


def test_records_of_several_chunks_are_decoded_in_order():
    many = [message(number % 7, b__d=bytes(number)) for number in range(600)]

    decoded = decode(many)

    assert [len(one["b"]["d"]) for one in decoded] == list(range(600))
    assert difference(by_tfds(many[599]), decoded[599]) is None
