"""Grain's `python` module: the same objects, the older spellings among them."""

from gristmill import constants, samplers, sharding, sources, transforms
from gristmill.constants import (
    DATASET_INDEX,
    EPOCH,
    INDEX,
    META_FEATURES,
    RECORD,
    RECORD_KEY,
    SEED,
)
from gristmill.dataset import DatasetIterator, IterDataset, MapDataset
from gristmill.loader import DataLoader, DataLoaderIterator, load
from gristmill.options import (
    MultiprocessingOptions,
    NoSharding,
    ReadOptions,
    ShardByJaxProcess,
    ShardOptions,
)
from gristmill.order import IndexSampler, Record, RecordMetadata, Sampler, SequentialSampler
from gristmill.python import experimental
from gristmill.sources import RandomAccessDataSource, RangeDataSource, SharedMemoryDataSource
from gristmill.transforms import (
    Batch,
    BatchOperation,
    DatasetSelectionMap,
    Filter,
    FilterOperation,
    FlatMap,
    Map,
    MapOperation,
    MapWithIndex,
    Operation,
    RandomMap,
    RandomMapOperation,
    TfRandomMap,
    Transformation,
    Transformations,
)

BatchTransform = Batch
FilterTransform = Filter
FlatMapTransform = FlatMap
InMemoryDataSource = SharedMemoryDataSource
MapTransform = Map
MapWithIndexTransform = MapWithIndex
PyGrainDatasetIterator = DataLoaderIterator
RandomMapTransform = RandomMap

__all__ = [
    "DATASET_INDEX",
    "EPOCH",
    "INDEX",
    "META_FEATURES",
    "RECORD",
    "RECORD_KEY",
    "SEED",
    "Batch",
    "BatchOperation",
    "BatchTransform",
    "DataLoader",
    "DataLoaderIterator",
    "DatasetIterator",
    "DatasetSelectionMap",
    "Filter",
    "FilterOperation",
    "FilterTransform",
    "FlatMap",
    "FlatMapTransform",
    "InMemoryDataSource",
    "IndexSampler",
    "IterDataset",
    "Map",
    "MapDataset",
    "MapOperation",
    "MapTransform",
    "MapWithIndex",
    "MapWithIndexTransform",
    "MultiprocessingOptions",
    "NoSharding",
    "Operation",
    "PyGrainDatasetIterator",
    "RandomAccessDataSource",
    "RandomMap",
    "RandomMapOperation",
    "RandomMapTransform",
    "RangeDataSource",
    "ReadOptions",
    "Record",
    "RecordMetadata",
    "Sampler",
    "SequentialSampler",
    "ShardByJaxProcess",
    "ShardOptions",
    "SharedMemoryDataSource",
    "TfRandomMap",
    "Transformation",
    "Transformations",
    "constants",
    "experimental",
    "load",
    "samplers",
    "sharding",
    "sources",
    "transforms",
]
