"""The names of Grain's `experimental` module: less common datasets, iterators and functions."""

import typing as _typing

from gristmill._base.lazy import lazy_names as _lazy_names

if _typing.TYPE_CHECKING:
    from gristmill._api.dataset.element_spec import get_element_spec
    from gristmill._api.dataset.indexed_datasets import WindowShuffleMapDataset, ZipMapDataset
    from gristmill._api.dataset.iter_dataset import FlatMapIterDataset, ThreadPrefetchIterDataset
    from gristmill._api.dataset.map_dataset import FlatMapMapDataset
    from gristmill._api.dataset.options import DatasetOptions, ExecutionTrackingMode
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
    from gristmill._api.dataset.with_options import WithOptionsIterDataset
    from gristmill._api.experimental.elastic import ElasticIterator
    from gristmill._api.experimental.file_datasets import (
        ParquetIterDataset,
        TarIterDataset,
        TFRecordIterDataset,
    )
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
else:
    __getattr__, __dir__ = _lazy_names(
        __name__,
        {
            "gristmill._api.dataset.element_spec": "get_element_spec",
            "gristmill._api.dataset.indexed_datasets": "WindowShuffleMapDataset, ZipMapDataset",
            "gristmill._api.dataset.iter_dataset": "FlatMapIterDataset, ThreadPrefetchIterDataset",
            "gristmill._api.dataset.map_dataset": "FlatMapMapDataset",
            "gristmill._api.dataset.options": "DatasetOptions, ExecutionTrackingMode",
            "gristmill._api.dataset.packing": (
                "BestFitPackIterDataset, BOSHandling, ConcatThenSplitIterDataset, "
                "FirstFitPackIterDataset, PackAndBatchOperation"
            ),
            "gristmill._api.dataset.stream_datasets": (
                "CacheIterDataset, InterleaveIterDataset, LimitIterDataset, RebatchIterDataset, "
                "RepeatIterDataset, WindowShuffleIterDataset, ZipIterDataset"
            ),
            "gristmill._api.dataset.with_options": "WithOptionsIterDataset",
            "gristmill._api.experimental.elastic": "ElasticIterator",
            "gristmill._api.experimental.file_datasets": (
                "ParquetIterDataset, TarIterDataset, TFRecordIterDataset"
            ),
            "gristmill._api.experimental.functions": (
                "apply_transformations, assert_equal_output_after_checkpoint, batch_and_pad, "
                "index_shuffle"
            ),
            "gristmill._api.experimental.next_index": "get_next_index, set_next_index",
            "gristmill._api.experimental.performance_config": (
                "PerformanceConfig, pick_performance_config"
            ),
            "gristmill._api.experimental.rng_pool": "RngPool",
            "gristmill._api.experimental.thread_prefetch": (
                "ThreadPrefetchDatasetIterator, multithread_prefetch"
            ),
            "gristmill._api.feeding.device_put": "device_put",
            "gristmill._data.transforms.base": (
                "FlatMap as FlatMapTransform, MapWithIndex as MapWithIndexTransform"
            ),
            "gristmill._plan.element_spec": "ShapeDtypeStruct, ShapeDtypeStructProtocol",
        },
    )

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
    "TarIterDataset",
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
