"""`ZipIterDataset`: tuples, and what is reported when the lengths differ."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import PlanError, StateError
from tests.compat.both_sides import SIDES, STEADY, assert_resumes, assert_same_stream, ours, take
from tests.compat.stream_trees import numbers, streams


def _zipped(api: Any, lengths: list[int], **options: Any) -> Any:
    parents = [numbers(api, 100 * at, 100 * at + count) for at, count in enumerate(lengths)]
    return streams(api).ZipIterDataset(parents, **options)


@STEADY
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=4), strict=st.booleans())
def test_zips_as_grain_does(lengths: list[int], strict: bool):
    assert_same_stream(lambda api: _zipped(api, lengths, strict=strict))


@STEADY
@given(lengths=st.lists(st.integers(0, 3), min_size=2, max_size=4))
def test_the_error_reports_which_is_longer_or_shorter_as_grain_does(lengths: list[int]):
    described: list[str] = []
    for api in SIDES:
        iterator = iter(_zipped(api, lengths))
        try:
            for _ in iterator:
                pass
            described.append("")
        except ValueError as error:
            described.append(str(error).split(". Make")[0])
    assert described[0] == described[1]


def test_the_complaint_comes_again_and_names_a_remedy():
    iterator = iter(_zipped(ours, [3, 2]))
    assert take(iterator)[:2] == [(0, 100), (1, 101)]
    for _ in range(2):
        with pytest.raises(PlanError, match=r"2 is shorter than argument 1.*strict=False"):
            next(iterator)


@pytest.mark.parametrize("lengths", [[5, 5], [9, 9, 9], [7, 3, 5]])
def test_goes_on_from_any_state(lengths: list[int]):
    zipped = _zipped(ours, lengths, strict=False)
    assert_resumes(zipped)
    assert_resumes(zipped.map(sum).filter(lambda x: x % 3 > 0).batch(2))


@pytest.mark.parametrize("failing", [0, 1, 2])
@pytest.mark.parametrize("at", [0, 4, 6])
def test_an_error_comes_after_what_is_before_it(failing: int, at: int):
    def program(api: Any) -> Any:
        parents = [numbers(api, 6) for _ in range(3)]
        parents[failing] = numbers(api, 6).map(lambda x: 1 // (x != at) and x)
        return streams(api).ZipIterDataset(parents)

    assert_same_stream(program)


def test_an_error_after_the_end_of_the_shortest_is_not_met():
    def program(api: Any) -> Any:
        failing = numbers(api, 9).map(lambda x: 1 // (x < 4) and x)
        return streams(api).ZipIterDataset([numbers(api, 4), failing], strict=False)

    assert_same_stream(program)


def test_nothing_to_zip_is_refused():
    for api in SIDES:
        with pytest.raises(ValueError, match=r"(?i)at least one"):
            streams(api).ZipIterDataset([])


def test_a_state_of_another_number_of_datasets_is_refused():
    state = iter(_zipped(ours, [3, 3])).get_state()
    resumed = iter(_zipped(ours, [3, 3, 3]))
    with pytest.raises(StateError):
        resumed.set_state(state)
