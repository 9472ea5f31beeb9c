from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.element_store.codec import CodecError, decode, encode

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
ELEMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(ELEMENTS)
def test_an_element_is_decoded_as_it_was(element: object) -> None:
    found = decode(encode(element))
    assert found == element
    assert repr(found) == repr(element)  # also the types, such as `True` and 1


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int16).reshape(2, 3),
        np.array(["a", "bcd"]),
        np.array([b"xy"]),
        np.array("2020-01-01", "M8[D]"),
        np.zeros((0, 3), np.float32),
        np.arange(6).reshape(2, 3).T,
        np.float32(1.5),
        np.array([1, 2], ">i4"),
    ],
)
def test_an_array_keeps_its_dtype_and_shape(array: np.ndarray) -> None:
    found = decode(encode([array]))[0]
    assert type(found) is type(array)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


class Own:
    pass


@pytest.mark.parametrize("value", [Own(), {1, 2}, np.array([object()]), {"x": Own()}])
def test_an_object_of_another_type_is_refused(value: object) -> None:
    with pytest.raises(CodecError, match=r"an object of type|an array of dtype object"):
        encode(value)


@given(ELEMENTS, st.data())
def test_damaged_bytes_are_an_element_or_a_codec_error(
    element: object, data: st.DataObject
) -> None:
    encoded = bytearray(encode(element))
    place = data.draw(st.integers(0, len(encoded) - 1))
    encoded[place] ^= data.draw(st.integers(1, 255))
    with suppress(CodecError):
        decode(bytes(encoded))
    with pytest.raises(CodecError, match="damaged"):
        decode(encode(element)[:-1])


@given(st.binary(max_size=60))
def test_any_bytes_are_an_element_or_a_codec_error(data: bytes) -> None:
    with suppress(CodecError):
        decode(data)


def test_an_element_that_is_nested_too_deeply_is_refused() -> None:
    element: list[object] = []
    for _ in range(200):
        element = [element]
    with pytest.raises(CodecError, match="nested too deeply"):
        encode(element)
    with pytest.raises(CodecError, match="damaged"):
        decode(b"l\x01\0\0\0\0\0\0\0" * 200 + b"N")
