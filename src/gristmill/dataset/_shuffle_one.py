"""The keyed permutation that shuffles, one index at a time and with any number of rounds.

`order.shuffled` is this with 4 rounds, many at once. Datasets shuffle with nothing else, so that
what is here need not be fast.
"""

from functools import lru_cache

_SMALLEST_BITS = 16
_32_BITS = 0xFFFFFFFF


def shuffled_index(index: int, *, last: int, seed: int, rounds: int) -> int:
    """Give where an index of 0 to `last` goes.

    >>> [shuffled_index(index, last=4, seed=42, rounds=4) for index in range(5)]
    [4, 1, 2, 3, 0]
    """
    bits = max(_SMALLEST_BITS, last.bit_length() + last.bit_length() % 2)
    keys = _round_keys(seed, rounds)
    value = _encipher(index, bits // 2, keys)
    while value > last:
        value = _encipher(value, bits // 2, keys)
    return value


def _encipher(value: int, width: int, keys: tuple[int, ...]) -> int:
    mask = 2**width - 1
    left, right = value >> width, value & mask
    for key in keys:  # an even number, so that the halves end where they began
        left, right = right, left ^ _mix(right, width, mask) ^ (key & mask)
    return left << width | right


def _mix(word: int, width: int, mask: int) -> int:
    one, two, eight = (
        (word << by % width | word >> (width - by % width)) & mask for by in (1, 2, 8)
    )
    return (one & eight) ^ two


@lru_cache(maxsize=64)
def _round_keys(seed: int, count: int) -> tuple[int, ...]:
    """Make words from a seed as C++'s `std::seed_seq{seed}.generate` does (rand.util.seedseq)."""
    words = [0x8B8B8B8B] * count
    gap = next(
        (t for n, t in ((623, 11), (68, 7), (39, 5), (7, 3)) if count >= n), (count - 1) // 2
    )
    near = (count - gap) // 2
    far = near + gap
    for k in range(count):
        mixed = words[k] ^ words[(k + near) % count] ^ words[k - 1]
        first = 1664525 * (mixed ^ mixed >> 27) & _32_BITS
        second = first + (1 if k == 0 else k + seed if k == 1 else k) & _32_BITS
        words[(k + near) % count] = words[(k + near) % count] + first & _32_BITS
        words[(k + far) % count] = words[(k + far) % count] + second & _32_BITS
        words[k] = second
    for k in range(count):
        mixed = words[k] + words[(k + near) % count] + words[k - 1] & _32_BITS
        third = 1566083941 * (mixed ^ mixed >> 27) & _32_BITS
        fourth = third - k & _32_BITS
        words[(k + near) % count] ^= third
        words[(k + far) % count] ^= fourth
        words[k] = fourth
    return tuple(words)
