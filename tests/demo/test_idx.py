import re

import numpy as np
import pytest

from gristmill._demo.idx import format_idx, parse_idx


def test_consecutive_arrays_are_parsed():
    first = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    second = np.array([5, 6], np.uint8)
    data = format_idx(first) + format_idx(second)

    parsed_first, end = parse_idx(data, num_axes=3)
    parsed_second, last = parse_idx(data, num_axes=1, start=end)

    assert np.array_equal(parsed_first, first)
    assert np.array_equal(parsed_second, second)
    assert last == len(data)


def test_the_array_cannot_be_written_to():
    array, _ = parse_idx(format_idx(np.array([1], np.uint8)), num_axes=1)
    assert not array.flags.writeable


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ends inside its header: expected 8 bytes, got 0"),
        (b"\0\0\x08\x01\0\0", "ends inside its header: expected 8 bytes, got 6"),
        (b"\0\0\x08\x03\0\0\0\0", "magic number 00000803, not 00000801"),
        (b"\0\0\x08\x01\0\0\0\x03ab", "declares 3 bytes of shape (3,), but 2 follow"),
    ],
)
def test_bytes_that_are_not_an_idx_array_are_refused(data: bytes, message: str):
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_idx(data, num_axes=1)
