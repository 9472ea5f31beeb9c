"""From (seed, position) to a generator: the only place where randomness is made.

A record's generator is `Generator(Philox(key=seed + index))`, as in Grain. Making one takes about
25 us, most of it for entropy that the key then replaces; setting the state of one that exists
takes 2 us. So one generator serves many records, unless somebody keeps it.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np

GeneratorState: TypeAlias = dict[str, Any]
"""What NumPy calls the state of a bit generator."""

_WORD = 2**64


def first_states(keys: Iterable[int], counters: Iterable[int]) -> Iterator[GeneratorState]:
    """Give the state each record's generator starts in: the same dict, changed in place.

    `key` is seed + index of the record. A record split into pieces has a generator for each of
    them: `counter` tells them apart.
    """
    key_words, counter_words = np.zeros(2, np.uint64), np.zeros(4, np.uint64)
    state: GeneratorState = {
        "bit_generator": "Philox",
        "state": {"counter": counter_words, "key": key_words},
        "buffer": np.zeros(4, np.uint64),
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    for key, counter in zip(keys, counters, strict=True):
        key_words[0], key_words[1] = key % _WORD, key // _WORD
        counter_words[3] = counter % _WORD
        yield state


def indexed_states(seed: int, indices: Iterable[int]) -> Iterator[GeneratorState]:
    """Give the state of the generator of each element of a dataset: the same dict, changed.

    As in Grain, the seed makes the key, and the index is a word of the counter.

    >>> [int(g.integers(100)) for g in generators(indexed_states(42, [0, 1, 0]))]
    [92, 25, 92]
    """
    bits: Any = np.random.Philox(seed)
    state: GeneratorState = bits.state
    counter_words = state["state"]["counter"]
    for index in indices:
        counter_words[3] = index
        yield state


def generators(
    states: Iterable[GeneratorState], *, used: list[GeneratorState] | None = None
) -> Iterator[np.random.Generator]:
    """Give a generator in each of the states in turn, valid until the next is asked for.

    A generator that somebody still holds by then is left to them, and a new one made. Each one's
    state after use is added to `used`, for a later step to go on from.

    >>> [int(g.integers(100)) for g in generators(first_states([42, 43, 42], [0, 0, 0]))]
    [30, 33, 30]
    """
    bits: Any = np.random.Philox(key=0)
    generator = np.random.Generator(bits)
    nobody = sys.getrefcount(generator), sys.getrefcount(bits)
    for state in states:
        bits.state = state
        yield generator
        if used is not None:
            used.append(dict(bits.state))
        if (sys.getrefcount(generator), sys.getrefcount(bits)) != nobody:
            bits = np.random.Philox(key=0)
            generator = np.random.Generator(bits)


def new_generator(key: int) -> np.random.Generator:
    """Make the generator of the record whose seed and index add up to `key`.

    >>> int(new_generator(42).integers(100))
    30
    """
    return next(generators(first_states([key], [0])))
