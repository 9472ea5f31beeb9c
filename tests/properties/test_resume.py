"""A state is a place: reading on from it yields the rest, whoever reads on and however."""

import json
from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import ReadOptions, SequentialSampler
from tests.properties.pipelines import AHEAD, INLINE, Picky, Pipeline, Unbatch, pipelines
from tests.properties.runs import outcome, outcome_with_states
from tests.properties.trees import plain

LAW = settings(deadline=None, print_blob=True, max_examples=100)
CUTS = st.lists(st.integers(0, 60), min_size=1, max_size=5)
READ_OPTIONS = st.sampled_from([INLINE, AHEAD])


@given(pipeline=pipelines(), cut=st.integers(0, 60), first=READ_OPTIONS, second=READ_OPTIONS)
@LAW
def test_resuming_at_any_point_yields_the_rest(
    pipeline: Pipeline, cut: int, first: ReadOptions, second: ReadOptions
):
    expected, states = outcome_with_states(iter(pipeline.loader(first)))
    place = cut % max(1, len(expected))

    resumed = iter(pipeline.loader(second))
    resumed.set_state(states[place])

    assert outcome(resumed) == expected[place:]


@given(pipeline=pipelines())
@LAW
def test_states_do_not_report_how_the_stream_was_run(pipeline: Pipeline):
    inline = outcome_with_states(iter(pipeline.loader(INLINE)))

    assert outcome_with_states(iter(pipeline.loader(AHEAD))) == inline


@given(pipeline=pipelines(), cuts=CUTS, read_options=READ_OPTIONS)
@LAW
def test_one_iterator_can_be_set_back_and_forth(
    pipeline: Pipeline, cuts: list[int], read_options: ReadOptions
):
    expected, states = outcome_with_states(iter(pipeline.loader()))
    iterator = iter(pipeline.loader(read_options))

    for cut in cuts:
        place = cut % max(1, len(expected))
        iterator.set_state(states[place])
        assert iterator.get_state() == states[place]
        assert outcome(iterator) == expected[place:]


@given(pipeline=pipelines(), cuts=CUTS)
@LAW
def test_many_resumes_in_a_row_yield_the_whole(pipeline: Pipeline, cuts: list[int]):
    expected = outcome(iter(pipeline.loader()))
    loader, seen = pipeline.loader(AHEAD), []
    state = iter(loader).get_state()

    for number, cut in enumerate([*cuts, len(expected)]):
        iterator = iter(loader if number % 2 else pipeline.loader(INLINE))
        iterator.set_state(state)
        seen += outcome(islice(iterator, cut))
        if seen[-1:] == ["ValueError"]:
            break
        state = iterator.get_state()

    assert seen == expected


@given(pipeline=pipelines())
@LAW
def test_a_state_is_a_little_json_that_set_state_leaves_as_it_is(pipeline: Pipeline):
    iterator = iter(pipeline.loader())
    first = iterator.get_state()

    for state in outcome_with_states(iter(pipeline.loader()))[1]:
        assert isinstance(json.loads(state), dict)
        assert abs(len(state) - len(first)) < 40  # a few digits more
        for _ in range(2):
            iterator.set_state(state)
            assert iterator.get_state() == state


@given(pipeline=pipelines(), read_options=READ_OPTIONS)
@LAW
def test_after_an_error_the_stream_stands_at_the_failed_element(
    pipeline: Pipeline, read_options: ReadOptions
):
    iterator = iter(pipeline.loader(read_options))
    seen = outcome(iterator)
    state = iterator.get_state()
    again = iter(pipeline.loader())
    again.set_state(state)
    rest = seen[-1:] if seen[-1:] == ["ValueError"] else []

    assert outcome(iterator) == rest
    assert iterator.get_state() == state
    assert outcome(again) == rest


def test_the_pieces_before_one_that_fails_are_given_first():
    operations = [Unbatch(), Picky(5)]  # of the pieces 0, 1 and 2 the second fails
    pipeline = Pipeline("list of arrays", 1, SequentialSampler(1), None, operations)

    assert outcome(iter(pipeline.loader())) == [plain(np.int64(0)), "ValueError"]
