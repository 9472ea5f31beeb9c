"""The names of Grain's `python` module, including older spellings of the same objects."""

import typing as _typing

from gristmill import constants, samplers, sharding, sources, transforms
from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.loader import DataLoader, DataLoaderIterator, load
from gristmill._base.extras import lazy_attributes as _lazy_attributes
from gristmill._data.sampling.record import Record, RecordMetadata
from gristmill._data.sampling.samplers import IndexSampler, Sampler, SequentialSampler
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._data.sources.memory.shared_memory import SharedMemoryDataSource
from gristmill._data.sources.records.array_record import ArrayRecordDataSource
from gristmill._data.transforms.base import (
    Batch,
    Filter,
    FlatMap,
    Map,
    MapWithIndex,
    RandomMap,
    TfRandomMap,
    Transformation,
    Transformations,
)
from gristmill._data.transforms.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)
from gristmill._data.transforms.selection import DatasetSelectionMap
from gristmill.constants import (
    DATASET_INDEX,
    EPOCH,
    INDEX,
    META_FEATURES,
    RECORD,
    RECORD_KEY,
    SEED,
)
from gristmill.options import (
    MultiprocessingOptions,
    NoSharding,
    ReadOptions,
    ShardByJaxProcess,
    ShardOptions,
)
from gristmill.python import experimental
from gristmill.types import RandomAccessDataSource

if _typing.TYPE_CHECKING:
    from gristmill._checkpoint.orbax import CheckpointHandler, CheckpointRestore, CheckpointSave

    GrainCheckpointHandler = PyGrainCheckpointHandler = CheckpointHandler
    GrainCheckpointRestore = PyGrainCheckpointRestore = CheckpointRestore
    GrainCheckpointSave = PyGrainCheckpointSave = CheckpointSave
else:
    __getattr__ = _lazy_attributes(
        __name__,
        target="gristmill.checkpoint",
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
