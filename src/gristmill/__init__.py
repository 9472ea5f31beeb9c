"""gristmill: the data loader that feeds JAX. `import gristmill as grain` is all a program needs."""

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
from gristmill._extras import names_on_demand as _names_on_demand
from gristmill.adapters import from_huggingface, from_tfds, from_torch, to_torch
from gristmill.checkpoint import SkippedRecord
from gristmill.dataset import DatasetIterator, IterDataset, MapDataset
from gristmill.feeding import FeedIterator, feed
from gristmill.loader import DataLoader, DataLoaderIterator, load
from gristmill.observe import Stats, StepStats
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
from gristmill.order import IndexSampler, Record, RecordMetadata, Sampler, SequentialSampler
from gristmill.python import (
    BatchTransform,
    FilterTransform,
    FlatMapTransform,
    InMemoryDataSource,
    MapTransform,
    MapWithIndexTransform,
    RandomMapTransform,
)
from gristmill.sources import (
    ArrayRecordDataSource,
    ArraySource,
    RandomAccessDataSource,
    RangeDataSource,
    SharedMemoryDataSource,
)
from gristmill.transforms import (
    Batch,
    BatchOperation,
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
    from gristmill.python import GrainCheckpointHandler as GrainCheckpointHandler
    from gristmill.python import GrainCheckpointRestore as GrainCheckpointRestore
    from gristmill.python import GrainCheckpointSave as GrainCheckpointSave
    from gristmill.python import PyGrainCheckpointHandler as PyGrainCheckpointHandler
    from gristmill.python import PyGrainCheckpointRestore as PyGrainCheckpointRestore
    from gristmill.python import PyGrainCheckpointSave as PyGrainCheckpointSave
else:
    __getattr__ = _names_on_demand(
        __name__,
        home="gristmill.python",
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
