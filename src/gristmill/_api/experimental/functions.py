"""Small functions around datasets, as in Grain."""

import copy
from collections.abc import Sequence
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.experimental.index_shuffle import shuffled_index
from gristmill._base.checks import as_batch_size, as_int, as_seed
from gristmill._base.trees.tree import flatten
from gristmill._data.batching.stack import stack
from gristmill._data.sampling.shuffle import shuffled
from gristmill._data.transforms.base import Transformation, Transformations
from gristmill.errors import BatchError, PlanError

T = TypeVar("T")


@overload
def apply_transformations(
    ds: MapDataset[Any], transformations: Transformation | Transformations
) -> MapDataset[Any]: ...


@overload
def apply_transformations(
    ds: IterDataset[Any], transformations: Transformation | Transformations
) -> IterDataset[Any]: ...


def apply_transformations(
    ds: MapDataset[Any] | IterDataset[Any], transformations: Transformation | Transformations
) -> MapDataset[Any] | IterDataset[Any]:
    """Return `ds.apply(transformations)`.

    >>> from gristmill import Batch
    >>> [batch.tolist() for batch in apply_transformations(MapDataset.range(3), Batch(2))]
    [[0, 1], [2]]

    Args:
        ds: A dataset.
        transformations: A transformation, or a sequence of them.

    Raises:
        TransformationTypeError: If one of them is not a transformation.
    """
    return ds.apply(transformations)


def batch_and_pad(values: Sequence[T], *, batch_size: int, pad_value: Any = 0) -> T:
    """Stack values, and pad the batch to `batch_size` rows.

    Pass it as the `batch_fn` of a dataset to get a last batch of the same shape.

    >>> from functools import partial
    >>> ds = MapDataset.range(1, 5).batch(3, batch_fn=partial(batch_and_pad, batch_size=3))
    >>> [batch.tolist() for batch in ds]
    [[1, 2, 3], [4, 0, 0]]

    Args:
        values: Between 1 and `batch_size` elements.
        batch_size: The number of rows of the batch.
        pad_value: The value of padding.

    Returns:
        A tree like each of `values`, with a new first axis of `batch_size` rows.

    Raises:
        BatchError: There are no values, or more than `batch_size`.
    """
    size = as_batch_size(batch_size)
    if not 0 < len(values) <= size:
        raise BatchError(f"`values` must be between 1 and {size} elements, got {len(values)}.")
    leaves, unflatten = flatten(stack(values))
    return unflatten([_pad(leaf, size, pad_value) for leaf in leaves])


def _pad(leaf: NDArray[Any], size: int, pad_value: Any) -> NDArray[Any]:
    num_missing = size - len(leaf)
    if not num_missing:
        return leaf
    return np.concatenate([leaf, np.full((num_missing, *leaf.shape[1:]), pad_value, leaf.dtype)])


def index_shuffle(index: int, max_index: int, seed: int, rounds: int) -> int:
    """Return the position of an index in a random permutation of 0 to `max_index`.

    The permutation is that of `MapDataset.shuffle` and of Grain. It is computed for each index on
    its own, without memory.

    >>> [index_shuffle(index, max_index=4, seed=42, rounds=4) for index in range(5)]
    [4, 1, 2, 3, 0]

    Args:
        index: An integer from 0 to `max_index`.
        max_index: The largest index, below 2**63.
        seed: The seed, below 2**32.
        rounds: The number of rounds of the cipher: even, from 4 to 1024. Datasets use 4.

    Raises:
        PlanError: If `index` is above `max_index`, `rounds` is odd, or a value is out of bounds.
        PlanTypeError: If an argument has the wrong type.
    """
    even = "rounds must be an even integer between 4 and 1024"
    if as_int("rounds", rounds, minimum=4, maximum=1024, phrase=even) % 2:
        raise PlanError(f"{even}, got {rounds}.")
    max_index = as_int("max_index", max_index, maximum=2**63 - 1)
    within = f"index must be in [0, max_index], and max_index is {max_index}"
    index = as_int("index", index, maximum=max_index, phrase=within)
    if rounds != 4:
        return shuffled_index(index, max_index=max_index, seed=as_seed(seed), rounds=rounds)
    return int(shuffled(np.array([index]), num_records=max_index + 1, seed=as_seed(seed))[0])


def assert_equal_output_after_checkpoint(ds: Any) -> None:
    """Check that a dataset can be resumed from each of its states.

    It reads all remaining elements once for each state. Use a dataset of few elements, such as one
    limited by `LimitIterDataset`.

    >>> assert_equal_output_after_checkpoint(MapDataset.range(5).to_iter_dataset().batch(2))

    Args:
        ds: A dataset, or any object whose iterators have `get_state` and `set_state`.

    Raises:
        AssertionError: A resumed iterator differs, or the dataset is empty.
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
        raise AssertionError("The dataset is empty. Pass one with a few elements.")
    for number, state in enumerate(states):
        resumed = iter(ds)
        resumed.set_state(copy.deepcopy(state))
        when = f"after {number} elements, from state {state}"
        np.testing.assert_equal(resumed.get_state(), state, f"The state differs {when}.")
        np.testing.assert_equal(list(resumed), elements[number:], f"The elements differ {when}.")
