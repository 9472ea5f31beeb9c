"""Converts PyTorch datasets, map-style or iterable, to gristmill datasets."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import ModuleType
from typing import cast, overload

from gristmill._api.adapters.iterable import IterableStream
from gristmill._api.adapters.torch.convert import Item, to_numpy
from gristmill._api.adapters.torch.from_loader import from_loader
from gristmill._api.adapters.torch.readers import TorchDataset, get_type_name, open_reader
from gristmill._api.adapters.torch.source import Collate, SeededItem, TorchIndices, TorchSource
from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_seed
from gristmill._base.extras import load_extra
from gristmill._plan.nodes.base import stable_repr
from gristmill._plan.nodes.stream import RecordStreamNode
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element, RandomAccessDataSource


@overload
def from_torch(
    dataset: RandomAccessDataSource[Item],
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Item]], Item] | None = None,
) -> MapDataset[Element]: ...


@overload
def from_torch(
    dataset: Iterable[Item],
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Item]], Item] | None = None,
) -> IterDataset[Element]: ...


@overload
def from_torch(
    dataset: object,
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Item]], Item] | None = None,
) -> MapDataset[Element] | IterDataset[Element]: ...


def from_torch(
    dataset: TorchDataset,
    *,
    seed: int | None = None,
    collate_fn: Callable[[list[Item]], Item] | None = None,
) -> MapDataset[Element] | IterDataset[Element]:
    """Convert a PyTorch dataset, or a PyTorch `DataLoader`, to a gristmill dataset.

    The elements are the items of the dataset. Tensors become arrays on the same memory and Pillow
    images become arrays; everything else is kept. A `TensorDataset`, alone or inside `Subset` and
    `ConcatDataset`, is read a batch at a time, without reading its items. A dataset with
    `__getitems__` is asked for many items at a time.

    An iterable dataset is read in this process, from its start for each iterator. If it has
    `state_dict` and `load_state_dict`, resuming from a state is quick. If not, resuming reads the
    items before the state again.

    A `DataLoader` becomes a dataset of its batches, with its `sampler`, `batch_size`, `drop_last`
    and `collate_fn`. Its random samplers keep their distribution, but draw from `seed`, and in each
    epoch differently; a sampler of your own is read once, by this call. Workers are not taken over:
    request them with `mp_prefetch`.

    >>> import torch
    >>> pairs = torch.utils.data.TensorDataset(torch.arange(4) / 2, torch.arange(4))
    >>> list(from_torch(pairs).batch(3))[-1]
    (array([1.5], dtype=float32), array([3]))

    Args:
        dataset: An object with `__len__` and `__getitem__`, or with `__iter__`; or a `DataLoader`
            over one of the former.
        seed: Seeds the sampler of a `DataLoader`, and a dataset whose items draw from the global
            generators of PyTorch, NumPy or `random`, such as one with random augmentations. Reading
            such a dataset without a seed
            is an error. With a seed, items are read one at a time, each with generators seeded
            from `seed` and its index. They differ from epoch to epoch, except in a `DataLoader`,
            where they depend on the record alone. No other thread of the program may draw from
            the global generators at the same time.
        collate_fn: Makes a batch of a list of items, as in PyTorch. `batch` then calls it and
            converts the tensors of the result to arrays. Elements before `batch` are the items
            themselves, unconverted.

    Returns:
        A `MapDataset`, or an `IterDataset` if the dataset is iterable.

    Raises:
        PlanTypeError: If `dataset` is not a dataset, or `collate_fn` is not a function.
        PlanError: If `seed` is out of range, or is passed with an iterable dataset.
    """
    torch = load_extra("torch", extra="torch", wanted_by="`from_torch`")
    if collate_fn is not None and not callable(cast(object, collate_fn)):
        raise PlanTypeError(
            f"`collate_fn` must be a function of a list of items, got {stable_repr(collate_fn)}."
        )
    if isinstance(dataset, torch.utils.data.DataLoader):
        return from_loader(
            torch, dataset, seed=seed, collate_fn=collate_fn, from_dataset=from_torch
        )
    collate = None if collate_fn is None else Collate(collate_fn)
    _check_dataset(torch, dataset)
    if _is_iterable(torch, dataset):
        if seed is not None:
            raise PlanError(
                "`seed` is for datasets with `__getitem__`, whose items are read by index, but "
                f"{get_type_name(dataset)} is iterable. Seed the dataset itself."
            )
        return _make_stream_dataset(dataset, collate)
    length = _get_length(dataset)
    reader = open_reader(dataset, converts=collate is None)
    if seed is None or reader.is_deterministic:
        return MapDataset.source(TorchSource(reader, length, collate))
    indices = TorchIndices(reader.description, length, collate)
    read = SeededItem(dataset, reader.description, converts=collate is None)
    return MapDataset.source(indices).random_map(read, seed=as_seed(seed, bits=63))


def _make_stream_dataset(dataset: Iterable[Item], collate: Collate | None) -> IterDataset[Element]:
    stream = IterableStream(
        dataset,
        convert=to_numpy if collate is None else _return_unchanged,
        description=get_type_name(dataset),
        collate=collate,
    )
    return PlannedIterDataset(RecordStreamNode(site=call_site(), stream=stream), ())


def _return_unchanged(item: Item) -> Element:
    return item


def _is_iterable(torch: ModuleType, dataset: TorchDataset) -> bool:
    if isinstance(dataset, torch.utils.data.IterableDataset):
        return True
    kind = type(cast(object, dataset))
    return callable(getattr(kind, "__iter__", None)) and not callable(
        getattr(kind, "__getitem__", None)
    )


def _check_dataset(torch: ModuleType, dataset: TorchDataset) -> None:
    """Raise an error with the remedy if `dataset` is not a dataset but resembles one."""
    if isinstance(dataset, type):
        raise PlanTypeError(f"`dataset` is the class {dataset.__name__}. Pass an instance of it.")
    if isinstance(dataset, str | bytes | Mapping):
        raise PlanTypeError(
            f"`dataset` is a {type(cast(object, dataset)).__name__}, not a PyTorch dataset. Pass "
            "an object with `__len__` and `__getitem__`, such as a list of items."
        )
    if isinstance(dataset, Iterator):
        raise PlanTypeError(
            f"`dataset` is an iterator ({get_type_name(cast(object, dataset))}), which can be read "
            "only once. Pass an `IterableDataset`, whose `__iter__` starts from the beginning each "
            "time."
        )
    kind = type(cast(object, dataset))
    if not any(callable(getattr(kind, name, None)) for name in ("__getitem__", "__iter__")):
        raise PlanTypeError(
            f"`dataset` must be a PyTorch dataset, got {stable_repr(dataset)}. Pass an object with "
            "`__len__` and `__getitem__`, or with `__iter__`."
        )


def _get_length(dataset: TorchDataset) -> int:
    if not isinstance(dataset, RandomAccessDataSource):
        raise PlanTypeError(
            f"`dataset` has `__getitem__` but no `__len__`: {get_type_name(dataset)}. Add a "
            "`__len__`, or make it an `IterableDataset`."
        )
    return len(cast("RandomAccessDataSource[Element]", dataset))
