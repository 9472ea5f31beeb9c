"""Small functions that Grain has, too: the same results, the same refusals."""

import pickle
from functools import partial
from typing import Any

import numpy as np
import pytest

from gristmill.errors import PlanError
from tests.compat.both_sides import SIDES, assert_same, assert_same_stream, jitter, ours, splitting

BATCHES = {
    "numbers": [1, 2],
    "whole": [1, 2, 3, 4],
    "trees": [{"a": np.ones((2,), np.float32), "b": (1, np.int8(3))}] * 3,
}


@pytest.mark.parametrize("values", BATCHES.values(), ids=BATCHES.keys())
@pytest.mark.parametrize("pad_value", [0, -1])
def test_a_batch_is_padded_as_by_grain(values: Any, pad_value: int):
    theirs, own = (
        api.experimental.batch_and_pad(values, batch_size=4, pad_value=pad_value) for api in SIDES
    )
    assert_same(own, theirs)


@pytest.mark.parametrize("values", [[], [1] * 5, [{"a": 1}, {"b": 1}]])
def test_what_fits_no_batch_is_refused(values: Any):
    for api in SIDES:
        with pytest.raises(ValueError, match=r"\w"):
            api.experimental.batch_and_pad(values, batch_size=4)


def test_padding_serves_as_a_batch_function():
    assert_same_stream(
        lambda api: api.MapDataset.range(7).batch(
            4, batch_fn=partial(api.experimental.batch_and_pad, batch_size=4, pad_value=-1)
        )
    )


def test_a_pool_yields_grains_generators_again_and_again():
    pools = [api.experimental.RngPool(42) for api in SIDES]
    for index, op_seed in ((0, 0), (3, 0), (3, 5), (0, 0), (2**40, 1)):
        drawn = []
        for pool in pools:
            rng = pool.acquire_rng(index, op_seed=op_seed)
            drawn.append((rng.integers(1000, size=5).tolist(), rng.random()))
            pool.release_rng(rng)
        assert drawn[1] == drawn[0]
    again = pickle.loads(pickle.dumps(pools[1]))
    assert again.acquire_rng(3).random() == pools[0].acquire_rng(3).random()


def test_two_generators_at_a_time_are_two():
    pool = ours.experimental.RngPool(1)
    one, other = pool.acquire_rng(1), pool.acquire_rng(1)
    assert one is not other
    assert one.random() == other.random()


def test_an_index_is_shuffled_as_by_grain():
    for arguments in (
        (3, 9, 7, 4),
        (0, 0, 1, 4),
        (50_000, 60_000, 2**32 - 1, 4),
        (5, 60_000, 1, 6),
    ):
        theirs, own = (api.experimental.index_shuffle(*arguments) for api in SIDES)
        assert own == theirs
    named = {"index": 3, "max_index": 9, "seed": 7, "rounds": 4}
    assert ours.experimental.index_shuffle(**named) == SIDES[0].experimental.index_shuffle(**named)


@pytest.mark.parametrize("arguments", [(10, 9, 1, 4), (1, 9, 1, 5), (1, 9, 1, 2), (1, 9, 1, 1026)])
def test_an_index_or_rounds_out_of_bounds_are_refused(arguments: Any):
    for api in SIDES:
        with pytest.raises(ValueError, match=r"\w"):
            api.experimental.index_shuffle(*arguments)


def test_transformations_are_applied_by_a_function_too():
    assert_same_stream(
        lambda api: api.experimental.apply_transformations(
            api.MapDataset.range(9), [splitting(api, 2)]
        )
    )
    with pytest.raises(PlanError):
        ours.experimental.apply_transformations(ours.MapDataset.range(3), [3])


def counting(api: Any, *, forgets: bool) -> Any:
    class Count(api.DatasetIterator):
        def __init__(self) -> None:
            super().__init__()
            self._next = 0

        def __next__(self) -> int:
            if self._next == 4:
                raise StopIteration
            self._next += 1
            return self._next

        def get_state(self) -> Any:
            return {"next": self._next}

        def set_state(self, state: Any) -> None:
            self._next = 0 if forgets else state["next"]

    class Counting(api.IterDataset):
        def __iter__(self) -> Any:
            return Count()

    return Counting()


def test_checkpoints_that_work_pass_and_others_fail():
    for api in SIDES:
        check = api.experimental.assert_equal_output_after_checkpoint
        check(counting(api, forgets=False))
        check(api.MapDataset.range(9).seed(1).to_iter_dataset().random_map(jitter).batch(2))
        with pytest.raises(AssertionError):
            check(counting(api, forgets=True))
        with pytest.raises(AssertionError):
            check(api.MapDataset.range(0).to_iter_dataset())
