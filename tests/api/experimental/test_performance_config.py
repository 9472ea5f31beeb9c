"""Workers and buffers are chosen within the budget."""

import os
import time
from typing import Any

import numpy as np
import pytest

from gristmill._api.experimental.performance_config import choose_workers
from gristmill._engine.tuning.policy import TuningPolicy
from gristmill.errors import PlanError
from tests.compat.both_sides import ours

pick = ours.experimental.pick_performance_config


def large(_: int) -> Any:
    return np.zeros(2**20, np.uint8)


def slow_and_large(_: int) -> Any:
    end = time.perf_counter() + 0.002
    while time.perf_counter() < end:
        pass
    return np.zeros(2**20, np.uint8)


def choose(function: Any, **options: Any) -> tuple[int, int]:
    ds = ours.MapDataset.range(20).map(function).to_iter_dataset()
    limits = {"ram_budget_mb": 100, "max_workers": 1, "max_buffer_size": 50, **options}
    config = pick(ds, **limits)
    return config.multiprocessing_options.num_workers, config.read_options.prefetch_buffer_size


def test_the_buffer_fits_into_the_budget():
    assert choose(large, ram_budget_mb=10)[1] == 10
    assert choose(large, ram_budget_mb=1000)[1] == 50
    assert choose(large, ram_budget_mb=None, max_buffer_size=None)[1] == 1000


def test_small_elements_are_read_ahead_as_far_as_allowed():
    assert choose(lambda x: x)[1] == 50


def test_workers_are_not_for_what_takes_less_than_sending_it():
    policy = TuningPolicy(min_worker_s=0.5)
    counts = [choose_workers(s, 8, budget=None, limit=4, policy=policy) for s in (0.4, 0.6)]
    assert counts == [0, 4]


def test_workers_are_for_what_takes_time_and_fit_too():
    assert choose(slow_and_large)[0] == 1
    assert choose(slow_and_large, ram_budget_mb=0)[0] == 0
    assert choose(slow_and_large, max_workers=None)[0] <= (os.cpu_count() or 1)
    assert choose(slow_and_large, max_workers=0)[0] == 0


def test_sources_that_are_read_side_by_side_share_the_budget():
    ds = ours.MapDataset.range(20).map(large).to_iter_dataset()
    both = ours.IterDataset.mix([ds, ds])
    config = pick(both, ram_budget_mb=10, max_workers=1, max_buffer_size=50)
    assert config.read_options.prefetch_buffer_size == 5


def test_an_empty_dataset_has_nothing_to_measure():
    ds = ours.MapDataset.range(0).to_iter_dataset()
    config = pick(ds, ram_budget_mb=1, max_workers=4, max_buffer_size=7)
    assert config.multiprocessing_options.num_workers == 0
    assert config.read_options.prefetch_buffer_size == 7


def test_arguments_are_checked():
    ds = ours.MapDataset.range(3).to_iter_dataset()
    with pytest.raises(PlanError, match="samples_to_check"):
        pick(ds, ram_budget_mb=1, max_workers=1, max_buffer_size=1, samples_to_check=0)
