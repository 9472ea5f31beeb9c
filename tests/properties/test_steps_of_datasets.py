"""Any step of a dataset can be computed by itself, with and without bookmarks."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import MapDataset, MultiprocessingOptions, experimental
from gristmill.errors import PlanError
from tests.properties.dataset_plans import dataset, plans

LAW = settings(deadline=None, print_blob=True, max_examples=60)


@given(
    plan=plans,
    steps=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    shard=st.sampled_from([(0, 1), (1, 2)]),
    passed=st.integers(0, 30),
)
@LAW
def test_the_element_at_a_step_is_that_of_a_full_run(
    plan: tuple[str, list[str], str], steps: list[int], shard: tuple[int, int], passed: int
):
    made = dataset(*plan, shard)
    expected = list(dataset(*plan, shard))
    for _ in islice(made, passed):
        pass

    for step in steps:
        if step < len(expected):
            np.testing.assert_equal(made.at(step), expected[step])
            with made.from_step(step) as rest:
                np.testing.assert_equal(list(rest), expected[step:])
        else:
            with pytest.raises(IndexError, match=f"no element at step {step}"):
                made.at(step)


def test_a_step_is_found_in_constant_time_where_none_must_be_counted():
    dataset = MapDataset.range(10**12).shuffle(seed=1).to_iter_dataset().map(lambda x: x).batch(8)

    assert dataset.at(10**10).shape == (8,)
    with dataset.from_step(10**10) as iterator:
        next(iterator)
        assert iterator.provenance().records[0].position == 8 * 10**10


def test_elements_that_a_map_leaves_out_are_counted_once_they_were_passed_by():
    def or_none(x: int) -> int | None:
        return x if x % 300 else None

    plain = MapDataset.range(2000).map(or_none).to_iter_dataset()
    for made in (plain, plain.batch(3), plain.map(lambda x: x)):
        expected = list(made)

        for step in (0, 10, 100, 300, len(expected) - 1):
            np.testing.assert_equal(made.at(step), expected[step])
            with made.from_step(step) as rest:
                np.testing.assert_equal(list(rest), expected[step:])
        with pytest.raises(IndexError, match=f"no element at step {len(expected)}"):
            made.at(len(expected))


def test_iterators_that_were_moved_do_not_mislead_bookmarks():
    made = MapDataset.range(20_000).map(lambda x: x).to_iter_dataset()
    states = [made.from_step(7000).get_state()]
    for move in (
        lambda one: experimental.set_next_index(one, 9000),
        lambda one: one.set_state(states[0]),
        lambda one: one.exclude(records=range(1, 500)),
    ):
        iterator = iter(made)
        move(iterator)
        for _ in islice(iterator, 2000):
            pass

    assert [made.at(step) for step in (0, 100, 1000, 10_000)] == [0, 100, 1000, 10_000]


def test_an_element_beyond_those_passed_by_is_found_at_once():
    seen: list[int] = []
    dataset = MapDataset.range(10**9).map(lambda x: seen.append(x) or x).to_iter_dataset()
    for _ in islice(dataset, 1000):
        pass
    seen.clear()

    assert dataset.at(10**8) == 10**8
    assert len(seen) < 10_000


@pytest.mark.parametrize("num_bookmarks", [0, 1, 5, 100])
def test_as_many_bookmarks_are_kept_as_the_options_state(num_bookmarks: int):
    plain = MapDataset.range(60_000).to_iter_dataset().filter(lambda x: x % 3 > 0)
    options = experimental.DatasetOptions(num_bookmarks=num_bookmarks)
    for made in (experimental.WithOptionsIterDataset(plain, options).batch(4), plain.batch(4)):
        for _ in made:
            pass
        bookmarks: Any = vars(made)["_kept_bookmarks"]
        kept = len(bookmarks)
        assert kept <= 64 if bookmarks.max_count == 64 else kept <= num_bookmarks
        assert kept > 0 or num_bookmarks == 0
        assert made.at(8000).tolist() == plain.batch(4).at(8000).tolist()
    with pytest.raises(PlanError, match="`num_bookmarks` must be at least 0"):
        experimental.DatasetOptions(num_bookmarks=-1)


def test_workers_compute_the_same_step():
    plain = MapDataset.range(200).to_iter_dataset().filter(lambda x: x % 3 > 0).batch(4)
    workers = plain.mp_prefetch(MultiprocessingOptions(num_workers=1))

    assert workers.at(20).tolist() == plain.at(20).tolist()
    with workers.from_step(20) as iterator:
        assert next(iterator).tolist() == plain.at(20).tolist()


def test_a_step_below_zero_is_an_error():
    with pytest.raises(PlanError, match="`step`"):
        MapDataset.range(9).to_iter_dataset().at(-1)
