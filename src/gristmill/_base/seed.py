"""Make random generators from a seed and a position: the only module that creates randomness.

A record's generator is `Generator(Philox(key=seed + index))`, as in Grain. Creating one takes about
25 us, most of it to gather entropy that the key then replaces; setting the state of an existing one
takes 2 us. So one generator serves many records, unless user code keeps a reference to it.
"""

import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray


class PhiloxWords(TypedDict):
    """The counter and the key of a Philox generator, as 64-bit words."""

    counter: NDArray[np.uint64]
    key: NDArray[np.uint64]


class GeneratorState(TypedDict):
    """The state of a Philox bit generator, as NumPy's `Philox.state` returns it."""

    bit_generator: str
    state: PhiloxWords
    buffer: NDArray[np.uint64]
    buffer_pos: int
    has_uint32: int
    uinteger: int


_WORD = 2**64


def initial_states(keys: Iterable[int], counters: Iterable[int]) -> Iterator[GeneratorState]:
    """Yield the initial state of each record's generator: one dict, modified in place.

    Args:
        keys: For each record, its seed plus its index.
        counters: For each record, the number of a generator among those with the same key. The
            elements that a flat map makes from one record have a generator each.
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
    """Yield the initial state of the generator of each dataset element: one dict, modified.

    As in Grain's datasets, the key is made from the seed, and the index is a word of the counter,
    or two words if it exceeds 64 bits, which Grain refuses.

    >>> [int(g.integers(100)) for g in generators(indexed_states(42, [0, 1, 0]))]
    [92, 25, 92]
    """
    state: GeneratorState = np.random.Philox(seed).state
    counter_words = state["state"]["counter"]
    for index in indices:
        try:
            counter_words[3] = index
        except OverflowError:
            if index < 0:
                raise
            counter_words[2:] = divmod(index, _WORD)
            yield state
            counter_words[2] = 0
        else:
            yield state


def generators(
    states: Iterable[GeneratorState], *, used: list[GeneratorState] | None = None
) -> Iterator[np.random.Generator]:
    """Yield a generator in each of the states, valid until the next one is requested.

    The same generator is reused with another state. If user code still holds a reference to it,
    that generator is left alone and a new one is created.

    Args:
        states: The initial state of each generator.
        used: If passed, the state of each generator after use is appended to it, so that a later
            transform can continue from there.

    >>> [int(g.integers(100)) for g in generators(initial_states([42, 43, 42], [0, 0, 0]))]
    [30, 33, 30]
    """
    bits = np.random.Philox(key=0)
    generator = np.random.Generator(bits)
    unshared_counts = sys.getrefcount(generator), sys.getrefcount(bits)
    for state in states:
        bits.state = state
        yield generator
        if used is not None:
            used.append(bits.state)
        if (sys.getrefcount(generator), sys.getrefcount(bits)) != unshared_counts:
            bits = np.random.Philox(key=0)
            generator = np.random.Generator(bits)


def new_generator(key: int) -> np.random.Generator:
    """Return the generator of the record whose seed plus index is `key`.

    >>> int(new_generator(42).integers(100))
    30
    """
    return next(generators(initial_states([key], [0])))


def uniforms(seed: int, epoch: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a random number in [0, 1) for each of some numbers of an epoch.

    Each is the output of a SplitMix64 generator, which computes any of its outputs directly: a
    block takes a few NumPy operations, where a Philox generator for each number would take 2 us.

    >>> uniforms(0, 0, np.array([1, 0, 1])).round(3).tolist()
    [0.023, 0.901, 0.023]
    """
    state = np.uint64(_first_state(seed, epoch))
    values = state + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    values ^= values >> np.uint64(31)
    return (values >> np.uint64(11)).astype(np.float64) * np.float64(2.0**-53)


@lru_cache(maxsize=64)
def _first_state(seed: int, epoch: int) -> int:
    return int(np.random.SeedSequence((seed, epoch)).generate_state(1, np.uint64)[0])
