import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.indices import as_indices
from gristmill._plan.mixing import PERIOD, choose, choose_run

PROPORTIONS = st.lists(st.integers(1, 1000), min_size=1, max_size=6).map(tuple)
INDICES = st.integers(-100, 10**6) | st.sampled_from(
    [2**power + by for power in (31, 32, 53, 62, 63, 64, 70) for by in (-2, -1, 0, 1)]
)


def chosen(index: int, proportions: tuple[int, ...]) -> tuple[int, int]:
    """Return the dataset of a mixed element and its index there, one at a time, as Grain does."""
    total, before, after = sum(proportions), index, index + 1
    for number, share in enumerate(proportions):
        others_before = before * (total - share) // total
        others_after = after * (total - share) // total
        if before - others_before != after - others_after:
            return number, after - others_after - 1
        total, before, after = total - share, others_before, others_after
    raise AssertionError("no dataset")


@given(proportions=PROPORTIONS, indices=st.lists(INDICES, max_size=6))
def test_elements_are_chosen_exactly_at_any_index(proportions: tuple[int, ...], indices: list[int]):
    numbers, within = choose(as_indices(indices), proportions)

    expected = [chosen(index, proportions) for index in indices]
    assert [*zip(numbers.tolist(), within.tolist(), strict=True)] == expected
    assert numbers.dtype == np.int64


@given(proportions=PROPORTIONS, start=INDICES, count=st.integers(0, 40))
def test_consecutive_elements_are_those_chosen_one_by_one(
    proportions: tuple[int, ...], start: int, count: int
):
    numbers, within = choose_run(range(start, start + count), proportions)

    expected = [chosen(index, proportions) for index in range(start, start + count)]
    assert [*zip(numbers.tolist(), within.tolist(), strict=True)] == expected


@given(
    proportions=st.lists(st.integers(1, 40), min_size=1, max_size=40).map(tuple),
    start=st.integers(0, 5000) | INDICES,
    count=st.integers(PERIOD - 2, 3 * PERIOD),
)
def test_long_runs_repeat_a_period(proportions: tuple[int, ...], start: int, count: int):
    numbers, within = choose_run(range(start, start + count), proportions)

    expected = choose(as_indices(list(range(start, start + count))), proportions)
    assert numbers.tolist() == expected[0].tolist()
    assert within.tolist() == expected[1].tolist()
