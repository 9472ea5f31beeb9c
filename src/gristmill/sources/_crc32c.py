"""CRC-32C of many records at once, which is what TFRecord files are checked by.

A checksum is linear: that of a message is the XOR of those of its bytes, each alone in a message of
zeros. So there is a table of what each value of a byte adds, for each distance from the end, and a
block of records, padded with zeros in front, is one gather and one XOR along the rows.

Gathering costs some 2 ns a byte, XOR next to nothing, hence records are made shorter first. The
checksum is a remainder modulo a polynomial P, and P divides

    x^290 + x^136 + x^113 + x^107 + x^32 + 1

so a bit 290 or more places from the end can go, if it is added 290-136, 290-113, ..., 290 places
behind itself instead. As squaring doubles all exponents (1 + 1 is 0 here, so mixed terms vanish), P
also divides this with x^8, x^16, ... for x, where whole bytes, words, ... take the place of bits.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

POLYNOMIAL = 0x82F63B78  # P without its highest power, the lowest bit first
DEGREE = 290  # of the shortest multiple of so few terms that halves a row in two steps
EXPONENTS = (136, 113, 107, 32, 0)
RUN = DEGREE - EXPONENTS[0]  # so many units at a time, as they do not fall on each other
WIDTH = 4 * DEGREE  # bytes that a table is there for
MANY = 32  # rows from which on it takes less time to fold them further than to look them up

BEGINNING = bytes.fromhex("54641f64")  # zeros and this make a register of ones, where records begin
SLICE = 2**19  # bytes to work on at a time: more would not stay in the cache


def masked_crcs(records: Sequence[bytes | memoryview]) -> NDArray[np.uint32]:
    """Give the checksum of each record, masked as TFRecord files store it.

    >>> [hex(crc) for crc in masked_crcs([b"123456789", b""])]
    ['0xc78ab0e5', '0xa282ead8']
    """
    crcs = np.empty(len(records), np.uint32)
    lengths = np.fromiter(map(len, records), np.int64, len(records))
    order = np.argsort(lengths, kind="stable")
    for picks in _alike(order, lengths[order]):
        crcs[picks] = ~_registers_of([records[pick] for pick in picks.tolist()])
    return _mask(crcs)


def masked_crcs_of_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Give the same for records of one short length, at least 4 bytes, as rows of an array.

    >>> hex(masked_crcs_of_rows(np.frombuffer(b"123456789", np.uint8)[None])[0])
    '0xc78ab0e5'
    """
    begun = rows.copy()
    begun[:, :4] ^= 0xFF
    return _mask(~_look_up(begun))


def _mask(crcs: NDArray[np.uint32]) -> NDArray[np.uint32]:
    shifted: NDArray[np.uint32] = (crcs >> np.uint32(15)) | (crcs << np.uint32(17))
    return shifted + np.uint32(0xA282EAD8)


def _alike(order: NDArray[np.int64], lengths: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Cut records, the shortest first, into groups that need little padding and memory."""
    start = 0
    while start < len(order):
        shortest = int(lengths[start])
        longest = shortest + shortest // 4 + 64
        stop = min(
            int(np.searchsorted(lengths, longest, side="right")),
            start + max(1, SLICE // longest),
        )
        yield order[start:stop]
        start = stop


def _registers_of(records: list[bytes | memoryview]) -> NDArray[np.uint32]:
    longest = len(records[-1])
    if longest > SLICE:  # then it is the only one
        return np.array([_register_of_long(records[0])], np.uint32)
    width = longest + len(BEGINNING)
    padding = bytes(longest - len(records[0])) + BEGINNING
    pieces: list[bytes | memoryview] = []
    for record in records:
        pieces += (padding[len(record) - longest - len(BEGINNING) :], record)
    rows = np.frombuffer(bytearray().join(pieces), np.uint8).reshape(len(records), width)
    return _look_up(_fold(rows))


def _register_of_long(record: bytes | memoryview) -> int:
    """Go through a record piece by piece: what is so far is added to the next 4 bytes."""
    content = np.frombuffer(record, np.uint8)
    register = np.uint32(0xFFFFFFFF)
    first = len(content) % SLICE + SLICE  # the odd one in front, as no piece may be below 4 bytes
    for stop in range(first, len(content) + 1, SLICE):
        piece = content[0 if stop == first else stop - SLICE : stop].copy()
        piece[:4] ^= np.frombuffer(register.astype("<u4").tobytes(), np.uint8)
        register = _look_up(_fold(piece[None]))[0]
    return int(register)


def _fold(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Make rows shorter, and leave their remainders what they are; what was in them is lost."""
    rows = _fold_to(WIDTH, rows)
    if len(rows) < MANY:
        return rows
    # Here the bytes of a row that move together are few: those of all rows have to be neighbours.
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
                part = rows[:, at : at + run]
                np.bitwise_xor(part, front, out=part)
            begin += run
        unit //= 2
    return rows[:, begin:]


def _look_up(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Give the remainder of each row, none longer than the table is."""
    width = rows.shape[1]
    table = _table()[WIDTH - width :].ravel()
    places: NDArray[np.int64] = 256 * np.arange(width, dtype=np.int64)
    registers = np.empty(len(rows), np.uint32)
    step = max(1, SLICE // 32 // width)  # what is gathered takes 12 times the memory
    for start in range(0, len(rows), step):
        gathered = table.take(rows[start : start + step].T + places[:, None])
        np.bitwise_xor.reduce(gathered, axis=0, out=registers[start : start + step])
    return registers


@cache
def _table() -> NDArray[np.uint32]:
    """Make the table of remainders: of each value of a byte, as many bytes before the end."""
    last = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        last = (last >> 1) ^ np.where(last & 1, np.uint32(POLYNOMIAL), np.uint32(0))
    table = np.empty((WIDTH, 256), np.uint32)
    table[-1] = last
    for place in range(WIDTH - 2, -1, -1):
        table[place] = (table[place + 1] >> 8) ^ last[table[place + 1] & 0xFF]
    return table
