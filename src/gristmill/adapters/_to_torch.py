"""Our loaders and datasets as iterable datasets of PyTorch."""

import json
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill._tree import map_leaves
from gristmill.dataset import IterDataset, MapDataset
from gristmill.errors import PlanError, PlanTypeError, StateError
from gristmill.loader import DataLoader
from gristmill.plan import stable_repr

_KEY = "gristmill"


def to_torch(loader: DataLoader | MapDataset[Any] | IterDataset[Any]) -> Any:
    """Give a loader or dataset of ours as a `torch.utils.data.IterableDataset`.

    Its items are our elements, arrays as tensors on the same memory; texts, times and objects stay
    what they are. Pass it to PyTorch's DataLoader with `batch_size=None`, as batches are made here,
    and without workers, as they are started here. `state_dict` tells where its last iterator
    stands, and `load_state_dict` has the next one go on there.

    >>> import torch
    >>> batches = MapDataset.range(4).batch(2)
    >>> list(torch.utils.data.DataLoader(to_torch(batches), batch_size=None))
    [tensor([0, 1]), tensor([2, 3])]
    """
    torch: Any = load_extra("torch", extra="torch", wanted_by="`to_torch`")
    if not isinstance(cast(Any, loader), DataLoader | MapDataset | IterDataset):
        raise PlanTypeError(
            "`loader` must be a DataLoader, a MapDataset or an IterDataset of gristmill, got "
            f"{stable_repr(loader)}."
        )
    return _dataset_class(torch)(loader)


@cache
def _dataset_class(torch: Any) -> Any:
    """Make the class, once PyTorch is there to derive it from."""

    class GristmillDataset(torch.utils.data.IterableDataset):
        """The elements of a loader of ours, as tensors."""

        def __init__(self, loader: Any) -> None:
            self._loader = loader
            self._running: Any = None
            self._state: dict[str, Any] | None = None

        def __iter__(self) -> Iterator[Any]:
            _refuse_workers(torch.utils.data.get_worker_info())
            iterator = iter(self._loader)
            state, self._state = self._state, None
            if state is not None:
                _restore(iterator, state)
            self._running = iterator
            return _as_tensors(iterator)

        def state_dict(self) -> dict[str, Any]:
            """Give the place after the last element that the running iterator gave."""
            if self._state is not None:
                return self._state
            iterator = iter(self._loader) if self._running is None else self._running
            state = iterator.get_state()
            return {_KEY: json.loads(state) if isinstance(state, bytes) else state}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            """Have the next iterator go on from a place."""
            if _KEY not in state_dict:
                raise StateError(
                    f"The state must be one that `state_dict` gave, with the key {_KEY!r}, got "
                    f"the keys {sorted(map(str, state_dict))}."
                )
            self._state = state_dict

        def __reduce__(self) -> Any:  # the class is made here, where `pickle` would not find it
            return to_torch, (self._loader,), {"_state": self._state}

        def __repr__(self) -> str:
            return f"to_torch({stable_repr(self._loader)})"

    return GristmillDataset


def _restore(iterator: Any, state: dict[str, Any]) -> None:
    """Set the state in the form that the iterator gives it in."""
    place = state[_KEY]
    is_bytes = isinstance(iterator.get_state(), bytes)
    iterator.set_state(json.dumps(place).encode() if is_bytes else place)


def _refuse_workers(info: Any) -> None:
    if info is not None and info.num_workers > 1:
        raise PlanError(
            f"PyTorch's DataLoader has {info.num_workers} workers, and each would give the whole "
            "stream. Pass `num_workers=0` to it, and let gristmill have the workers: "
            "`DataLoader(worker_count=...)` or `mp_prefetch`."
        )


def _as_tensors(iterator: Any) -> Iterator[Any]:
    """Give the elements as tensors; what runs in the background ends with it."""
    try:
        for element in iterator:
            yield map_leaves(_as_tensor, element)
    finally:
        iterator.close()


def _as_tensor(leaf: Any) -> Any:
    """Give an array as a tensor on the same memory, if PyTorch has its type and may write to it."""
    if not isinstance(leaf, np.ndarray | np.generic):
        return leaf
    return _array_as_tensor(cast(Any, leaf))


def _array_as_tensor(leaf: Any) -> Any:
    torch: Any = sys.modules["torch"]
    array = np.asarray(leaf)
    name = array.dtype.name
    if array.dtype.kind == "V" and array.dtype.names is None:  # perhaps a type of `ml_dtypes`
        dtype: Any = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            return leaf  # its small integers are names, and no more
        bits = _array_as_tensor(array.view(f"u{array.dtype.itemsize}"))
        return bits.view(dtype)
    if array.dtype.kind not in "biufc" or not isinstance(getattr(torch, name, None), torch.dtype):
        return leaf
    return torch.from_numpy(_for_torch(array))


def _for_torch(array: NDArray[Any]) -> NDArray[Any]:
    """Give an array that PyTorch takes: writable, forwards, and in this machine's byte order."""
    if not array.dtype.isnative:
        return array.astype(array.dtype.newbyteorder("="))
    is_forwards = all(step >= 0 and step % array.itemsize == 0 for step in array.strides)
    return array if array.flags.writeable and is_forwards else array.copy()
