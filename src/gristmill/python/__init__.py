"""The names of Grain's `python` module, including older spellings of the same objects."""

import typing as _typing

from gristmill._base.lazy import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from gristmill import constants, samplers, sharding, sources, transforms
    from gristmill._api.dataset.iter_dataset import IterDataset
    from gristmill._api.dataset.iterator import DatasetIterator
    from gristmill._api.dataset.map_dataset import MapDataset
    from gristmill._api.loader.iterator import DataLoaderIterator
    from gristmill._api.loader.iterator import DataLoaderIterator as PyGrainDatasetIterator
    from gristmill._api.loader.load import load
    from gristmill._api.loader.loader import DataLoader
    from gristmill._base.grain.config import config
    from gristmill._base.memory.shared_memory_array import (
        SharedMemoryArray,
        SharedMemoryArrayMetadata,
    )
    from gristmill._checkpoint.orbax import CheckpointHandler, CheckpointRestore, CheckpointSave
    from gristmill._data.sampling.record import Record, RecordMetadata
    from gristmill._data.sampling.samplers import IndexSampler, Sampler, SequentialSampler
    from gristmill._data.sources.memory.range import RangeDataSource
    from gristmill._data.sources.memory.shared_memory import SharedMemoryDataSource
    from gristmill._data.sources.memory.shared_memory import (
        SharedMemoryDataSource as InMemoryDataSource,
    )
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
    from gristmill._data.transforms.base import Batch as BatchTransform
    from gristmill._data.transforms.base import Filter as FilterTransform
    from gristmill._data.transforms.base import FlatMap as FlatMapTransform
    from gristmill._data.transforms.base import Map as MapTransform
    from gristmill._data.transforms.base import MapWithIndex as MapWithIndexTransform
    from gristmill._data.transforms.base import RandomMap as RandomMapTransform
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

    GrainCheckpointHandler = PyGrainCheckpointHandler = CheckpointHandler
    GrainCheckpointRestore = PyGrainCheckpointRestore = CheckpointRestore
    GrainCheckpointSave = PyGrainCheckpointSave = CheckpointSave
else:
    __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "gristmill": "constants, samplers, sharding, sources, transforms",
            "gristmill._api.dataset.iter_dataset": "IterDataset",
            "gristmill._api.dataset.iterator": "DatasetIterator",
            "gristmill._api.dataset.map_dataset": "MapDataset",
            "gristmill._api.loader.load": "load",
            "gristmill._api.loader.loader": "DataLoader",
            "gristmill._api.loader.iterator": (
                "DataLoaderIterator, DataLoaderIterator as PyGrainDatasetIterator"
            ),
            "gristmill._base.grain.config": "config",
            "gristmill._base.memory.shared_memory_array": (
                "SharedMemoryArray, SharedMemoryArrayMetadata"
            ),
            "gristmill._checkpoint.orbax": (
                "CheckpointHandler as GrainCheckpointHandler, "
                "CheckpointHandler as PyGrainCheckpointHandler, "
                "CheckpointRestore as GrainCheckpointRestore, "
                "CheckpointRestore as PyGrainCheckpointRestore, "
                "CheckpointSave as GrainCheckpointSave, "
                "CheckpointSave as PyGrainCheckpointSave"
            ),
            "gristmill._data.sampling.record": "Record, RecordMetadata",
            "gristmill._data.sampling.samplers": "IndexSampler, Sampler, SequentialSampler",
            "gristmill._data.sources.memory.range": "RangeDataSource",
            "gristmill._data.sources.memory.shared_memory": (
                "SharedMemoryDataSource, SharedMemoryDataSource as InMemoryDataSource"
            ),
            "gristmill._data.sources.records.array_record": "ArrayRecordDataSource",
            "gristmill._data.transforms.base": (
                "Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap, "
                "Transformation, Transformations, Batch as BatchTransform, "
                "Filter as FilterTransform, FlatMap as FlatMapTransform, Map as MapTransform, "
                "MapWithIndex as MapWithIndexTransform, RandomMap as RandomMapTransform"
            ),
            "gristmill._data.transforms.operations": (
                "BatchOperation, FilterOperation, MapOperation, Operation, RandomMapOperation"
            ),
            "gristmill._data.transforms.selection": "DatasetSelectionMap",
            "gristmill.constants": (
                "DATASET_INDEX, EPOCH, INDEX, META_FEATURES, RECORD, RECORD_KEY, SEED"
            ),
            "gristmill.options": (
                "MultiprocessingOptions, NoSharding, ReadOptions, ShardByJaxProcess, ShardOptions"
            ),
            "gristmill.python": "experimental",
            "gristmill.types": "RandomAccessDataSource",
        },
    )

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
    "SharedMemoryArray",
    "SharedMemoryArrayMetadata",
    "SharedMemoryDataSource",
    "TfRandomMap",
    "Transformation",
    "Transformations",
    "config",
    "constants",
    "experimental",
    "load",
    "samplers",
    "sharding",
    "sources",
    "transforms",
]
