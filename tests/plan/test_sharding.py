from typing import Any

import pytest

from gristmill import DataLoader, IndexSampler, MapDataset, ShardOptions
from gristmill._plan.sharding import cut_into_shards, has_contiguous_shards, shard_of, with_shard
from tests.plan.streams import elements_of, plan_of

SHARDS = [ShardOptions(index, 3) for index in range(3)]


@pytest.mark.parametrize("index", range(3))
def test_a_slice_of_every_nth_element_is_a_shard(index: int):
    shard = shard_of(plan_of(MapDataset.range(10)[index::3].map(str)))

    assert (shard.shard_index, shard.shard_count) == (index, 3)


@pytest.mark.parametrize(
    "dataset",
    [MapDataset.range(10), MapDataset.range(10)[2:5], MapDataset.range(10)[::-1]],
    ids=["all", "a range", "reversed"],
)
def test_any_other_dataset_is_one_of_one_shards(dataset: MapDataset[int]):
    assert shard_of(plan_of(dataset)) == ShardOptions(0, 1)


def test_a_mixture_of_different_shards_is_no_shard():
    mixed = MapDataset.mix([MapDataset.range(10)[0::2], MapDataset.range(10)[1::2]])

    assert shard_of(plan_of(mixed)) == ShardOptions(0, 1)


@pytest.mark.parametrize("is_contiguous", [False, True])
def test_the_plans_of_all_shards_of_a_loader_read_each_record_once(is_contiguous: bool):
    def shuffled(options: ShardOptions) -> IndexSampler:
        return IndexSampler(10, shuffle=True, seed=4, num_epochs=1, shard_options=options)

    sampler = shuffled(SHARDS[0]) if is_contiguous else shuffled(ShardOptions(0, 1))
    outer = None if is_contiguous else SHARDS[0]
    loader = DataLoader(data_source=range(10), sampler=sampler, shard_options=outer)
    plan = loader._plan_node

    shards = [with_shard(plan, shard, is_contiguous=is_contiguous) for shard in SHARDS]

    assert has_contiguous_shards(plan) == is_contiguous
    assert elements_of(shards[0]) == list(loader)
    assert sorted(x for shard in shards for x in elements_of(shard)) == list(range(10))
    assert shard_of(shards[1]) == SHARDS[1] or is_contiguous


@pytest.mark.parametrize("shard", SHARDS, ids=str)
def test_cutting_a_dataset_into_shards_is_a_slice_of_it(shard: ShardOptions):
    def dataset() -> MapDataset[Any]:
        return MapDataset.range(10).shuffle(seed=2)

    cut = cut_into_shards(plan_of(dataset().map(str)), shard, site="here:1")

    assert elements_of(cut) == [str(x) for x in dataset()[shard.shard_index :: 3]]
    assert shard_of(cut) == shard
