"""A data loader for JAX. A program for Grain runs with `import gristmill as grain`."""

import typing as _typing

from gristmill._base.grain_mode import is_grain_mode as _is_grain_mode
from gristmill._base.lazy import lazy_names as _lazy_names
from gristmill._base.version import VERSION as _VERSION
from gristmill._base.version import VERSION_INFO as _VERSION_INFO

if _typing.TYPE_CHECKING:
    from gristmill import (
        checkpoint,
        constants,
        errors,
        experimental,
        monitoring,
        multiprocessing,
        python,
        samplers,
        sharding,
        sources,
        transforms,
    )
    from gristmill import options as options
    from gristmill import types as types
    from gristmill._api.adapters.huggingface.from_huggingface import from_huggingface
    from gristmill._api.adapters.tfds.from_tfds import from_tfds
    from gristmill._api.adapters.torch.from_torch import from_torch
    from gristmill._api.adapters.torch.to_torch import to_torch
    from gristmill._api.dataset.iter_dataset import IterDataset
    from gristmill._api.dataset.iterator import DatasetIterator
    from gristmill._api.dataset.map_dataset import MapDataset
    from gristmill._api.feeding.feed import feed
    from gristmill._api.feeding.iterator import FeedIterator
    from gristmill._api.load import load
    from gristmill._api.loader import DataLoader, DataLoaderIterator
    from gristmill._as_grain.switch import as_grain
    from gristmill._base.config import config
    from gristmill._checkpoint.skipped_record import SkippedRecord
    from gristmill._data.sampling.record import Record, RecordMetadata
    from gristmill._data.sampling.samplers import IndexSampler, Sampler, SequentialSampler
    from gristmill._data.sources.memory.array import ArraySource
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
    from gristmill._metrics.bottleneck import Bottleneck
    from gristmill._metrics.stats import Stats, StepStats
    from gristmill.options import (
        MultiprocessingOptions,
        NoSharding,
        ReadOptions,
        ShardByJaxProcess,
        ShardOptions,
        SkipErrors,
        StorageOptions,
        WorkerOptions,
    )
    from gristmill.python import (
        BatchTransform,
        FilterTransform,
        FlatMapTransform,
        InMemoryDataSource,
        MapTransform,
        MapWithIndexTransform,
        RandomMapTransform,
    )
    from gristmill.python import GrainCheckpointHandler as GrainCheckpointHandler
    from gristmill.python import GrainCheckpointRestore as GrainCheckpointRestore
    from gristmill.python import GrainCheckpointSave as GrainCheckpointSave
    from gristmill.python import PyGrainCheckpointHandler as PyGrainCheckpointHandler
    from gristmill.python import PyGrainCheckpointRestore as PyGrainCheckpointRestore
    from gristmill.python import PyGrainCheckpointSave as PyGrainCheckpointSave
    from gristmill.types import RandomAccessDataSource
else:
    __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "gristmill": (
                "checkpoint, constants, errors, experimental, monitoring, multiprocessing, "
                "options, python, samplers, sharding, sources, transforms, types"
            ),
            "gristmill._api.adapters.huggingface.from_huggingface": "from_huggingface",
            "gristmill._api.adapters.tfds.from_tfds": "from_tfds",
            "gristmill._api.adapters.torch.from_torch": "from_torch",
            "gristmill._api.adapters.torch.to_torch": "to_torch",
            "gristmill._api.dataset.iter_dataset": "IterDataset",
            "gristmill._api.dataset.iterator": "DatasetIterator",
            "gristmill._api.dataset.map_dataset": "MapDataset",
            "gristmill._api.feeding.feed": "feed",
            "gristmill._api.feeding.iterator": "FeedIterator",
            "gristmill._api.load": "load",
            "gristmill._api.loader": "DataLoader, DataLoaderIterator",
            "gristmill._as_grain.switch": "as_grain",
            "gristmill._base.config": "config",
            "gristmill._checkpoint.skipped_record": "SkippedRecord",
            "gristmill._data.sampling.record": "Record, RecordMetadata",
            "gristmill._data.sampling.samplers": "IndexSampler, Sampler, SequentialSampler",
            "gristmill._data.sources.memory.array": "ArraySource",
            "gristmill._data.sources.memory.range": "RangeDataSource",
            "gristmill._data.sources.memory.shared_memory": "SharedMemoryDataSource",
            "gristmill._data.sources.records.array_record": "ArrayRecordDataSource",
            "gristmill._data.transforms.base": (
                "Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap, "
                "Transformation, Transformations"
            ),
            "gristmill._data.transforms.operations": (
                "BatchOperation, FilterOperation, MapOperation, Operation, RandomMapOperation"
            ),
            "gristmill._metrics.bottleneck": "Bottleneck",
            "gristmill._metrics.stats": "Stats, StepStats",
            "gristmill.options": (
                "MultiprocessingOptions, NoSharding, ReadOptions, ShardByJaxProcess, "
                "ShardOptions, SkipErrors, StorageOptions, WorkerOptions"
            ),
            "gristmill.python": (
                "BatchTransform, FilterTransform, FlatMapTransform, InMemoryDataSource, "
                "MapTransform, MapWithIndexTransform, RandomMapTransform, "
                "GrainCheckpointHandler, GrainCheckpointRestore, GrainCheckpointSave, "
                "PyGrainCheckpointHandler, PyGrainCheckpointRestore, PyGrainCheckpointSave"
            ),
            "gristmill.types": "RandomAccessDataSource",
        },
    )

__version__ = _VERSION
__version_info__ = _VERSION_INFO

__all__ = [
    "ArrayRecordDataSource",
    "ArraySource",
    "Batch",
    "BatchOperation",
    "BatchTransform",
    "Bottleneck",
    "DataLoader",
    "DataLoaderIterator",
    "DatasetIterator",
    "FeedIterator",
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
    "SkipErrors",
    "SkippedRecord",
    "Stats",
    "StepStats",
    "StorageOptions",
    "TfRandomMap",
    "Transformation",
    "Transformations",
    "WorkerOptions",
    "as_grain",
    "checkpoint",
    "config",
    "constants",
    "errors",
    "experimental",
    "feed",
    "from_huggingface",
    "from_tfds",
    "from_torch",
    "load",
    "monitoring",
    "multiprocessing",
    "python",
    "samplers",
    "sharding",
    "sources",
    "to_torch",
    "transforms",
]

if _is_grain_mode():  # set for launchers, and by the program that started this worker process
    from gristmill._as_grain.switch import as_grain

    as_grain()
