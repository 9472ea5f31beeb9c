"""Small functions around datasets that Grain has, too."""

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from gristmill._check import as_int, as_seed
from gristmill._tree import flatten
from gristmill.batch import stack
from gristmill.dataset._shuffle_one import shuffled_index
from gristmill.errors import BatchError, PlanError
from gristmill.order import shuffled

T = TypeVar("T")


def apply_transformations(ds: Any, transformations: Any) -> Any:
    """Use `ds.apply(transformations)`, which is the same."""
    return ds.apply(transformations)


def batch_and_pad(values: Sequence[T], *, batch_size: int, pad_value: Any = 0) -> T:
    """Stack values, and fill the batch up to its size: a `batch_fn` that drops no remainder.

    >>> from functools import partial
    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.range(1, 5).batch(3, batch_fn=partial(batch_and_pad, batch_size=3))
    >>> [batch.tolist() for batch in ds]
    [[1, 2, 3], [4, 0, 0]]
    """
    size = as_int("batch_size", batch_size, minimum=1)
    if not 0 < len(values) <= size:
        raise BatchError(f"{len(values)} values cannot become a batch of {size}.")
    leaves, unflatten = flatten(stack(values))
    return unflatten([_padded(leaf, size, pad_value) for leaf in leaves])


def _padded(leaf: Any, size: int, pad_value: Any) -> Any:
    missing = size - len(leaf)
    if not missing:
        return leaf
    return np.concatenate([leaf, np.full((missing, *leaf.shape[1:]), pad_value, leaf.dtype)])


def index_shuffle(index: int, max_index: int, seed: int, rounds: int) -> int:
    """Give where a shuffle with a seed puts an index among 0 to `max_index`, in Grain's order.

    >>> [index_shuffle(index, max_index=4, seed=42, rounds=4) for index in range(5)]
    [4, 1, 2, 3, 0]
    """
    if as_int("rounds", rounds, minimum=4, maximum=1024) % 2:
        raise PlanError(f"`rounds` must be even, got {rounds}.")
    last = as_int("max_index", max_index)
    place = as_int("index", index, maximum=last)
    if rounds != 4:
        return shuffled_index(place, last=last, seed=as_seed(seed), rounds=rounds)
    return int(shuffled(np.array([place]), num_records=last + 1, seed=as_seed(seed))[0])


def assert_equal_output_after_checkpoint(ds: Any) -> None:
    """Check that from each of its states a dataset goes on with the rest of its elements.

    It takes all elements once for each of them: use few, as `LimitIterDataset` gives.

    >>> from gristmill.dataset import MapDataset
    >>> assert_equal_output_after_checkpoint(MapDataset.range(5).to_iter_dataset().batch(2))
    """
    iterator = iter(ds)
    states: list[Any] = []
    elements: list[Any] = []
    while True:
        state = copy.deepcopy(iterator.get_state())
        try:
            elements.append(next(iterator))
        except StopIteration:
            break
        states.append(state)
    if not elements:
        raise AssertionError("The dataset has no elements. Pass one that has a few.")
    for number, state in enumerate(states):
        resumed = iter(ds)
        resumed.set_state(copy.deepcopy(state))
        told = f"after {number} elements, from state {state}"
        np.testing.assert_equal(resumed.get_state(), state, f"The state differs {told}.")
        np.testing.assert_equal(list(resumed), elements[number:], f"The elements differ {told}.")
