"""`from_torch` of a PyTorch `DataLoader`: its batches, with its sampler."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data
from torch.utils.data import DataLoader as TorchLoader

from gristmill import MapDataset, from_torch
from gristmill.errors import PlanError, PlanTypeError

ITEMS = data.TensorDataset(torch.arange(20))


def read(loader: Any, **options: Any) -> list[list[int]]:
    return [batch[0].tolist() for batch in from_torch(loader, **options)]


def test_batches_in_order_are_those_of_pytorch():
    for size, drop_last in ((6, False), (6, True), (20, False)):
        loader = TorchLoader(ITEMS, batch_size=size, drop_last=drop_last)
        assert read(loader) == [batch[0].tolist() for batch in loader]


def test_a_shuffled_loader_reads_everything_in_another_order_each_epoch():
    ds: Any = from_torch(TorchLoader(ITEMS, batch_size=5, shuffle=True), seed=0)
    assert issubclass(type(ds), MapDataset)
    epochs = [[ds[i][0].tolist() for i in range(4 * e, 4 * e + 4)] for e in range(2)]
    for epoch in epochs:
        assert sorted(x for batch in epoch for x in batch) == [*range(20)]
    assert epochs[0] != epochs[1]
    assert read(TorchLoader(ITEMS, batch_size=5, shuffle=True), seed=0) == epochs[0]


def test_the_seed_of_a_generator_is_used():
    def loader() -> Any:
        generator = torch.Generator().manual_seed(7)
        return TorchLoader(ITEMS, batch_size=5, shuffle=True, generator=generator)

    assert read(loader()) == read(loader())


class Evens(data.Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(0, 20, 2))


def test_samplers_keep_their_meaning():
    weighted = data.WeightedRandomSampler([0.0] * 18 + [1.0, 3.0], num_samples=400)
    (batch,) = read(TorchLoader(ITEMS, batch_size=400, sampler=weighted), seed=0)
    assert set(batch) == {18, 19}
    assert 250 < batch.count(19) < 350
    subset = data.SubsetRandomSampler([3, 9, 4])
    assert sorted(read(TorchLoader(ITEMS, batch_size=3, sampler=subset), seed=0)[0]) == [3, 4, 9]
    drawn = data.RandomSampler(ITEMS, num_samples=7)
    assert len(set(read(TorchLoader(ITEMS, batch_size=7, sampler=drawn), seed=0)[0])) == 7
    again = data.RandomSampler(ITEMS, replacement=True, num_samples=100)
    assert len(read(TorchLoader(ITEMS, batch_size=100, sampler=again), seed=0)[0]) == 100
    assert read(TorchLoader(ITEMS, batch_size=10, sampler=Evens())) == [[*range(0, 20, 2)]]


def test_a_distributed_sampler_is_a_shard():
    shards = [
        data.DistributedSampler(ITEMS, num_replicas=3, rank=rank, shuffle=shuffle, seed=5)
        for shuffle in (False, True)
        for rank in range(3)
    ]
    parts = [
        [x for batch in read(TorchLoader(ITEMS, batch_size=2, sampler=shard)) for x in batch]
        for shard in shards
    ]
    assert parts[1] == [*range(1, 20, 3)]
    assert sorted(parts[0] + parts[1] + parts[2]) == [*range(20)]
    assert sorted(parts[3] + parts[4] + parts[5]) == [*range(20)]


def test_batch_samplers_and_loaders_without_batches():
    batches = data.BatchSampler(Evens(), batch_size=4, drop_last=True)
    loader = TorchLoader(ITEMS, batch_sampler=batches)
    assert read(loader) == [[0, 2, 4, 6], [8, 10, 12, 14]]
    assert [int(x[0]) for x in from_torch(TorchLoader(ITEMS, batch_size=None))] == [*range(20)]


def test_the_collate_function_of_the_loader_is_used():
    loader = TorchLoader(
        ITEMS,
        batch_size=10,
        collate_fn=lambda items: torch.stack([item[0] for item in items]).sum(),
    )
    assert [int(np.asarray(batch)) for batch in from_torch(loader)] == [45, 145]


class Batches(data.Sampler[list[int]]):
    def __iter__(self) -> Iterator[list[int]]:
        yield [0, 1]


class Stream(data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


@pytest.mark.parametrize(
    ("loader", "kind", "message"),
    [
        (TorchLoader(ITEMS, shuffle=True), PlanError, "Pass `seed=` to `from_torch`"),
        (TorchLoader(ITEMS, batch_sampler=Batches()), PlanTypeError, "chooses whole batches"),
        (TorchLoader(Stream()), PlanTypeError, "is iterable, and has no sampler"),
    ],
)
def test_what_cannot_be_converted_is_refused(loader: Any, kind: type, message: str):
    with pytest.raises(kind, match=message):
        from_torch(loader)
