"""Generators depend on the seed and the index alone, and are reused only if it is safe."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.seed import (
    GeneratorState,
    generators,
    indexed_states,
    initial_states,
    new_generator,
)


@given(key=st.integers(0, 2**128 - 1))
def test_a_generator_is_that_of_numpy_with_the_key(key: int):
    expected = np.random.Generator(np.random.Philox(key=key))

    assert new_generator(key).integers(2**62, size=5).tolist() == (
        expected.integers(2**62, size=5).tolist()
    )


@given(seed=st.integers(0, 2**32 - 1), indices=st.lists(st.integers(0, 2**40), max_size=5))
def test_indexed_generators_are_those_of_numpy_with_the_counter(seed: int, indices: list[int]):
    for index, generator in zip(indices, generators(indexed_states(seed, indices)), strict=True):
        bits = np.random.Philox(seed)
        state = bits.state
        state["state"]["counter"][3] = index
        bits.state = state
        expected = np.random.Generator(bits)
        assert generator.random(3).tolist() == expected.random(3).tolist()


def test_counters_distinguish_generators_with_the_same_key():
    first, second = [g.random() for g in generators(initial_states([7, 7], [0, 1]))]

    assert first != second


def test_a_generator_is_reused_if_no_reference_to_it_is_held():
    # `map` drops its reference before it requests the next generator; a `for` loop does not.
    identities = set(map(id, generators(initial_states(range(5), [0] * 5))))

    assert len(identities) == 1


def test_a_generator_that_is_held_keeps_its_stream():
    held = list(generators(initial_states(range(5), [0] * 5)))

    assert len({id(generator) for generator in held}) == 5
    assert [generator.random() for generator in held] == [
        new_generator(key).random() for key in range(5)
    ]


def test_a_held_bit_generator_keeps_its_stream():
    held = [generator.bit_generator for generator in generators(initial_states([1, 2], [0, 0]))]

    assert np.random.Generator(held[0]).random() == new_generator(1).random()


def test_the_state_after_use_continues_the_stream():
    used: list[GeneratorState] = []
    drawn = [g.random() for g in generators(initial_states([1, 2], [0, 0]), used=used)]
    continued = [g.random() for g in generators(used)]

    for key, first, second in zip([1, 2], drawn, continued, strict=True):
        assert new_generator(key).random(2).tolist() == [first, second]


def test_an_index_above_64_bits_has_a_generator_of_its_own_and_does_not_change_the_next():
    indices = [1, 2**64 + 1, 2**65 + 1, 1, 2**64 - 1]
    draws = [rng.integers(2**62) for rng in generators(indexed_states(7, indices))]

    assert draws[0] == draws[3]
    assert len(set(draws)) == 4


def test_a_negative_index_is_refused_as_in_grain():
    with pytest.raises(OverflowError):
        list(generators(indexed_states(7, [-1])))
