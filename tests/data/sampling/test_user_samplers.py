"""What users pass as a sampler, through a `DataLoader`."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from gristmill import Batch, DataLoader, RandomMap, RecordMetadata
from gristmill.errors import PlanError, PlanTypeError, StateError


class Backwards:
    """A sampler with integers, as a user would write it first."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < 4:
            raise IndexError(index)
        return 3 - index


class Evens:
    """An iterable without a length."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(0, 10, 2))


def loaded(sampler: Any, **options: Any) -> list[Any]:
    return list(DataLoader(data_source=range(10), sampler=sampler, **options))


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        ([3, 1, 3], [3, 1, 3]),
        ((3, 1), [3, 1]),
        (range(8, 2, -2), [8, 6, 4]),
        (np.array([7, 2], dtype=np.uint8), [7, 2]),
        (Backwards(), [3, 2, 1, 0]),
        (Evens(), [0, 2, 4, 6, 8]),
        ([RecordMetadata(0, 5), RecordMetadata(1, 4)], [5, 4]),
        (torch.utils.data.SequentialSampler(range(3)), [0, 1, 2]),
        (torch.utils.data.SubsetRandomSampler([6]), [6]),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("worker_count", [0, 1])
def test_a_sampler_may_yield_plain_integers(sampler: Any, expected: list[int], worker_count: int):
    assert loaded(sampler, worker_count=worker_count) == expected


def test_a_random_sampler_of_pytorch_is_read_once():
    generator = torch.Generator().manual_seed(0)
    sampler = torch.utils.data.RandomSampler(range(10), generator=generator)
    loader = DataLoader(data_source=range(10), sampler=sampler, operations=[Batch(5)])
    first, again = ([batch.tolist() for batch in loader] for _ in range(2))
    assert first == again
    assert sorted(x for batch in first for x in batch) == list(range(10))


def test_a_state_of_another_order_is_refused():
    iterator = iter(DataLoader(data_source=range(10), sampler=[1, 2, 3]))
    next(iterator)
    other = iter(DataLoader(data_source=range(10), sampler=[3, 2, 1]))
    with pytest.raises(StateError, match="another order"):
        other.set_state(iterator.get_state())
    same = iter(DataLoader(data_source=range(10), sampler=[1, 2, 3]))
    same.set_state(iterator.get_state())
    assert list(same) == [2, 3]


class Jitter(RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return rng.integers(9)


def test_random_steps_need_a_sampler_with_a_seed():
    with pytest.raises(PlanError, match="needs a seed"):
        loaded([1, 2], operations=[Jitter()])
    with pytest.raises(PlanError, match="needs a generator, and the sampler provides none"):
        loaded(Backwards(), operations=[Jitter()])


class Endless:
    def __iter__(self) -> Iterator[int]:
        while True:
            yield 0

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize(
    ("sampler", "kind", "message"),
    [
        (Endless(), PlanTypeError, "Endless yields more than 3 indices"),
        (
            torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(range(4)), 2, False),
            PlanTypeError,
            "BatchSampler yields lists of indices. Pass the sampler of single records",
        ),
        ([4, 10], PlanError, "`sampler` has the index 10, the source has 10 records. Pass"),
        (np.arange(10) > 4, PlanTypeError, "type bool. Pass `np.flatnonzero"),
        ([True, False], PlanTypeError, "type bool. Pass `np.flatnonzero"),
        (np.array([1.0, 2.0]), PlanTypeError, "integers, got values of type float64"),
        ([1.0, 2.0], PlanTypeError, "integers, got values of type float64"),
        (7, PlanTypeError, "`sampler` must have `__getitem__`"),
        ("abc", PlanTypeError, "`sampler` must"),
        ({1: 2}, PlanTypeError, "`sampler` must"),
        ([], PlanError, "at least one index"),
        (["a"], TypeError, "The sampler must return the integer index of a record"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_samplers_that_are_none_are_refused(sampler: Any, kind: type, message: str):
    with pytest.raises(kind, match=message):
        loaded(sampler)
