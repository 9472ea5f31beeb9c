from typing import Any

import pytest

from gristmill import Batch, DataLoader, IndexSampler, IterDataset, MapDataset, ShardOptions
from gristmill._plan.describe import describe


def _describe(dataset: MapDataset[Any] | IterDataset[Any]) -> dict[str, Any]:
    stream = dataset.to_iter_dataset() if isinstance(dataset, MapDataset) else dataset
    return describe(stream._plan_node)


def test_steps_come_bottom_up_and_those_that_order_are_listed_apart():
    described = _describe(MapDataset.range(9).map(str).shuffle(seed=1).batch(2))

    assert described["source"] == "RangeDataSource(start=0, stop=9, step=1)"
    assert described["order"] == ["Shuffle(seed=1)"]
    assert described["steps"][:2] == ["Map str", "Shuffle(seed=1)"]
    assert len(described["steps"]) == 3


def test_how_a_plan_is_run_is_not_described():
    def loader(**options: Any) -> DataLoader:
        sampler = IndexSampler(6, shuffle=True, seed=3)
        return DataLoader(data_source=range(6), sampler=sampler, operations=[Batch(2)], **options)

    plain = describe(loader()._plan_node)

    assert describe(loader(worker_count=2, worker_buffer_size=7)._plan_node) == plain


def test_shards_of_one_dataset_are_described_alike():
    dataset = MapDataset.range(12).shuffle(seed=5)

    assert _describe(dataset[0::3]) == _describe(dataset[2::3])
    assert "Shard" in _describe(dataset[0::3])["steps"]
    assert _describe(dataset[0::3]) != _describe(dataset)


@pytest.mark.parametrize("second", [slice(None), slice(1, None, 2)], ids=["all", "another shard"])
def test_streams_that_are_not_one_shard_are_described_with_their_slices(second: slice):
    def mixed(first: slice) -> IterDataset[int]:
        streams = [MapDataset.range(12)[part].to_iter_dataset() for part in (first, second)]
        return IterDataset.mix(streams)

    assert _describe(mixed(slice(0, None, 2))) == _describe(mixed(slice(0, None, 2)))
    assert _describe(mixed(slice(0, None, 2))) != _describe(mixed(slice(0, None, 3)))


def test_shards_of_one_loader_are_described_alike():
    def loader(shard: int) -> DataLoader:
        return DataLoader(
            data_source=range(6), sampler=IndexSampler(6), shard_options=ShardOptions(shard, 2)
        )

    assert describe(loader(0)._plan_node) == describe(loader(1)._plan_node)


def test_each_source_of_a_mixture_is_described_under_its_own_name():
    numbers, strings = MapDataset.range(3), MapDataset.source(["a", "b"])

    described = _describe(MapDataset.mix([numbers, strings.map(str.upper)], weights=[2, 1]))

    assert list(described["source"]) == ["0", "1"]
    assert described["source"]["0"]["source"] == "RangeDataSource(start=0, stop=3, step=1)"
    assert described["source"]["1"]["steps"] == ["Map str.upper"]


def test_another_seed_is_another_description():
    dataset = MapDataset.range(9)

    assert _describe(dataset.shuffle(seed=1)) != _describe(dataset.shuffle(seed=2))
