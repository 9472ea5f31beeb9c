import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._data.sources.records import crc32c as _crc32c
from gristmill._data.sources.records.crc32c import SLICE_BYTES, masked_crcs, masked_crcs_of_rows

RNG = np.random.default_rng(0)


def mask(crc: int) -> int:
    """Mask a checksum as the TFRecord format defines it: rotate by 15 bits, add a constant."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def by_google(records: list[bytes]) -> list[int]:
    return [mask(google_crc32c.value(record)) for record in records]


@pytest.mark.parametrize(
    ("record", "crc"),
    [  # RFC 3720, B.4, and the usual check value
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_checksums_equal_published_ones(record: bytes, crc: int):
    assert masked_crcs([record]).tolist() == [mask(crc)]


@given(st.lists(st.binary(max_size=300), max_size=50))
def test_checksums_of_any_records_equal_those_of_google_crc32c(records: list[bytes]):
    assert masked_crcs(records).tolist() == by_google(records)


@pytest.mark.parametrize("count", [1, 31, 32, 100])
@pytest.mark.parametrize("length", [0, 1, 3, 4, 285, 286, 287, 600, 1155, 1156, 1157, 2400, 9999])
def test_rows_of_any_length_and_number_are_folded_correctly(length: int, count: int):
    records = [RNG.bytes(length) for _ in range(count)]
    assert masked_crcs(records).tolist() == by_google(records)


@pytest.mark.parametrize(
    "more",
    [-5, -4, -1, 0, 1, 5, SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 4 * SLICE_BYTES + 7],
)
def test_records_of_more_than_a_slice_are_checked(more: int):
    records = [RNG.bytes(SLICE_BYTES + more), b"short", RNG.bytes(SLICE_BYTES)]
    assert masked_crcs(records).tolist() == by_google(records)


def test_checksums_are_in_the_order_of_the_records():
    lengths = np.exp(RNG.uniform(0, 11, size=400)).astype(int)
    records = [RNG.bytes(int(length)) for length in lengths]
    assert masked_crcs(records).tolist() == by_google(records)


def test_many_records_are_checked_at_once():
    records = [RNG.bytes(100) for _ in range(20_000)]
    assert masked_crcs(records).tolist() == by_google(records)


def test_memoryviews_are_accepted():
    records = [b"abcd", RNG.bytes(2**20 + 1)]
    assert masked_crcs([memoryview(record) for record in records]).tolist() == by_google(records)


def test_the_records_are_not_changed():
    record = bytearray(RNG.bytes(2**21))
    before = bytes(record)
    masked_crcs([memoryview(record)])
    assert record == before


def test_there_may_be_no_records():
    crcs = masked_crcs([])
    assert (crcs.dtype, len(crcs)) == (np.uint32, 0)


@pytest.mark.parametrize("width", [4, 8, 300])
def test_rows_of_an_array_are_checked(width: int):
    rows = RNG.integers(0, 256, (1000, width), dtype=np.uint8)
    before = rows.copy()
    expected = by_google([row.tobytes() for row in rows])
    assert masked_crcs_of_rows(rows).tolist() == expected
    assert masked_crcs_of_rows(rows[:0]).tolist() == []
    np.testing.assert_array_equal(rows, before)


def test_the_folding_polynomial_is_a_multiple_of_the_crc_polynomial():
    # Otherwise folding would change remainders.
    polynomial = int(f"{_crc32c.POLYNOMIAL:032b}1"[::-1], 2)  # the highest power first
    multiple = sum(1 << power for power in (_crc32c.DEGREE, *_crc32c.EXPONENTS))
    while multiple.bit_length() >= polynomial.bit_length():
        multiple ^= polynomial << (multiple.bit_length() - polynomial.bit_length())
    assert multiple == 0
