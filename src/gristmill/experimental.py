"""The names of Grain's `experimental` module: less common datasets, iterators and functions."""

from gristmill._api.dataset.element_spec import get_element_spec
from gristmill._api.dataset.indexed_datasets import WindowShuffleMapDataset, ZipMapDataset
from gristmill._api.dataset.iter_dataset import FlatMapIterDataset, ThreadPrefetchIterDataset
from gristmill._api.dataset.map_dataset import FlatMapMapDataset
from gristmill._api.dataset.options import (
    DatasetOptions,
    ExecutionTrackingMode,
    WithOptionsIterDataset,
)
from gristmill._api.dataset.packing import (
    BestFitPackIterDataset,
    BOSHandling,
    ConcatThenSplitIterDataset,
    FirstFitPackIterDataset,
    PackAndBatchOperation,
)
from gristmill._api.dataset.stream_datasets import (
    CacheIterDataset,
    InterleaveIterDataset,
    LimitIterDataset,
    RebatchIterDataset,
    RepeatIterDataset,
    WindowShuffleIterDataset,
    ZipIterDataset,
)
from gristmill._api.experimental.elastic import ElasticIterator
from gristmill._api.experimental.file_datasets import ParquetIterDataset, TFRecordIterDataset
from gristmill._api.experimental.functions import (
    apply_transformations,
    assert_equal_output_after_checkpoint,
    batch_and_pad,
    index_shuffle,
)
from gristmill._api.experimental.next_index import get_next_index, set_next_index
from gristmill._api.experimental.performance_config import (
    PerformanceConfig,
    pick_performance_config,
)
from gristmill._api.experimental.rng_pool import RngPool
from gristmill._api.experimental.thread_prefetch import (
    ThreadPrefetchDatasetIterator,
    multithread_prefetch,
)
from gristmill._api.feeding.device_put import device_put
from gristmill._data.transforms.base import FlatMap as FlatMapTransform
from gristmill._data.transforms.base import MapWithIndex as MapWithIndexTransform
from gristmill._plan.element_spec import ShapeDtypeStruct, ShapeDtypeStructProtocol

__all__ = [
    "BOSHandling",
    "BestFitPackIterDataset",
    "CacheIterDataset",
    "ConcatThenSplitIterDataset",
    "DatasetOptions",
    "ElasticIterator",
    "ExecutionTrackingMode",
    "FirstFitPackIterDataset",
    "FlatMapIterDataset",
    "FlatMapMapDataset",
    "FlatMapTransform",
    "InterleaveIterDataset",
    "LimitIterDataset",
    "MapWithIndexTransform",
    "PackAndBatchOperation",
    "ParquetIterDataset",
    "PerformanceConfig",
    "RebatchIterDataset",
    "RepeatIterDataset",
    "RngPool",
    "ShapeDtypeStruct",
    "ShapeDtypeStructProtocol",
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
    "device_put",
    "get_element_spec",
    "get_next_index",
    "index_shuffle",
    "multithread_prefetch",
    "pick_performance_config",
    "set_next_index",
]
