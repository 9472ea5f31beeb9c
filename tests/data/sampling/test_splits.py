"""Splits: disjoint, complete, of the right sizes, with each class in its share."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sampling.splits import fold_parts, part_sizes, split_parts
from gristmill.errors import PlanError, PlanTypeError

STEADY = settings(max_examples=150, deadline=None)

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=5)


@STEADY
@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1))
def test_parts_are_disjoint_and_complete(sizes: list[int], seed: int):
    parts = split_parts(sum(sizes), sizes, seed=seed)
    keys = [part.keys(range(len(part))).tolist() for part in parts]
    assert [len(part) for part in keys] == sizes
    assert sorted(key for part in keys for key in part) == list(range(sum(sizes)))


@STEADY
@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), draw=st.data())
def test_each_part_has_its_share_of_each_class(sizes: list[int], seed: int, draw: st.DataObject):
    count = sum(sizes)
    labels = np.array(draw.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    parts = split_parts(count, sizes, seed=seed, classes=labels)
    keys = [part.keys(range(len(part))) for part in parts]
    assert sorted(np.concatenate(keys).tolist()) == list(range(count))
    for label in range(4):
        for size, mine in zip(sizes, keys, strict=True):
            share = (labels == label).sum() * size / count
            assert abs((labels[mine] == label).sum() - share) < 2


def test_a_class_that_divides_evenly_is_divided_evenly():
    labels = np.repeat([0, 1, 2], 50)[np.random.default_rng(0).permutation(150)]
    train, test = split_parts(150, [0.8, 0.2], seed=3, classes=labels)
    assert np.bincount(labels[train.keys(range(120))]).tolist() == [40, 40, 40]
    assert np.bincount(labels[test.keys(range(30))]).tolist() == [10, 10, 10]


@STEADY
@given(
    count=st.integers(2, 80),
    k=st.integers(2, 9),
    seed=st.integers(0, 99),
    is_stratified=st.booleans(),
)
def test_the_folds_partition_the_records(count: int, k: int, seed: int, is_stratified: bool):
    k = min(k, count)
    classes = np.arange(count) % 3 if is_stratified else None
    tested: list[int] = []
    for i in range(k):
        others, fold = fold_parts(count, k, i, seed=seed, classes=classes)
        own = fold.keys(range(len(fold))).tolist()
        assert sorted(own + others.keys(range(len(others))).tolist()) == list(range(count))
        tested += own
    assert sorted(tested) == list(range(count))


def test_a_record_is_found_without_computing_the_others():
    parts = split_parts(10**12, [0.9, 0.1], seed=7)
    assert len(parts[0]) == 9 * 10**11
    some = parts[1].keys(np.array([0, 10**10, 10**11 - 1]))
    assert len(set(some.tolist())) == 3
    assert some.max() < 10**12


def test_other_seeds_are_other_splits():
    one, other = (split_parts(100, [0.5, 0.5], seed=seed)[0] for seed in (0, 1))
    assert set(one.keys(range(50)).tolist()) != set(other.keys(range(50)).tolist())
    assert one != other
    assert one == pickle.loads(pickle.dumps(one))
    assert hash(one) == hash(split_parts(100, [0.5, 0.5], seed=0)[0])


def test_other_classes_are_another_part():
    labels = np.arange(40) % 2
    one, _ = split_parts(40, [20, 20], seed=0, classes=labels)
    other, _ = split_parts(40, [20, 20], seed=0, classes=labels[::-1] * (np.arange(40) > 9))
    assert "stratified" in repr(one)
    assert one != other


def test_fractions_are_rounded_to_all_records():
    assert part_sizes(7, [0.7, 0.15, 0.15]) == [5, 1, 1]
    assert part_sizes(10, [1 / 3, 1 / 3, 1 / 3]) == [3, 4, 3]
    assert part_sizes(5, np.array([0.6, 0.4])) == [3, 2]
    assert part_sizes(5, [1]) == [5]
    assert part_sizes(1, [1.0]) == [1]


@pytest.mark.parametrize(
    ("fractions", "message"),
    [
        ([0.8, 0.1], "`fractions` must add up to 1, got \\[0.8, 0.1\\], which add up to 0.9"),
        ([0.8, 0.3], "add up to 1.1"),
        ([80, 10], "which add up to 90, but there are 100 records"),
        ([], "at least one part"),
        ([1.2, -0.2], "must be above 0"),
        ([float("nan"), 0.5], "must be above 0"),
        ([0.999, 0.001], "would be empty"),
    ],
)
def test_fractions_that_do_not_fit_are_refused(fractions: list[float], message: str):
    with pytest.raises(PlanError, match=message):
        part_sizes(100, fractions)


@pytest.mark.parametrize("fractions", [0.8, "0.8", [True, False], ["a"], None])
def test_fractions_of_another_type_are_refused(fractions: object):
    with pytest.raises(PlanTypeError, match="`fractions` must be"):
        part_sizes(100, fractions)


@pytest.mark.parametrize(
    ("k", "i", "message"),
    [
        (1, 0, "`k` must be at least 2"),
        (3, 3, "`i` must be at most 2"),
        (3, -1, "`i` must be at least 0"),
        (11, 0, "`k` must be at most the number of records, 10, got 11"),
    ],
)
def test_folds_that_do_not_exist_are_refused(k: int, i: int, message: str):
    with pytest.raises(PlanError, match=message):
        fold_parts(10, k, i, seed=0)
