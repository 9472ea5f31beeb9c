"""Compute the CRC-32C checksums of many records at once, as TFRecord files need.

A CRC is linear: the checksum of a message is the XOR of the checksums of its bytes, each alone in a
message of zeros. So a table holds the contribution of each byte value at each distance from the
end. A block of records, padded with zeros at the front, takes one gather and one XOR along the
rows.

A gather costs about 2 ns per byte and XOR almost nothing. Therefore records are shortened first.
The checksum is a remainder modulo a polynomial P, and P divides

    x^290 + x^136 + x^113 + x^107 + x^32 + 1

so a bit that is 290 or more bits from the end can be removed, if it is XORed into the bits that are
290-136, 290-113, ..., 290 bits after it. Squaring a polynomial doubles all exponents (1 + 1 is 0
here, so the mixed terms vanish). So P also divides this polynomial in x^8, x^16, ..., and the same
works with bytes, pairs of bytes, ... instead of bits.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # P without its highest power, the lowest bit first
DEGREE = 290  # of the shortest multiple of P with so few terms that halves a row in two steps
EXPONENTS = (136, 113, 107, 32, 0)
RUN = DEGREE - EXPONENTS[0]  # units that can be moved at a time without overlap
TABLE_WIDTH = 4 * DEGREE  # bytes that the table covers
MIN_FOLDED_ROWS = 32  # from this many rows on, folding them further is faster than looking them up

PREFIX = bytes.fromhex("54641f64")  # zeros and this prefix set the register to its initial ones
SLICE_BYTES = 2**19  # bytes to work on at a time: more would not stay in the CPU cache


def masked_crcs(records: Sequence[bytes | memoryview]) -> NDArray[np.uint32]:
    """Return the checksum of each record, masked as TFRecord files store it.

    >>> [hex(crc) for crc in masked_crcs([b"123456789", b""])]
    ['0xc78ab0e5', '0xa282ead8']
    """
    crcs = np.empty(len(records), np.uint32)
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    order = np.argsort(lengths, kind="stable")
    for picks in _group_by_length(order, lengths[order]):
        crcs[picks] = ~_registers_of([records[pick] for pick in picks.tolist()])
    return _mask(crcs)


def masked_crcs_of_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the masked checksum of each row, for rows of at least 4 bytes and not many more.

    >>> hex(masked_crcs_of_rows(np.frombuffer(b"123456789", np.uint8)[None])[0])
    '0xc78ab0e5'
    """
    initialized = rows.copy()
    initialized[:, :4] ^= 0xFF
    return _mask(~_look_up(initialized))


def _mask(crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    shifted: NDArray[np.uint32] = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return shifted + np.uint32(0xA282EAD8)


def _group_by_length(
    order: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[NDArray[np.int64]]:
    """Split records, sorted by length, into groups that need little padding and memory."""
    start = 0
    while start < len(order):
        min_length = int(lengths[start])
        max_length = min_length + min_length // 4 + 64
        stop = min(
            int(np.searchsorted(lengths, max_length, side="right")),
            start + max(1, SLICE_BYTES // max_length),
        )
        yield order[start:stop]
        start = stop


def _registers_of(records: list[bytes | memoryview]) -> NDArray[np.uint32]:
    max_length = len(records[-1])
    if max_length > SLICE_BYTES:  # then it is the only record of its group
        return np.array([_register_of_long(records[0])], np.uint32)
    width = max_length + len(PREFIX)
    padding = bytes(max_length - len(records[0])) + PREFIX
    padded: list[bytes | memoryview] = []
    for record in records:
        padded += (padding[len(record) - max_length - len(PREFIX) :], record)
    rows = np.frombuffer(bytearray().join(padded), np.uint8).reshape(len(records), width)
    return _look_up(_fold(rows))


def _register_of_long(record: bytes | memoryview) -> int:
    """Process a record slice by slice, each after XORing the register into its first 4 bytes."""
    content = np.frombuffer(record, np.uint8)
    register = np.uint32(0xFFFFFFFF)
    # The remainder is part of the first slice, as no slice may be shorter than 4 bytes.
    first = len(content) % SLICE_BYTES + SLICE_BYTES
    for stop in range(first, len(content) + 1, SLICE_BYTES):
        current = content[0 if stop == first else stop - SLICE_BYTES : stop].copy()
        current[:4] ^= np.frombuffer(register.astype("<u4").tobytes(), np.uint8)
        register = _look_up(_fold(current[None]))[0]
    return int(register)


def _fold(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Shorten rows without changing their remainders. Overwrites `rows`."""
    rows = _fold_to(TABLE_WIDTH, rows)
    if len(rows) < MIN_FOLDED_ROWS:
        return rows
    # Only a few bytes of a row move together here, so those of all rows must be neighbours.
    return _fold_to(DEGREE, np.asfortranarray(rows))


def _fold_to(width: int, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    total = rows.shape[1]
    unit = 1
    while DEGREE * unit * 2 < total:
        unit *= 2
    begin = 0
    while total - begin > width:
        while (excess := total - begin - DEGREE * unit) > 0:
            run = min(RUN * unit, excess)
            front = rows[:, begin : begin + run]
            for exponent in EXPONENTS:
                at = begin + (DEGREE - exponent) * unit
                target = rows[:, at : at + run]
                np.bitwise_xor(target, front, out=target)
            begin += run
        unit //= 2
    return rows[:, begin:]


def _look_up(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Return the remainder of each row; rows must not be longer than the table."""
    width = rows.shape[1]
    table = _table()[TABLE_WIDTH - width :].ravel()
    offsets: NDArray[np.int64] = 256 * np.arange(width, dtype=np.int64)
    registers = np.empty(len(rows), np.uint32)
    step = max(1, SLICE_BYTES // 32 // width)  # the gathered values take 12 times the memory
    for start in range(0, len(rows), step):
        gathered = table.take(rows[start : start + step].T + offsets[:, None])
        np.bitwise_xor.reduce(gathered, axis=0, out=registers[start : start + step])
    return registers


@cache
def _table() -> NDArray[np.uint32]:
    """Return the remainder of each byte value in row `-n`, if it is the n-th byte from the end."""
    last = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        last = (last >> 1) ^ np.where(last & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    table = np.empty((TABLE_WIDTH, 256), np.uint32)
    table[-1] = last
    for row in range(TABLE_WIDTH - 2, -1, -1):
        table[row] = (table[row + 1] >> 8) ^ last[table[row + 1] & 0xFF]
    return table
