from typing import Any

import numpy as np
import pytest

from gristmill import (
    BatchOperation,
    DataLoader,
    FilterOperation,
    MapOperation,
    RandomMapOperation,
    SequentialSampler,
)
from gristmill.errors import PlanError, PlanTypeError


def elements(*operations: Any) -> list[Any]:
    return list(
        DataLoader(
            data_source=range(6), sampler=SequentialSampler(6, seed=1), operations=operations
        )
    )


def test_a_map_operation_maps():
    assert elements(MapOperation(lambda x: x + 10)) == [10, 11, 12, 13, 14, 15]


def test_a_filter_operation_filters():
    assert elements(FilterOperation(lambda x: x % 2 == 1)) == [1, 3, 5]


def test_a_random_map_operation_draws_from_the_records_generator():
    drawn = elements(RandomMapOperation(lambda x, rng: int(rng.integers(1000))))
    expected = [np.random.Generator(np.random.Philox(key=1 + i)).integers(1000) for i in range(6)]
    assert drawn == expected


def test_a_batch_operation_batches():
    assert [batch.tolist() for batch in elements(BatchOperation(4))] == [[0, 1, 2, 3], [4, 5]]
    assert [b.tolist() for b in elements(BatchOperation(4, drop_remainder=True))] == [[0, 1, 2, 3]]
    assert elements(BatchOperation(4, batch_fn=sum)) == [6, 9]


def test_a_batch_operation_checks_its_arguments_at_once():
    wrong: Any = 2.0
    with pytest.raises(PlanTypeError, match=r"^`batch_size` must be an integer, got 2\.0"):
        BatchOperation(wrong)
    with pytest.raises(PlanError, match=r"^batch_size must be positive, got 0\."):
        BatchOperation(0)


def test_there_is_no_deprecation_message_to_disable():
    assert BatchOperation(2).disable_deprecation_message() is None
