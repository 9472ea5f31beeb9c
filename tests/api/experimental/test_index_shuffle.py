"""One index at a time: Grain's order for any number of rounds, and that of many at once."""

import numpy as np
import pytest
from grain.experimental import index_shuffle

from gristmill._api.experimental.index_shuffle import shuffled_index
from gristmill._data.sampling.shuffle import shuffled


@pytest.mark.parametrize("rounds", [4, 6, 8, 38, 40, 70, 624])
def test_it_is_grains_order(rounds: int):
    for last, seed in ((65_000, 3), (2**18 - 70_000, 2**32 - 1), (2**34 - 9, 7)):  # short walks
        for index in (0, last // 3, last):
            expected = index_shuffle(index, max_index=last, seed=seed, rounds=rounds)
            assert shuffled_index(index, max_index=last, seed=seed, rounds=rounds) == expected


@pytest.mark.parametrize("last", [700, 30_000, 66_000])
def test_with_four_rounds_it_is_that_of_many_at_once(last: int):
    at_once = shuffled(np.arange(0, last + 1, 1 + last // 4), num_records=last + 1, seed=5)
    indices = range(0, last + 1, 1 + last // 4)
    assert [
        shuffled_index(i, max_index=last, seed=5, rounds=4) for i in indices
    ] == at_once.tolist()
