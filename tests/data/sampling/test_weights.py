"""Weighted draws: the right frequencies, a function of seed and position alone."""

import pickle

import numpy as np
import pytest

from gristmill._base.seed import uniforms
from gristmill._data.sampling.weights import WeightedDraws, balanced_weights
from gristmill.errors import PlanError, PlanTypeError


def drawn(draws: WeightedDraws, epoch: int = 0) -> np.ndarray:
    count = draws.num_samples
    return draws.keys(np.full(count, epoch), np.arange(count))


def test_records_are_drawn_in_proportion_to_their_weights():
    weights = np.array([1.0, 0.0, 3.0, 6.0])
    keys = drawn(WeightedDraws.of(weights, num_samples=100_000, seed=5))
    frequencies = np.bincount(keys, minlength=4) / 100_000
    assert frequencies[1] == 0
    assert np.abs(frequencies - weights / 10).max() < 0.005


def test_a_draw_depends_on_the_seed_and_its_position_alone():
    draws = WeightedDraws.of(np.arange(50.0), num_samples=200, seed=5)
    everything = drawn(draws)
    some = np.array([7, 199, 7, 0])
    assert draws.keys(np.zeros(4, int), some).tolist() == everything[some].tolist()
    assert drawn(draws, epoch=1).tolist() != everything.tolist()
    again = pickle.loads(pickle.dumps(draws))
    assert drawn(again).tolist() == everything.tolist()
    other = WeightedDraws.of(np.arange(50.0), num_samples=200, seed=6)
    assert drawn(other).tolist() != everything.tolist()


@pytest.mark.parametrize("replacement", [True, False])
def test_draws_of_several_epochs_are_those_of_each(replacement: bool):
    draws = WeightedDraws.of(np.arange(1.0, 9.0), num_samples=6, replacement=replacement, seed=1)
    epochs, offsets = np.divmod(np.arange(30), 6)
    each = np.concatenate([drawn(draws, epoch) for epoch in range(5)])
    assert draws.keys(epochs, offsets).tolist() == each.tolist()
    far = np.array([10**30, 3], dtype=object)
    assert draws.keys(far, np.array([2, 1])).tolist() == [
        draws.epoch_keys(10**30, np.array([2]))[0],
        draws.epoch_keys(3, np.array([1]))[0],
    ]


def test_without_replacement_each_record_is_drawn_once():
    draws = WeightedDraws.of(np.array([1.0, 0.0, 2.0, 3.0]), replacement=False, seed=0)
    assert draws.num_samples == 3
    for epoch in range(20):
        assert sorted(drawn(draws, epoch).tolist()) == [0, 2, 3]


def test_without_replacement_draws_follow_the_weights_one_after_the_other():
    weights = np.array([1.0, 2.0, 7.0])
    draws = WeightedDraws.of(weights, num_samples=2, replacement=False, seed=0)
    pairs = np.array([drawn(draws, epoch) for epoch in range(20_000)])
    first = np.bincount(pairs[:, 0]) / len(pairs)
    assert np.abs(first - weights / 10).max() < 0.01
    second = np.bincount(pairs[pairs[:, 0] == 2][:, 1], minlength=3)
    assert np.abs(second / second.sum() - [1 / 3, 2 / 3, 0]).max() < 0.02


def test_weights_of_any_size_can_be_drawn_from():
    for scale in (1e-308, 1e-320, 1e307):
        keys = drawn(WeightedDraws.of(np.array([1.0, 3.0, 0.0]) * scale, num_samples=999, seed=0))
        assert 150 < np.bincount(keys)[0] < 350
    assert set(drawn(WeightedDraws.of(np.ones(1), num_samples=9, seed=0)).tolist()) == {0}


def test_the_last_record_is_never_missed_by_rounding():
    draws = WeightedDraws.of(np.array([0.1] * 7 + [0.0]), num_samples=3, seed=0)
    assert draws.table.find(np.array([1 - 2**-53, 0.0])).tolist() == [6, 0]


def test_classes_are_balanced():
    labels = np.repeat(["cat", "dog", "owl"], [900, 90, 10])
    keys = drawn(WeightedDraws.of(balanced_weights(labels), num_samples=30_000, seed=1))
    _, counts = np.unique(labels[keys], return_counts=True)
    assert np.abs(counts / 10_000 - 1).max() < 0.04


def test_uniform_numbers_are_uniform_and_uncorrelated():
    numbers = uniforms(3, 0, np.arange(100_000))
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, bins=100, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 150  # chi-squared, 99 degrees of freedom
    for other in (uniforms(4, 0, np.arange(100_000)), uniforms(3, 1, np.arange(100_000))):
        assert abs(np.corrcoef(numbers, other)[0, 1]) < 0.02
    assert abs(np.corrcoef(numbers[1:], numbers[:-1])[0, 1]) < 0.02


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, -1.0], "finite and at least 0, got -1.0 for record 1"),
        ([np.nan], "got nan for record 0"),
        ([np.inf, 1], "got inf for record 0"),
        ([0.0, 0.0], "got only zeros"),
        ([], "at least one record"),
        (["a"], "`weights` must be numbers"),
    ],
)
def test_weights_that_cannot_be_drawn_from_are_refused(weights: list[float], message: str):
    with pytest.raises(PlanError, match=message):
        WeightedDraws.of(np.array(weights), seed=0)


def test_arguments_are_checked():
    with pytest.raises(PlanError, match="`num_samples` must be at most 2 without replacement"):
        WeightedDraws.of(np.array([1.0, 0, 1]), num_samples=3, replacement=False, seed=0)
    with pytest.raises(PlanError, match="`num_samples` must be at least 1"):
        WeightedDraws.of(np.ones(3), num_samples=0, seed=0)
    with pytest.raises(PlanTypeError, match="`seed` must be an integer"):
        WeightedDraws.of(np.ones(3), seed=None)
