"""Datasets of PyTorch, map-style or iterable, as ours."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast, overload

from gristmill._check import as_seed
from gristmill._extras import load_extra
from gristmill._site import call_site
from gristmill.adapters._iterable import IterableStream
from gristmill.adapters._torch_convert import to_numpy
from gristmill.adapters._torch_read import open_reader
from gristmill.adapters._torch_source import Collate, SeededItem, TorchIndices, TorchSource
from gristmill.dataset import IterDataset, MapDataset, PlannedIterDataset
from gristmill.errors import PlanError, PlanTypeError
from gristmill.plan import RecordStreamNode, stable_repr
from gristmill.types import Element, RandomAccessDataSource


@overload
def from_torch(
    dataset: RandomAccessDataSource[Any],
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> MapDataset[Any]: ...


@overload
def from_torch(
    dataset: Iterable[Any],
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> IterDataset[Any]: ...


@overload
def from_torch(
    dataset: object,
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> MapDataset[Any] | IterDataset[Any]: ...


def from_torch(
    dataset: Any,
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Any]], Any] | None = None,
) -> MapDataset[Any] | IterDataset[Any]:
    """Give a dataset of PyTorch as one of ours: a `MapDataset`, or of an iterable an `IterDataset`.

    Its items are the elements: tensors as arrays on the same memory, images of Pillow as arrays,
    the rest as it is. A `TensorDataset`, alone or in `Subset` and `ConcatDataset`, is read by the
    batch, without a look at its items; a dataset with `__getitems__` is asked for many.

    An iterable dataset is read in this process, from its beginning each time; where it has
    `state_dict` and `load_state_dict`, going on from a state is quick.

    >>> import torch
    >>> pairs = torch.utils.data.TensorDataset(torch.arange(4) / 2, torch.arange(4))
    >>> list(from_torch(pairs).batch(3))[-1]
    (array([1.5], dtype=float32), array([3]))

    Args:
        dataset: Anything with `__len__` and `__getitem__`, or with `__iter__`.
        seed: For a dataset whose items draw from the global generators of PyTorch, NumPy or
            `random`, and which is an error without: each item is then read with generators that
            come from the seed and its index, and one item at a time. In each epoch they are others,
            but in a `DataLoader`, whose sampler tells which record it is and not the epoch. Let no
            other thread of the program draw from them meanwhile.
        collate_fn: What makes a batch of a list of items, as in PyTorch. `batch` then calls it, and
            gives its tensors as arrays; the elements before are the items as they are.
    """
    torch: Any = load_extra("torch", extra="torch", wanted_by="`from_torch`")
    if collate_fn is not None and not callable(cast(Any, collate_fn)):
        raise PlanTypeError(
            f"`collate_fn` must be a function of a list of items, got {stable_repr(collate_fn)}."
        )
    collate = None if collate_fn is None else Collate(collate_fn)
    _refuse_what_is_none(torch, dataset)
    if _is_iterable(torch, dataset):
        if seed is not None:
            raise PlanError(
                "`seed` is for datasets with `__getitem__`, whose items are read by their index, "
                f"and {_name(dataset)} is iterable. Give it a seed of its own."
            )
        return _stream(dataset, collate)
    length = _length(dataset)
    reader = open_reader(dataset, converts=collate is None)
    if seed is None or reader.is_fixed:
        return MapDataset.source(TorchSource(reader, length, collate))
    indices = TorchIndices(reader.told, length, collate)
    read = SeededItem(dataset, reader.told, converts=collate is None)
    return MapDataset.source(indices).random_map(read, seed=as_seed(seed, bits=63))


def _stream(dataset: Any, collate: Collate | None) -> IterDataset[Any]:
    stream = IterableStream(
        dataset,
        convert=to_numpy if collate is None else _as_it_is,
        told=_name(dataset),
        collate=collate,
    )
    return PlannedIterDataset(RecordStreamNode(site=call_site(), parents=(), stream=stream), ())


def _as_it_is(item: Any) -> Element:
    return item


def _is_iterable(torch: Any, dataset: Any) -> bool:
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    kind = cast(Any, type(dataset))
    return callable(getattr(kind, "__iter__", None)) and not callable(
        getattr(kind, "__getitem__", None)
    )


def _refuse_what_is_none(torch: Any, dataset: Any) -> None:
    """Explain what is not a dataset, though it may look like one."""
    if isinstance(dataset, type):
        raise PlanTypeError(f"`dataset` is the class {dataset.__name__}. Pass an instance of it.")
    if isinstance(dataset, torch.utils.data.DataLoader):
        raise PlanTypeError(
            "`dataset` is a DataLoader of PyTorch, which makes batches itself. Pass its dataset, "
            "`from_torch(loader.dataset)`, with `collate_fn=loader.collate_fn` if it has one of "
            "its own; then `shuffle` and `batch` the result."
        )
    if isinstance(dataset, str | bytes | Mapping):
        raise PlanTypeError(
            f"`dataset` is a {type(cast(Any, dataset)).__name__}, not a dataset of PyTorch. Pass "
            "an object with `__len__` and `__getitem__`, such as a list of items."
        )
    if isinstance(dataset, Iterator):
        raise PlanTypeError(
            f"`dataset` is an iterator ({_name(dataset)}), which can be read only once. Pass an "
            "`IterableDataset`, whose `__iter__` begins anew each time."
        )
    kind = cast(Any, type(dataset))
    if not any(callable(getattr(kind, name, None)) for name in ("__getitem__", "__iter__")):
        raise PlanTypeError(
            f"`dataset` must be a dataset of PyTorch, got {stable_repr(dataset)}. Pass an object "
            "with `__len__` and `__getitem__`, or with `__iter__`."
        )


def _length(dataset: Any) -> int:
    if not isinstance(dataset, RandomAccessDataSource):
        raise PlanTypeError(
            f"`dataset` has `__getitem__` and no `__len__`: {_name(dataset)}. Give it a "
            "`__len__`, or make it an `IterableDataset`."
        )
    return len(cast("RandomAccessDataSource[Any]", dataset))


def _name(dataset: Any) -> str:
    return type(dataset).__qualname__.rpartition("<locals>.")[2]
