"""The fluent face: `MapDataset`, `IterDataset` and their iterators."""

from gristmill.dataset._elastic import ElasticIterator
from gristmill.dataset._files import ParquetIterDataset, TFRecordIterDataset
from gristmill.dataset._iter import (
    FlatMapIterDataset,
    IterDataset,
    PlannedIterDataset,
    ThreadPrefetchIterDataset,
)
from gristmill.dataset._iterator import DatasetIterator, StreamIterator
from gristmill.dataset._map import (
    FlatMapMapDataset,
    MapDataset,
    PlannedMapDataset,
    WindowShuffleMapDataset,
    ZipMapDataset,
)
from gristmill.dataset._next_index import get_next_index, set_next_index
from gristmill.dataset._options import (
    DatasetOptions,
    ExecutionTrackingMode,
    WithOptionsIterDataset,
)
from gristmill.dataset._packing import (
    BestFitPackIterDataset,
    BOSHandling,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    PackAndBatchOperation,
)
from gristmill.dataset._performance import PerformanceConfig, pick_performance_config
from gristmill.dataset._prefetch import (
    ThreadPrefetchDatasetIterator,
    multithread_prefetch,
)
from gristmill.dataset._rng_pool import RngPool
from gristmill.dataset._spec import (
    ShapeDtypeStruct,
    ShapeDtypeStructProtocol,
    get_element_spec,
)
from gristmill.dataset._streams import (
    CacheIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    RepeatIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)
from gristmill.dataset._tools import (
    apply_transformations,
    assert_equal_output_after_checkpoint,
    batch_and_pad,
    index_shuffle,
)

__all__ = [
    "BOSHandling",
    "BestFitPackIterDataset",
    "CacheIterDataset",
    "ConcatThenSplitIterDataset",
    "DatasetIterator",
    "DatasetOptions",
    "ElasticIterator",
    "ExecutionTrackingMode",
    "FirstFitPackIterDataset",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "InterleaveIterDataset",
    "IterDataset",
    "LimitIterDataset",
    "MapDataset",
    "PackAndBatchOperation",
    "ParquetIterDataset",
    "PerformanceConfig",
    "PlannedIterDataset",
    "PlannedMapDataset",
    "RebatchIterDataset",
    "RepeatIterDataset",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
    "StreamIterator",
    "TFRecordIterDataset",
    "ThreadPrefetchDatasetIterator",
    "ThreadPrefetchIterDataset",
    "WindowShuffleIterDataset",
    "WindowShuffleMapDataset",
    "WithOptionsIterDataset",
    "ZipIterDataset",
    "ZipMapDataset",
    "apply_transformations",
    "assert_equal_output_after_checkpoint",
    "batch_and_pad",
    "get_element_spec",
    "get_next_index",
    "index_shuffle",
    "multithread_prefetch",
    "pick_performance_config",
    "set_next_index",
]
