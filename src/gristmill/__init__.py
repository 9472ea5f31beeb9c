"""A data loader for JAX. A program for Grain runs with `import gristmill as grain`."""

import typing as _typing

from gristmill import (
    checkpoint,
    constants,
    errors,
    experimental,
    multiprocessing,
    python,
    samplers,
    sharding,
    sources,
    transforms,
)
from gristmill._api.adapters.huggingface.from_huggingface import from_huggingface
from gristmill._api.adapters.tfds.from_tfds import from_tfds
from gristmill._api.adapters.torch.from_torch import from_torch
from gristmill._api.adapters.torch.to_torch import to_torch
from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.feeding.feed import feed
from gristmill._api.feeding.iterator import FeedIterator
from gristmill._api.loader import DataLoader, DataLoaderIterator, load
from gristmill._base.extras import lazy_attributes as _lazy_attributes
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
from gristmill.types import RandomAccessDataSource

if _typing.TYPE_CHECKING:
    from gristmill.python import GrainCheckpointHandler as GrainCheckpointHandler
    from gristmill.python import GrainCheckpointRestore as GrainCheckpointRestore
    from gristmill.python import GrainCheckpointSave as GrainCheckpointSave
    from gristmill.python import PyGrainCheckpointHandler as PyGrainCheckpointHandler
    from gristmill.python import PyGrainCheckpointRestore as PyGrainCheckpointRestore
    from gristmill.python import PyGrainCheckpointSave as PyGrainCheckpointSave
else:
    __getattr__ = _lazy_attributes(
        __name__,
        target="gristmill.python",
        names={
            name: name
            for kind in ("Handler", "Restore", "Save")
            for name in (f"GrainCheckpoint{kind}", f"PyGrainCheckpoint{kind}")
        },
    )

__version__ = "0.1.0"

__all__ = [
    "ArrayRecordDataSource",
    "ArraySource",
    "Batch",
    "BatchOperation",
    "BatchTransform",
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
    "checkpoint",
    "constants",
    "errors",
    "experimental",
    "feed",
    "from_huggingface",
    "from_tfds",
    "from_torch",
    "load",
    "multiprocessing",
    "python",
    "samplers",
    "sharding",
    "sources",
    "to_torch",
    "transforms",
]
