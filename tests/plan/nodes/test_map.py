from typing import Any

import numpy as np

from gristmill import DataLoader, Map, MapWithIndex, RandomMap, SequentialSampler, ShardOptions
from gristmill._plan.nodes.map import MapNode
from gristmill._plan.traverse import sample_of


class Negate(Map):
    def map(self, element: Any) -> Any:
        return -element


class NegateColumns(Negate):
    def map_batch(self, columns: Any) -> Any:
        return -columns


class Indexed(MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        return index, element


class Draw(RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, int(rng.integers(1000))


def loader(operation: Any, **options: Any) -> DataLoader:
    return DataLoader(
        data_source=np.arange(6),
        sampler=SequentialSampler(6, seed=1),
        operations=[operation],
        **options,
    )


def test_a_map_is_as_long_and_as_dense_as_what_it_maps():
    plan = loader(Negate())._plan_node
    assert plan.length() == sample_of(plan).length() == 6
    assert plan.is_dense


def test_a_map_knows_its_batch_function_only_where_there_is_one():
    plain, columnar = loader(Negate())._plan_node, loader(NegateColumns())._plan_node
    assert isinstance(plain, MapNode)
    assert isinstance(columnar, MapNode)
    assert plain.batch_function is None
    assert columnar.batch_function is not None
    assert list(loader(Negate())) == list(loader(NegateColumns()))


def test_labels_tell_the_kind_and_the_name():
    labels = [loader(step)._plan_node.label for step in (Negate(), Indexed(), Draw())]
    assert labels == ["Map Negate", "MapWithIndex Indexed", "RandomMap Draw"]


def test_a_map_with_index_counts_in_the_samplers_stream_whatever_the_shard():
    sharded = loader(Indexed(), shard_options=ShardOptions(1, 3))
    assert list(sharded) == [(1, 1), (4, 4)]
