"""A data loader for JAX. A program for Grain runs with `import gristmill as grain`."""

import sys as _sys
import typing as _typing

if _sys.platform == "win32":
    raise ImportError("gristmill runs on Linux and macOS, not on Windows. Use it in WSL 2.")

from gristmill._base.grain.mode import is_grain_mode as _is_grain_mode
from gristmill._base.lazy import lazy_names as _lazy_names
from gristmill._base.version import VERSION as _VERSION
from gristmill._base.version import VERSION_INFO as _VERSION_INFO

if _typing.TYPE_CHECKING:
    from gristmill import (
        checkpoint,
        constants,
        errors,
        experimental,
        exporters,
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
    from gristmill._api.adapters.from_generator import from_generator
    from gristmill._api.adapters.huggingface.from_huggingface import from_huggingface
    from gristmill._api.adapters.tfds.from_tfds import from_tfds
    from gristmill._api.adapters.torch.from_torch import from_torch
    from gristmill._api.adapters.torch.to_torch import to_torch
    from gristmill._api.dataset.iter_dataset import IterDataset
    from gristmill._api.dataset.iterator import DatasetIterator
    from gristmill._api.dataset.map_dataset import MapDataset
    from gristmill._api.feeding.feed import feed
    from gristmill._api.feeding.iterator import FeedIterator
    from gristmill._api.feeding.mesh_shards import ShardByMesh
    from gristmill._api.loader.iterator import DataLoaderIterator
    from gristmill._api.loader.load import load
    from gristmill._api.loader.loader import DataLoader
    from gristmill._api.monitoring.progress import progress
    from gristmill._api.preview import Preview
    from gristmill._api.split import k_fold, split
    from gristmill._api.statistics import Statistics, statistics
    from gristmill._api.write import write
    from gristmill._as_grain.switch import as_grain
    from gristmill._base.grain.config import config
    from gristmill._checkpoint.skipped_record import SkippedRecord
    from gristmill._data.sampling.epoch_samplers import SubsetSampler, WeightedSampler
    from gristmill._data.sampling.record import Record, RecordMetadata
    from gristmill._data.sampling.samplers import IndexSampler, Sampler, SequentialSampler
    from gristmill._data.sources.memory.array import ArraySource
    from gristmill._data.sources.memory.range import RangeDataSource
    from gristmill._data.sources.memory.shared_memory import SharedMemoryDataSource
    from gristmill._data.sources.record_location import RecordLocation
    from gristmill._data.sources.records.array_record import ArrayRecordDataSource
    from gristmill._data.statistics.leaf_statistics import LeafStatistics
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
    from gristmill._engine.provenance.origin import Provenance, RandomDraw, RecordOrigin
    from gristmill._metrics.bottleneck import Bottleneck
    from gristmill._metrics.explanation import Change, Explanation
    from gristmill._metrics.headspace import Headspace
    from gristmill._metrics.stats import Stats, StepStats, WorkerStats
    from gristmill._plan.mix_schedule import MixSchedule
    from gristmill.options import (
        MultiprocessingOptions,
        NoSharding,
        RayOptions,
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
                "checkpoint, constants, errors, experimental, exporters, monitoring, "
                "multiprocessing, options, python, samplers, sharding, sources, transforms, types"
            ),
            "gristmill._api.adapters.from_generator": "from_generator",
            "gristmill._api.adapters.huggingface.from_huggingface": "from_huggingface",
            "gristmill._api.adapters.tfds.from_tfds": "from_tfds",
            "gristmill._api.adapters.torch.from_torch": "from_torch",
            "gristmill._api.adapters.torch.to_torch": "to_torch",
            "gristmill._api.dataset.iter_dataset": "IterDataset",
            "gristmill._api.dataset.iterator": "DatasetIterator",
            "gristmill._api.dataset.map_dataset": "MapDataset",
            "gristmill._api.feeding.feed": "feed",
            "gristmill._api.feeding.iterator": "FeedIterator",
            "gristmill._api.feeding.mesh_shards": "ShardByMesh",
            "gristmill._api.loader.load": "load",
            "gristmill._api.loader.loader": "DataLoader",
            "gristmill._api.loader.iterator": "DataLoaderIterator",
            "gristmill._api.split": "k_fold, split",
            "gristmill._api.statistics": "Statistics, statistics",
            "gristmill._api.preview": "Preview",
            "gristmill._api.monitoring.progress": "progress",
            "gristmill._api.write": "write",
            "gristmill._as_grain.switch": "as_grain",
            "gristmill._base.grain.config": "config",
            "gristmill._checkpoint.skipped_record": "SkippedRecord",
            "gristmill._data.sampling.epoch_samplers": "SubsetSampler, WeightedSampler",
            "gristmill._data.sampling.record": "Record, RecordMetadata",
            "gristmill._data.sampling.samplers": "IndexSampler, Sampler, SequentialSampler",
            "gristmill._data.sources.memory.array": "ArraySource",
            "gristmill._data.sources.memory.range": "RangeDataSource",
            "gristmill._data.sources.memory.shared_memory": "SharedMemoryDataSource",
            "gristmill._data.sources.record_location": "RecordLocation",
            "gristmill._data.sources.records.array_record": "ArrayRecordDataSource",
            "gristmill._data.transforms.base": (
                "Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap, "
                "Transformation, Transformations"
            ),
            "gristmill._data.transforms.operations": (
                "BatchOperation, FilterOperation, MapOperation, Operation, RandomMapOperation"
            ),
            "gristmill._data.statistics.leaf_statistics": "LeafStatistics",
            "gristmill._engine.provenance.origin": "Provenance, RandomDraw, RecordOrigin",
            "gristmill._metrics.bottleneck": "Bottleneck",
            "gristmill._metrics.explanation": "Change, Explanation",
            "gristmill._metrics.headspace": "Headspace",
            "gristmill._metrics.stats": "Stats, StepStats, WorkerStats",
            "gristmill._plan.mix_schedule": "MixSchedule",
            "gristmill.options": (
                "MultiprocessingOptions, NoSharding, RayOptions, ReadOptions, ShardByJaxProcess, "
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
    "Change",
    "DataLoader",
    "DataLoaderIterator",
    "DatasetIterator",
    "Explanation",
    "FeedIterator",
    "Filter",
    "FilterOperation",
    "FilterTransform",
    "FlatMap",
    "FlatMapTransform",
    "Headspace",
    "InMemoryDataSource",
    "IndexSampler",
    "IterDataset",
    "LeafStatistics",
    "Map",
    "MapDataset",
    "MapOperation",
    "MapTransform",
    "MapWithIndex",
    "MapWithIndexTransform",
    "MixSchedule",
    "MultiprocessingOptions",
    "NoSharding",
    "Operation",
    "Preview",
    "Provenance",
    "RandomAccessDataSource",
    "RandomDraw",
    "RandomMap",
    "RandomMapOperation",
    "RandomMapTransform",
    "RangeDataSource",
    "RayOptions",
    "ReadOptions",
    "Record",
    "RecordLocation",
    "RecordMetadata",
    "RecordOrigin",
    "Sampler",
    "SequentialSampler",
    "ShardByJaxProcess",
    "ShardByMesh",
    "ShardOptions",
    "SharedMemoryDataSource",
    "SkipErrors",
    "SkippedRecord",
    "Statistics",
    "Stats",
    "StepStats",
    "StorageOptions",
    "SubsetSampler",
    "TfRandomMap",
    "Transformation",
    "Transformations",
    "WeightedSampler",
    "WorkerOptions",
    "WorkerStats",
    "as_grain",
    "checkpoint",
    "config",
    "constants",
    "errors",
    "experimental",
    "exporters",
    "feed",
    "from_generator",
    "from_huggingface",
    "from_tfds",
    "from_torch",
    "k_fold",
    "load",
    "monitoring",
    "multiprocessing",
    "progress",
    "python",
    "samplers",
    "sharding",
    "sources",
    "split",
    "statistics",
    "to_torch",
    "transforms",
    "write",
]

if _is_grain_mode():  # set for launchers, and by the program that started this worker process
    from gristmill._as_grain.switch import as_grain

    as_grain()
