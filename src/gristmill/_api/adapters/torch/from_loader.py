"""Converts a PyTorch `DataLoader` to a gristmill dataset: its dataset, sampler and batches."""

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, cast

import numpy as np

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._base.checks import as_seed
from gristmill._data.sampling.user_samplers import as_sampler
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element

FromDataset = Callable[..., Any]
"""`from_torch` for a dataset."""


def from_loader(
    torch: ModuleType, loader: Any, *, seed: int | None, collate_fn: Any, from_dataset: FromDataset
) -> MapDataset[Element]:
    """Return the batches of a PyTorch `DataLoader`.

    Args:
        torch: The module.
        loader: The loader.
        seed: The seed of the dataset, and of a sampler that draws at random.
        collate_fn: The user's collate function. By default that of the loader, if it has one.
        from_dataset: Converts the dataset of the loader.
    """
    data = torch.utils.data
    if isinstance(loader.dataset, data.IterableDataset):
        raise PlanTypeError(
            "The dataset of the PyTorch DataLoader is iterable, and has no sampler. Pass the "
            "dataset, `from_torch(loader.dataset)`, and `batch` the result."
        )
    own_collate = loader.collate_fn
    defaults = (data.default_collate, data._utils.collate.default_convert)  # noqa: SLF001
    if collate_fn is None and own_collate not in defaults:
        collate_fn = own_collate
    dataset: Any = from_dataset(loader.dataset, seed=seed, collate_fn=collate_fn)
    if loader.batch_size is not None or loader.batch_sampler is None:
        sampled = _sampled(data, dataset, loader.sampler, seed)
        if loader.batch_size is None:
            return sampled
        return sampled.batch(loader.batch_size, drop_remainder=loader.drop_last)
    batch_sampler = loader.batch_sampler
    if type(batch_sampler) is not data.BatchSampler:
        raise PlanTypeError(
            f"The batch sampler {type(batch_sampler).__name__} chooses whole batches, which cannot "
            "be converted. Pass a sampler of single items and a `batch_size` to the DataLoader."
        )
    sampled = _sampled(data, dataset, batch_sampler.sampler, seed)
    return sampled.batch(batch_sampler.batch_size, drop_remainder=batch_sampler.drop_last)


def _sampled(
    data: Any, dataset: MapDataset[Element], sampler: Any, seed: int | None
) -> MapDataset[Element]:
    """Return the elements that a sampler chooses, in an order made from the seed."""
    kind = cast(Any, type(sampler))
    if kind is data.SequentialSampler:
        return dataset
    if kind is data.RandomSampler and not sampler.replacement and len(sampler) == len(dataset):
        return dataset.shuffle(_seed_of(sampler, seed))
    if kind is data.RandomSampler:
        return dataset.sample(
            np.ones(len(dataset)),
            num_samples=len(sampler),
            replacement=sampler.replacement,
            seed=_seed_of(sampler, seed),
        )
    if kind is data.WeightedRandomSampler:
        return dataset.sample(
            np.asarray(sampler.weights),
            num_samples=sampler.num_samples,
            replacement=sampler.replacement,
            seed=_seed_of(sampler, seed),
        )
    if kind is data.SubsetRandomSampler:
        return dataset[list(sampler.indices)].shuffle(_seed_of(sampler, seed))
    if kind is data.DistributedSampler:
        shuffled = dataset.shuffle(sampler.seed if seed is None else seed)
        whole = shuffled if sampler.shuffle else dataset
        return whole[sampler.rank :: sampler.num_replicas]
    if not isinstance(sampler, Iterable):
        raise PlanTypeError(f"The sampler {kind.__name__} of the PyTorch DataLoader has no order.")
    items: list[Any] = list(cast("Iterable[Any]", sampler))
    order = as_sampler(iter(items))
    return dataset[order.keys(range(order.epoch_size))]


def _seed_of(sampler: Any, seed: int | None) -> int:
    if seed is not None:
        return as_seed(seed)
    if sampler.generator is not None:
        return int(sampler.generator.initial_seed()) % 2**32
    raise PlanError(
        f"The {type(sampler).__name__} of the PyTorch DataLoader draws from PyTorch's global "
        "generator, so its order would differ after a restart. Pass `seed=` to `from_torch`."
    )
