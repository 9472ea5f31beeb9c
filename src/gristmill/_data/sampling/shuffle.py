"""The keyed permutation behind shuffling: any part of it can be computed, without storing it.

The order is Grain's. Positions are encrypted by a Feistel network on an even number of bits; a
result past the last record is encrypted again until it falls inside (cycle walking), which makes
the cipher a permutation of exactly the existing records. Grain uses one bit too few for 2^k + 1
records with an even k of 16 or more, so that one record comes twice and another never; this module
uses the bits that the last record needs. (Grain computes the bits as a logarithm in floating point,
so that above 2^48, a few larger numbers of records are affected, too.)
"""

from functools import lru_cache

import numpy as np

from gristmill.types import AnyArray, Indices

_MIN_BITS = 16
_32_BITS = 0xFFFFFFFF

Values = AnyArray


def shuffled(positions: Indices, *, num_records: int, seed: int) -> Indices:
    """Return the record at each of some positions of a shuffled epoch.

    >>> shuffled(np.arange(5), num_records=5, seed=42).tolist()
    [4, 1, 2, 3, 0]
    """
    bits = _num_bits(num_records - 1)
    if bits == _MIN_BITS:
        return _small_epoch(num_records, seed)[positions].astype(np.int64)
    word = np.uint32 if bits <= 32 else np.uint64
    return _walk(positions.astype(word), num_records - 1, seed).astype(np.int64)


def unshuffled(records: Indices, *, num_records: int, seed: int) -> Indices:
    """Return the position of each of some records in a shuffled epoch: the inverse of `shuffled`.

    >>> unshuffled(shuffled(np.arange(5), num_records=5, seed=42), num_records=5, seed=42).tolist()
    [0, 1, 2, 3, 4]
    """
    bits = _num_bits(num_records - 1)
    if bits == _MIN_BITS:
        return np.argsort(_small_epoch(num_records, seed))[records].astype(np.int64)
    word = np.uint32 if bits <= 32 else np.uint64
    walked = _walk(records.astype(word), num_records - 1, seed, decrypts=True)
    return walked.astype(np.int64)


def _num_bits(last: int) -> int:
    """Return the width of the cipher: even, and enough for the last record."""
    return max(_MIN_BITS, last.bit_length() + last.bit_length() % 2)


@lru_cache(maxsize=4)
def _small_epoch(num_records: int, seed: int) -> Values:
    """Compute a whole epoch of few records.

    Cycle walking for each of them would take long: 13,000 steps on average for 5 records, because
    the cipher has 65,536 values. Halving the range repeatedly, and each time walking past the
    values that are now outside, takes only a few steps.
    """
    epoch = _encrypt(np.arange(1 << _MIN_BITS, dtype=np.uint32), _MIN_BITS, seed)
    while len(epoch) > num_records:
        size = max(num_records, len(epoch) // 2)
        inner = epoch[:size]
        outside = np.flatnonzero(inner >= size)
        while len(outside):  # values are read from beyond `inner`, so writing to it is safe
            inner[outside] = epoch[inner[outside]]
            outside = outside[inner[outside] >= size]
        epoch = inner
    epoch = epoch.copy()
    epoch.flags.writeable = False
    return epoch


def _walk(positions: Values, last: int, seed: int, *, decrypts: bool = False) -> Values:
    bits = _num_bits(last)
    values = _encrypt(positions, bits, seed, decrypts=decrypts)
    rows = np.flatnonzero(values > last)
    outside = values[rows]
    while len(rows):
        outside = _encrypt(outside, bits, seed, decrypts=decrypts)
        values[rows] = outside
        still = np.flatnonzero(outside > last)
        rows, outside = rows[still], outside[still]
    return values


def _encrypt(values: Values, bits: int, seed: int, *, decrypts: bool = False) -> Values:
    width, word = bits // 2, values.dtype.type
    mask = word(2**width - 1)
    left, right = values >> word(width), values & mask
    double, rotated = np.empty_like(left), np.empty_like(left)
    # Rotations by 1, 8 and 2 are substrings of a word that is repeated twice.
    twice = word(2**width + 1)
    by_1, by_8, by_2 = (word(width - by % width) for by in (1, 8, 2))
    sides = ((left, right), (right, left)) * 2
    rounds = list(zip(sides, _round_keys(seed), strict=True))
    # A round is its own inverse, so that the rounds in reverse order decrypt.
    for (target, other), key in reversed(rounds) if decrypts else rounds:
        np.multiply(other, twice, out=double)
        np.right_shift(double, by_1, out=rotated)
        rotated &= double >> by_8
        double >>= by_2
        rotated ^= double
        rotated &= mask
        rotated ^= word(key & int(mask))
        target ^= rotated
    left <<= word(width)
    left |= right
    return left


@lru_cache(maxsize=1024)
def _round_keys(seed: int) -> tuple[int, ...]:
    """Generate four words from a seed like `std::seed_seq{seed}` of C++ (rand.util.seedseq).

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
