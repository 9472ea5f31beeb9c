import time

import numpy as np
import pytest

from gristmill._data.sampling.shuffle import shuffled


@pytest.mark.parametrize(
    "num_records", [1, 2, 3, 5, 100, 4097, 65_535, 65_536, 65_537, 100_003, 262_145]
)
@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_an_epoch_holds_every_record_exactly_once(num_records: int, seed: int):
    epoch = shuffled(np.arange(num_records), num_records=num_records, seed=seed)
    assert np.array_equal(np.sort(epoch), np.arange(num_records))


@pytest.mark.parametrize("num_records", [10, 1000, 65_537, 100_003])
def test_any_part_of_an_epoch_is_that_part_of_the_whole(num_records: int):
    whole = shuffled(np.arange(num_records), num_records=num_records, seed=7)
    picks = np.array([num_records - 1, 0, num_records // 2, 0])
    assert np.array_equal(shuffled(picks, num_records=num_records, seed=7), whole[picks])


def test_another_seed_is_another_order():
    orders = {tuple(shuffled(np.arange(50), num_records=50, seed=seed)) for seed in range(20)}
    assert len(orders) == 20


def test_the_order_handed_out_is_the_callers_own():
    shuffled(np.arange(10), num_records=10, seed=3)[:] = -1
    assert sorted(shuffled(np.arange(10), num_records=10, seed=3)) == list(range(10))


def test_a_billion_records_cost_no_memory_and_little_time():
    start = time.perf_counter()
    keys = shuffled(np.arange(10**9 - 128, 10**9), num_records=10**9, seed=1)
    assert time.perf_counter() - start < 1
    assert len(set(keys.tolist())) == 128
    assert keys.min() >= 0
    assert keys.max() < 10**9
