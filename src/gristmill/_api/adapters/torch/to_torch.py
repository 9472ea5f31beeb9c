"""Converts gristmill loaders and datasets to PyTorch iterable datasets."""

import json
import sys
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any, TypeAlias, cast

import numpy as np

from gristmill._api.adapters.torch.tensor import Tensor
from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.loader.iterator import DataLoaderIterator
from gristmill._api.loader.loader import DataLoader
from gristmill._base.extras import load_extra
from gristmill._base.trees.tree import map_leaves
from gristmill._plan.nodes.base import stable_repr
from gristmill.errors import PlanError, PlanTypeError, StateError
from gristmill.types import AnyArray, Element, JsonObject, Tree

Loader: TypeAlias = DataLoader | MapDataset[Element] | IterDataset[Element]
LoaderIterator: TypeAlias = DataLoaderIterator | DatasetIterator[Element]

_STATE_KEY = "gristmill"


def to_torch(loader: Loader) -> Any:
    """Convert a gristmill loader or dataset to a `torch.utils.data.IterableDataset`.

    Its items are the elements of `loader`, with arrays as tensors on the same memory. Leaves that
    PyTorch has no dtype for, such as strings, times and objects, are kept. Pass it to PyTorch's
    `DataLoader` with `batch_size=None`, since gristmill makes the batches, and without workers,
    since gristmill starts them. `state_dict` returns the position of the last iterator, and after
    `load_state_dict` the next iterator resumes from it.

    >>> import torch
    >>> batches = MapDataset.range(4).batch(2)
    >>> list(torch.utils.data.DataLoader(to_torch(batches), batch_size=None))
    [tensor([0, 1]), tensor([2, 3])]

    Args:
        loader: The `DataLoader`, `MapDataset` or `IterDataset` to convert.

    Returns:
        A `torch.utils.data.IterableDataset` that can be iterated many times and pickled.

    Raises:
        PlanTypeError: If `loader` is none of these.
    """
    torch = load_extra("torch", extra="torch", wanted_by="`to_torch`")
    if not isinstance(cast(object, loader), DataLoader | MapDataset | IterDataset):
        raise PlanTypeError(
            "`loader` must be a DataLoader, a MapDataset or an IterDataset of gristmill, got "
            f"{stable_repr(loader)}."
        )
    return _make_dataset_class(torch)(loader)


@cache
def _make_dataset_class(torch: ModuleType) -> Any:
    """Define the class, which is possible only once its base class has been imported."""

    class GristmillDataset(torch.utils.data.IterableDataset):
        """Iterates over the elements of a loader, with arrays as tensors."""

        def __init__(self, loader: Loader) -> None:
            self._loader = loader
            self._iterator: LoaderIterator | None = None
            self._state: JsonObject | None = None

        def __iter__(self) -> Iterator[Tree]:
            _check_no_workers(torch.utils.data.get_worker_info())
            iterator = iter(self._loader)
            state, self._state = self._state, None
            if state is not None:
                _restore(iterator, state)
            self._iterator = iterator
            return _iterate_as_tensors(iterator)

        def state_dict(self) -> JsonObject:
            """Return the position after the last element that the last iterator yielded."""
            if self._state is not None:
                return self._state
            iterator = iter(self._loader) if self._iterator is None else self._iterator
            state = iterator.get_state()
            return {_STATE_KEY: json.loads(state) if isinstance(state, bytes) else state}

        def load_state_dict(self, state_dict: JsonObject) -> None:
            """Make the next iterator resume from a position."""
            if _STATE_KEY not in state_dict:
                raise StateError(
                    f"The state must be one that `state_dict` returned, with the key "
                    f"{_STATE_KEY!r}, got the keys {sorted(map(str, state_dict))}."
                )
            self._state = state_dict

        def __reduce__(self) -> tuple[object, ...]:
            # `pickle` would not find a class that is defined in a function.
            return to_torch, (self._loader,), {"_state": self._state}

        def __repr__(self) -> str:
            return f"to_torch({stable_repr(self._loader)})"

    return GristmillDataset


def _restore(iterator: LoaderIterator, state: JsonObject) -> None:
    """Set the state in the form that the iterator returns it in, bytes or a dict."""
    inner = state[_STATE_KEY]
    if isinstance(iterator, DataLoaderIterator):
        iterator.set_state(json.dumps(inner).encode())
    else:
        iterator.set_state(inner)


def _check_no_workers(info: Any) -> None:
    if info is not None and info.num_workers > 1:
        raise PlanError(
            f"PyTorch's DataLoader has {info.num_workers} workers, and each would yield the whole "
            "stream. Pass `num_workers=0` to it, and let gristmill start the workers: "
            "`DataLoader(worker_count=...)` or `mp_prefetch`."
        )


def _iterate_as_tensors(iterator: LoaderIterator) -> Iterator[Tree]:
    """Yield the elements with arrays as tensors, and close the iterator at the end."""
    try:
        for element in iterator:
            yield map_leaves(_convert_leaf, element)
    finally:
        iterator.close()


def _convert_leaf(leaf: object) -> object:
    """Return an array as a tensor, if PyTorch has its dtype. Other leaves are kept.

    The tensor shares the memory of the array, if PyTorch can write to it.
    """
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    return _array_to_tensor(cast("AnyArray | np.generic", leaf))


def _array_to_tensor(leaf: AnyArray | np.generic) -> Tensor:
    torch = sys.modules["torch"]
    array = np.asarray(leaf)
    name = array.dtype.name
    if array.dtype.kind == "V" and array.dtype.names is None:  # perhaps a dtype of `ml_dtypes`
        dtype: Any = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            return leaf  # PyTorch's small integers are mere names, without operations
        bits = _array_to_tensor(array.view(f"u{array.dtype.itemsize}"))
        return bits.view(dtype)
    if array.dtype.kind not in "biufc" or not isinstance(getattr(torch, name, None), torch.dtype):
        return leaf
    return torch.from_numpy(_make_torch_compatible(array))


def _make_torch_compatible(array: AnyArray) -> AnyArray:
    """Copy an array that is read-only, has negative strides or is not in native byte order."""
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    is_forward = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    return array if array.flags.writeable and is_forward else array.copy()
