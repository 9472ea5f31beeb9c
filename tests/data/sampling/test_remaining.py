"""What shards have left, dealt to others, again and again: each element exactly once."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sampling.remaining import Remaining
from gristmill._data.sampling.samplers import AllShardsSampler, IndexSampler
from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill.options import ShardOptions

STEADY = settings(max_examples=300, deadline=None, derandomize=True, database=None)


def left_of(rest: Remaining) -> list[int]:
    return rest.numbers(np.arange(rest.length)).tolist()


def shares(rest: Remaining, count: int) -> list[list[int]]:
    everything = left_of(rest)
    made = [everything[index::count] for index in range(count)]
    counted = [rest.num_positions(ShardOptions(index, count)) for index in range(count)]
    assert counted == list(map(len, made))
    return made


@STEADY
@given(
    total=st.integers(0, 60),
    counts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    draw=st.data(),
)
def test_what_is_taken_and_what_is_left_are_all_of_it(
    total: int, counts: list[int], draw: st.DataObject
):
    rest, taken = Remaining((total,)), list[int]()
    for count in counts:
        parts = shares(rest, count)
        took = [draw.draw(st.integers(0, len(part))) for part in parts]
        for part, some in zip(parts, took, strict=True):
            taken += part[:some]
        rest = rest.after(took)
        assert sorted(taken + left_of(rest)) == list(range(total))
        for owner, (part, some) in enumerate(zip(parts, took, strict=True)):
            for position in range(some, len(part)):
                assert left_of(rest)[rest.index_of(owner, position)] == part[position]


@STEADY
@given(
    shortest=st.integers(0, 12),
    longer=st.integers(0, 4),
    others=st.integers(0, 4),
    extra=st.integers(1, 3),
    draw=st.data(),
)
def test_streams_of_which_the_first_are_longer(
    shortest: int, longer: int, others: int, extra: int, draw: st.DataObject
):
    lengths = (shortest + extra,) * longer + (shortest,) * others or (shortest,)
    count = len(lengths)
    everything = [s + count * k for s, length in enumerate(lengths) for k in range(length)]
    assert sorted(left_of(Remaining(lengths))) == sorted(everything)
    took = [draw.draw(st.integers(0, length)) for length in lengths]
    rest = Remaining(lengths).after(took, by_stream=True)
    kept = [s + count * k for s, length in enumerate(lengths) for k in range(took[s], length)]
    assert sorted(left_of(rest)) == sorted(kept)
    for owner, length in enumerate(lengths):
        for position in range(took[owner], length):
            number = left_of(rest)[rest.index_of(owner, position)]
            assert number == owner + count * position


def test_shards_in_step_leave_the_rest_in_order():
    rest = Remaining((ENDLESS,)).after([1000] * 8)
    assert rest.length == ENDLESS
    assert rest.numbers(np.arange(3)).tolist() == [8000, 8001, 8002]


@pytest.mark.parametrize("drops", [False, True])
def test_all_shards_of_a_sampler_are_each_of_them(drops: bool):
    sampler = IndexSampler(num_records=23, shuffle=True, seed=5, num_epochs=2)
    every = AllShardsSampler(sampler.with_shard(ShardOptions(0, 4, drops)), 4)
    for number in range(4):
        shard = sampler.with_shard(ShardOptions(number, 4, drops))
        indices = np.arange(number, 4 * every.lengths[number], 4)
        assert np.asarray(every.keys(indices)).tolist() == np.asarray(shard.keys(indices)).tolist()
        assert every[number].record_key == shard[number].record_key
    assert every.num_positions(ShardOptions(0, 1)) == sum(every.lengths)


@pytest.mark.parametrize("position", [2**31, 2**53, 2**61, 2**62, 2**63 - 1])
def test_what_remains_of_an_endless_stream_is_exact_however_far_it_was_read(position: int):
    remaining = Remaining((ENDLESS,)).after([position, position - 2, position])
    first = 3 * position

    numbers = remaining.numbers(np.arange(5)).tolist()

    assert numbers == [first - 5, first - 2, first, first + 1, first + 2]
    assert remaining.after([1, 1]).numbers(np.arange(2)).tolist() == numbers[2:4]
