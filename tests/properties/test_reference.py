"""The engine yields what a pipeline means, to the bit."""

from itertools import islice

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gristmill import Batch, FlatMap, IndexSampler, ReadOptions
from tests.properties.pipelines import AHEAD, INLINE, Pipeline, pipelines
from tests.properties.reference import reference
from tests.properties.runs import outcome

EXECUTORS = pytest.mark.parametrize("read_options", [INLINE, AHEAD], ids=["inline", "ahead"])


@EXECUTORS
@given(pipeline=pipelines())
@settings(deadline=None, print_blob=True, max_examples=150)
def test_elements_are_those_of_the_reference(pipeline: Pipeline, read_options: ReadOptions):
    assume(not pipeline.draws_after_a_split)
    expected = outcome(reference(pipeline))

    given_out = outcome(iter(pipeline.loader(read_options)))

    if _may_leave_the_last_error_out(pipeline, expected):
        assert given_out in (expected, expected[:-1])
    else:
        assert given_out == expected


def _may_leave_the_last_error_out(pipeline: Pipeline, expected: list[object]) -> bool:
    """Return whether what fails may belong to a remainder that is dropped, and so be never made."""
    drops = [isinstance(step, Batch) and step.drop_remainder for step in pipeline.operations]
    return expected[-1:] == ["ValueError"] and any(drops)


@EXECUTORS
@given(pipeline=pipelines(fails=False), num_elements=st.integers(0, 40), shuffle=st.booleans())
@settings(deadline=None, print_blob=True, max_examples=40)
def test_an_endless_stream_begins_like_the_reference(
    pipeline: Pipeline, num_elements: int, shuffle: bool, read_options: ReadOptions
):
    one_to_one = [step for step in pipeline.operations if not hasattr(step, "filter")]
    assume(not pipeline.draws_after_a_split)
    assume(not any(isinstance(step, FlatMap) for step in one_to_one))
    endless = IndexSampler(pipeline.num_records, shuffle=shuffle, seed=5)
    long_enough = IndexSampler(pipeline.num_records, shuffle=shuffle, seed=5, num_epochs=10_000)
    operations = [step for step in one_to_one if not hasattr(step, "condition_function")]
    name, size = pipeline.source_name, pipeline.num_records

    elements = iter(Pipeline(name, size, endless, None, operations).loader(read_options))
    expected = reference(Pipeline(name, size, long_enough, None, operations))

    assert outcome(islice(elements, num_elements)) == outcome(islice(expected, num_elements))
