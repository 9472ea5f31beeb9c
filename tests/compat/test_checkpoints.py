"""A state taken anywhere resumes exactly where Grain's does; the state is bytes."""

import json

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.compat.random_chains import Chain, chains
from tests.compat.side_by_side import (
    STEADY,
    assert_same,
    batching,
    filtering,
    flat_mapping,
    make_loader,
    mapping,
    older,
    oracle,
    ours,
    random_mapping,
    stream,
)

DRAW = random_mapping(lambda x, rng: x + rng.random())
PIPELINES = {
    "nothing": [],
    "map": [mapping(lambda x: x + 1)],
    "random map": [DRAW, DRAW],
    "filter": [filtering(lambda x: x % 3)],
    "a filter that ends the stream": [filtering(lambda x: x < 4)],
    "batch": [batching(4)],
    "whole batches": [batching(4, drop_remainder=True)],
    "random map, batch, random map": [DRAW, batching(3), DRAW],
    "filter and batch": [filtering(lambda x: x % 3), batching(2)],
    "batch of batch": [batching(2, drop_remainder=True), batching(2)],
    "flat map": [flat_mapping(lambda x: range(x % 4), max_fan_out=3)],
    "flat map and batch": [flat_mapping(lambda x: [x, -x, x], max_fan_out=3), batching(2)],
    "older operations": [
        older("MapOperation", lambda x: x + 1),
        older("FilterOperation", lambda x: x % 3),
        older("RandomMapOperation", lambda x, rng: x + rng.random()),
        older("BatchOperation", 2),
    ],
}
each_pipeline = pytest.mark.parametrize("operations", PIPELINES.values(), ids=PIPELINES.keys())


def program_of(operations):
    def program(api):
        sampler = api.IndexSampler(19, shuffle=True, num_epochs=2, seed=5)
        return make_loader(api, range(19), *operations, sampler=sampler)

    return program


def run(program, api):
    """All elements, and the state before the first and after each of them."""
    iterator = iter(program(api))
    elements, states = [], [iterator.get_state()]
    for element in iterator:
        elements.append(element)
        states.append(iterator.get_state())
    return elements, states


def resume(program, api, state, limit=None):
    """What a new loader yields from a state."""
    iterator = iter(program(api))
    iterator.set_state(state)
    return stream(iterator, limit)


@each_pipeline
def test_a_new_loader_resumes_at_every_cut_where_grains_does(operations):
    program = program_of(operations)
    grains, grains_states = run(program, oracle)
    elements, states = run(program, ours)
    assert_same(elements, grains)
    for cut, (state, grains_state) in enumerate(zip(states, grains_states, strict=True)):
        assert type(state) is bytes
        rest = resume(program, ours, state)
        assert_same(rest, elements[cut:], f"resumed at {cut}")
        assert_same(rest[:2], resume(program, oracle, grains_state, limit=2), f"Grain at {cut}")


@each_pipeline
def test_one_iterator_can_be_set_back_to_any_of_its_states(operations):
    program = program_of(operations)
    whole, states = run(program, ours)
    iterator = iter(program(ours))
    for cut in [len(whole), 0, len(whole) // 2, 1, len(whole) - 1]:
        iterator.set_state(states[cut])
        assert iterator.get_state() == states[cut]
        assert_same(stream(iterator), whole[cut:], f"set back to {cut}")


@each_pipeline
def test_reading_a_state_does_not_move_the_stream(operations):
    program = program_of(operations)
    iterator = iter(program(ours))
    elements = []
    for element in iterator:
        assert iterator.get_state() == iterator.get_state()
        elements.append(element)
    assert_same(elements, stream(program(oracle)))


def test_a_state_is_json_that_reports_the_same_on_every_run():
    def state():
        iterator = iter(program_of([DRAW, batching(3)])(ours))
        next(iterator)
        return iterator.get_state()

    assert state() == state()
    assert isinstance(json.loads(state()), dict)


def test_a_stream_without_end_resumes_far_from_its_start():
    def program(api):
        sampler = api.IndexSampler(19, shuffle=True, seed=5)
        return make_loader(api, range(19), DRAW, batching(3), sampler=sampler)

    whole = stream(program(oracle), limit=110)
    iterator = iter(program(ours))
    stream(iterator, 100)
    assert_same(resume(program, ours, iterator.get_state(), limit=10), whole[100:])


@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("shard_in_sampler", [False, True])
def test_a_sharded_stream_resumes_at_every_cut(shard_in_sampler, drop_remainder):
    def program(api):
        shard = api.ShardOptions(1, 3, drop_remainder)
        sampler = api.IndexSampler(
            11,
            shuffle=True,
            num_epochs=2,
            seed=5,
            **({"shard_options": shard} if shard_in_sampler else {}),
        )
        sharding = {} if shard_in_sampler else {"shard_options": shard}
        return make_loader(api, range(11), DRAW, sampler=sampler, **sharding)

    # Grain's elements come first; without drop_remainder ours has more (see test_sharding).
    grains, grains_states = run(program, oracle)
    elements, states = run(program, ours)
    assert_same(elements[: len(grains)], grains)
    for cut, state in enumerate(states):
        assert_same(resume(program, ours, state), elements[cut:], f"resumed at {cut}")
    for cut, state in enumerate(grains_states):
        assert_same(elements[cut : len(grains)], resume(program, oracle, state), f"Grain at {cut}")


@pytest.mark.filterwarnings("ignore:There will be no batch")
@hypothesis.settings(STEADY, max_examples=100)
@given(chain=chains(), where=st.floats(0, 1))
def test_any_chain_of_operations_resumes_anywhere(chain: Chain, where: float):
    whole = stream(chain(oracle))
    cut = round(where * len(whole))
    iterator = iter(chain(ours))
    stream(iterator, cut)
    assert_same(resume(chain, ours, iterator.get_state()), whole[cut:], f"resumed at {cut}")
