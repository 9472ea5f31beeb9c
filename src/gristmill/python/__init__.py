"""Grain's `python` module: the same objects, the older spellings among them."""

import typing as _typing

from gristmill import constants, samplers, sharding, sources, transforms
from gristmill._extras import names_on_demand as _names_on_demand
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
from gristmill.sources import (
    ArrayRecordDataSource,
    RandomAccessDataSource,
    RangeDataSource,
    SharedMemoryDataSource,
)
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

if _typing.TYPE_CHECKING:
    from gristmill.checkpoint import CheckpointHandler, CheckpointRestore, CheckpointSave

    GrainCheckpointHandler = PyGrainCheckpointHandler = CheckpointHandler
    GrainCheckpointRestore = PyGrainCheckpointRestore = CheckpointRestore
    GrainCheckpointSave = PyGrainCheckpointSave = CheckpointSave
else:
    __getattr__ = _names_on_demand(
        __name__,
        home="gristmill.checkpoint",
        names={
            f"{prefix}Checkpoint{kind}": f"Checkpoint{kind}"
            for prefix in ("Grain", "PyGrain")
            for kind in ("Handler", "Restore", "Save")
        },
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
    "ArrayRecordDataSource",
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
