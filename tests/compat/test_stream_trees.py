"""Streams over streams over streams: Grain's elements, and states at every step."""

from typing import Any

import pytest
from hypothesis import assume, given

from tests.compat.both_sides import STEADY, assert_resumes, assert_same_stream, ours
from tests.compat.stream_trees import FAILING_TREES, TREES, Tree, build

# Grain's interleave may drop an iterator in the thread that the iterator then waits for.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

MOST = 60


@STEADY
@given(tree=FAILING_TREES)
def test_any_tree_of_streams_yields_what_grain_yields_up_to_an_error(tree: Tree):
    assume(not _repeats_an_interleave(tree))
    assert_same_stream(lambda api: build(api, tree), MOST)


@STEADY
@given(tree=TREES)
def test_any_tree_of_streams_goes_on_from_any_state(tree: Tree):
    assert_resumes(build(ours, tree), 30)


def _repeats_an_interleave(tree: Any) -> bool:
    """Grain's interleave, sent back to its start, takes for ended what had ended before.

    Three times the datasets [], [0] in a cycle of one yield four zeros there.
    """
    if not isinstance(tree, tuple):
        return False
    repeats = tree[:1] == ("repeat",) and "interleave" in repr(tree)
    return repeats or any(map(_repeats_an_interleave, tree))
