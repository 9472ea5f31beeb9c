"""The keyed permutation that shuffles: any part of it at once, and no memory for the whole.

It is Grain's order. Positions are enciphered by a Feistel network on an even number of bits; a
result past the last record is enciphered again until it falls inside (cycle walking), which makes
the cipher a permutation of exactly the records there are. Where Grain takes one bit too few
(2^k + 1 records for an even k of 16 or more), so that one record comes twice and another never,
this takes the bits that the last record needs.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill.types import Indices

_SMALLEST_BITS = 16
_LARGEST_TABLE_BITS = 20
"""A table of a million values takes 4 MB, and some 20 ms to make."""
_PART = 1 << _SMALLEST_BITS
_WORTH_A_TABLE = 64
"""A table is made for who asks for at least this part of an epoch at once."""
_32_BITS = 0xFFFFFFFF

Words = NDArray[Any]


def shuffled(positions: Indices, *, num_records: int, seed: int) -> Indices:
    """Give the record at each of the positions of one shuffled epoch.

    >>> shuffled(np.arange(5), num_records=5, seed=42).tolist()
    [4, 1, 2, 3, 0]
    """
    bits = _num_bits(num_records - 1)
    if bits == _SMALLEST_BITS or (
        bits <= _LARGEST_TABLE_BITS and len(positions) * _WORTH_A_TABLE >= num_records
    ):
        return _epoch(num_records, seed)[positions].astype(np.int64)
    return _walk(positions, num_records - 1, seed)


def _num_bits(last: int) -> int:
    """Give the width of the cipher: even, and enough for the last record."""
    return max(_SMALLEST_BITS, last.bit_length() + last.bit_length() % 2)


@lru_cache(maxsize=4)
def _epoch(num_records: int, seed: int) -> Words:
    """Make a whole epoch.

    With few records a walk is long (13,000 steps on average for 5, which share a cipher of 65,536
    values). Halving the range again and again, each time walking past what has just fallen out of
    it, takes a few steps in all; with many records it is a few times as fast as walking for each.
    """
    bits = _num_bits(num_records - 1)
    epoch = np.empty(1 << bits, dtype=np.uint32)
    for first in range(0, len(epoch), _PART):  # in parts, for fresh memory is slow
        epoch[first : first + _PART] = _encipher(np.arange(first, first + _PART), bits, seed)
    while len(epoch) > num_records:
        size = max(num_records, len(epoch) // 2)
        inner = epoch[:size]
        outside = np.flatnonzero(inner >= size)
        while len(outside):  # what is looked up lies beyond `inner`, so that can be written to
            inner[outside] = epoch[inner[outside]]
            outside = outside[inner[outside] >= size]
        epoch = inner
    epoch = epoch.copy()
    epoch.flags.writeable = False
    return epoch


def _walk(positions: Indices, last: int, seed: int) -> Indices:
    bits = _num_bits(last)
    values = _encipher(positions, bits, seed)
    outside = np.flatnonzero(values > last)
    while len(outside):
        values[outside] = _encipher(values[outside], bits, seed)
        outside = outside[values[outside] > last]
    return values


def _encipher(values: Indices, bits: int, seed: int) -> Indices:
    width = bits // 2
    dtype = next(t for t in (np.uint8, np.uint16, np.uint32) if width <= t().itemsize * 8)
    mask = dtype(2**width - 1)
    right = (values & int(mask)).astype(dtype)
    left = (values >> width).astype(dtype)
    k0, k1, k2, k3 = (dtype(key & int(mask)) for key in _round_keys(seed))
    left ^= _mix(right, width, mask) ^ k0
    right ^= _mix(left, width, mask) ^ k1
    left ^= _mix(right, width, mask) ^ k2
    right ^= _mix(left, width, mask) ^ k3
    return (left.astype(np.int64) << width) | right


def _mix(word: Words, width: int, mask: Any) -> Words:
    return (_rotate(word, 1, width, mask) & _rotate(word, 8, width, mask)) ^ _rotate(
        word, 2, width, mask
    )


def _rotate(word: Words, by: int, width: int, mask: Any) -> Words:
    by %= width
    if by == 0:
        return word
    return ((word << by) | (word >> (width - by))) & mask


@lru_cache(maxsize=1024)
def _round_keys(seed: int) -> tuple[int, ...]:
    """Make four words from a seed as C++'s `std::seed_seq{seed}.generate` does (rand.util.seedseq).

    With n = 4 words and one seed, the standard's s, t, p, q and m are 1, 1, 1, 2 and 4.
    """
    n = 4
    words = [0x8B8B8B8B] * n
    for k in range(n):
        here, near, far = k, (k + 1) % n, (k + 2) % n
        mixed = words[here] ^ words[near] ^ words[k - 1]
        first = 1664525 * (mixed ^ mixed >> 27) & _32_BITS
        second = first + (1 if k == 0 else k + seed if k == 1 else k) & _32_BITS
        words[near] = words[near] + first & _32_BITS
        words[far] = words[far] + second & _32_BITS
        words[here] = second
    for k in range(n):
        here, near, far = k, (k + 1) % n, (k + 2) % n
        mixed = words[here] + words[near] + words[k - 1] & _32_BITS
        third = 1566083941 * (mixed ^ mixed >> 27) & _32_BITS
        fourth = third - k & _32_BITS
        words[near] ^= third
        words[far] ^= fourth
        words[here] = fourth
    return tuple(words)
