from typing import Any

import pytest

from gristmill import Batch, DataLoader, FilterOperation, IndexSampler
from gristmill._plan.nodes.base import ENDLESS


def loader(total: int, *operations: Any, num_epochs: int | None = 1) -> DataLoader:
    sampler = IndexSampler(total, num_epochs=num_epochs)
    return DataLoader(data_source=range(total), sampler=sampler, operations=operations)


@pytest.mark.parametrize("drop_remainder", [True, False])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("total", [7, 8, 20])
def test_its_length_is_the_number_of_batches_that_come(total: int, size: int, drop_remainder: bool):
    batches = loader(total, Batch(size, drop_remainder))
    assert batches._plan_node.length() == len(list(batches))


@pytest.mark.parametrize("inner", [1, 2, 3])
@pytest.mark.parametrize("outer", [1, 2, 3])
def test_batches_of_batches_hold_every_record_once(inner: int, outer: int):
    batches = loader(6 * inner * outer, Batch(inner), Batch(outer))
    assert batches._plan_node.length() == 6
    assert [n for batch in batches for n in batch.ravel().tolist()] == [*range(6 * inner * outer)]


def test_a_batch_over_an_endless_stream_is_endless():
    assert loader(3, Batch(2), num_epochs=None)._plan_node.length() == ENDLESS


def test_batches_span_epochs():
    batches = loader(3, Batch(2), num_epochs=2)
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 0], [1, 2]]


@pytest.mark.parametrize("size", [1, 2, 3, 50])
@pytest.mark.parametrize("drop_remainder", [True, False])
def test_a_batch_over_a_filter_holds_only_what_passed(size: int, drop_remainder: bool):
    batches = loader(100, FilterOperation(lambda x: x % 3 == 0), Batch(size, drop_remainder))
    passed = list(range(0, 100, 3))
    expected = [passed[i : i + size] for i in range(0, len(passed), size)]
    if drop_remainder:
        expected = [batch for batch in expected if len(batch) == size]
    assert [batch.tolist() for batch in batches] == expected


def test_a_batch_fn_takes_the_place_of_stacking():
    assert list(loader(5, Batch(2, batch_fn=list))) == [[0, 1], [2, 3], [4]]
