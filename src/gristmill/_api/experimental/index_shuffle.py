"""The keyed permutation that shuffles, for one index and any number of rounds.

`gristmill._data.sampling.shuffle.shuffled` computes it with 4 rounds for many indices at once.
Datasets use only that, so this module need not be fast.
"""

from functools import lru_cache

_MIN_BITS = 16
_32_BITS = 0xFFFFFFFF


def shuffled_index(index: int, *, max_index: int, seed: int, rounds: int) -> int:
    """Return the position of `index` in a permutation of 0 to `max_index`.

    >>> [shuffled_index(index, max_index=4, seed=42, rounds=4) for index in range(5)]
    [4, 1, 2, 3, 0]
    """
    bits = max(_MIN_BITS, max_index.bit_length() + max_index.bit_length() % 2)
    keys = _round_keys(seed, rounds)
    value = _encipher(index, bits // 2, keys)
    while value > max_index:
        value = _encipher(value, bits // 2, keys)
    return value


def _encipher(value: int, width: int, keys: tuple[int, ...]) -> int:
    mask = 2**width - 1
    left, right = value >> width, value & mask
    for key in keys:  # an even number of rounds, so the halves end up where they began
        left, right = right, left ^ _mix(right, width, mask) ^ (key & mask)
    return left << width | right


def _mix(word: int, width: int, mask: int) -> int:
    one, two, eight = (
        (word << by % width | word >> (width - by % width)) & mask for by in (1, 2, 8)
    )
    return (one & eight) ^ two


@lru_cache(maxsize=64)
def _round_keys(seed: int, count: int) -> tuple[int, ...]:
    """Return the numbers that C++'s `std::seed_seq{seed}` generates (rand.util.seedseq)."""
    keys = [0x8B8B8B8B] * count
    gap = next(
        (t for n, t in ((623, 11), (68, 7), (39, 5), (7, 3)) if count >= n), (count - 1) // 2
    )
    near = (count - gap) // 2
    far = near + gap
    for k in range(count):
        mixed = keys[k] ^ keys[(k + near) % count] ^ keys[k - 1]
        first = 1664525 * (mixed ^ mixed >> 27) & _32_BITS
        second = first + (1 if k == 0 else k + seed if k == 1 else k) & _32_BITS
        keys[(k + near) % count] = keys[(k + near) % count] + first & _32_BITS
        keys[(k + far) % count] = keys[(k + far) % count] + second & _32_BITS
        keys[k] = second
    for k in range(count):
        mixed = keys[k] + keys[(k + near) % count] + keys[k - 1] & _32_BITS
        third = 1566083941 * (mixed ^ mixed >> 27) & _32_BITS
        fourth = third - k & _32_BITS
        keys[(k + near) % count] ^= third
        keys[(k + far) % count] ^= fourth
        keys[k] = fourth
    return tuple(keys)
