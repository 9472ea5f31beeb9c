"""The modules of Grain that gristmill replaces, and where their names come from."""

from collections.abc import Mapping

_TRANSFORMATIONS = (
    "batch cache filter flatmap interleave limit map mix packing packing_concat_then_split "
    "prefetch prefetch_autotune process_prefetch rebatch repeat shuffle slice source zip"
)

FACADES: Mapping[str, tuple[str, ...]] = {
    "grain": ("gristmill",),
    **{
        f"grain.{name}": (f"gristmill.{name}",)
        for name in (
            "checkpoint",
            "constants",
            "experimental",
            "multiprocessing",
            "python",
            "python.experimental",
            "samplers",
            "sharding",
            "sources",
            "transforms",
        )
    },
    "grain._src.core.config": ("gristmill",),
    "grain._src.core.constants": ("gristmill.constants",),
    "grain._src.core.monitoring": ("gristmill.monitoring",),
    "grain._src.core.sharding": ("gristmill.sharding",),
    "grain._src.core.transforms": ("gristmill.transforms", "gristmill.python.experimental"),
    "grain._src.core.tree": (),
    "grain._src.core.tree_lib": (),
    "grain._src.core.version": (),
    "grain._src.python.checkpoint.handler": ("gristmill.checkpoint",),
    "grain._src.python.checkpoint_handlers": ("gristmill.checkpoint", "gristmill.python"),
    "grain._src.python.data_loader": ("gristmill",),
    "grain._src.python.data_sources": ("gristmill.sources", "gristmill.python"),
    "grain._src.python.dataset.base": ("gristmill.python", "gristmill.experimental"),
    "grain._src.python.dataset.dataset": ("gristmill", "gristmill.experimental"),
    "grain._src.python.dataset.elastic_iterator": ("gristmill.experimental",),
    "grain._src.python.dataset.stats": (),
    "grain._src.python.dataset.sources.parquet_dataset": ("gristmill.experimental",),
    "grain._src.python.dataset.sources.tfrecord_dataset": ("gristmill.experimental",),
    **{
        f"grain._src.python.dataset.transformations.{name}": ("gristmill.experimental",)
        for name in _TRANSFORMATIONS.split()
    },
    "grain._src.python.experimental.device_put.device_put": ("gristmill.experimental",),
    "grain._src.python.experimental.example_packing.packing": ("gristmill.experimental",),
    "grain._src.python.experimental.index_shuffle.python.index_shuffle_module": (
        "gristmill.experimental",
    ),
    "grain._src.python.ipc.shared_memory_array": ("gristmill.multiprocessing",),
    "grain._src.python.load": ("gristmill",),
    "grain._src.python.operations": ("gristmill.python",),
    "grain._src.python.options": ("gristmill",),
    "grain._src.python.record": ("gristmill",),
    "grain._src.python.samplers": ("gristmill.samplers",),
    "grain._src.python.shared_memory_array": ("gristmill.multiprocessing",),
    "grain._src.python.testing.experimental": ("gristmill.experimental",),
}
"""The public modules of gristmill whose names each module of Grain has.

The modules of `grain._src` are those that programs were found to import: Keras, etils, axlearn,
kauldron, MaxText, torchtitan and smaller ones.
"""

_JAX_TREE = {
    "map_structure": "jax.tree_util:tree_map",
    "map_structure_with_path": "jax.tree_util:tree_map_with_path",
    "flatten": "jax.tree_util:tree_leaves",
}

_VERSION = {
    "__version__": "gristmill._as_grain.grain_only_names:GRAIN_VERSION",
    "__version_info__": "gristmill._as_grain.grain_only_names:GRAIN_VERSION_INFO",
}

_STATS = (
    "IPL_CAT_ENQUEUE IPL_CAT_PREFETCH IPL_CAT_PREPROCESSING IPL_CAT_READ IPL_CAT_UNKNOWN Timer "
    "record_next_duration_if_output trace_input_pipeline trace_input_pipeline_next "
    "trace_input_pipeline_prefetch"
)

EXTRA_NAMES: Mapping[str, Mapping[str, str]] = {
    "grain._src.core.tree": _JAX_TREE,
    "grain._src.core.tree_lib": _JAX_TREE,
    "grain._src.core.version": _VERSION,
    "grain": _VERSION,
    "grain._src.core.sharding": {
        "even_split": "gristmill._as_grain.grain_only_names:even_split",
    },
    "grain._src.python.data_loader": {
        "_determine_worker_count": "gristmill._as_grain.grain_only_names:worker_count",
    },
    "grain._src.python.dataset.base": {
        name: f"gristmill._api.dataset.iterator_context:{name}"
        for name in ("IteratorContext", "MultiprocessingContext")
    },
    "grain._src.python.dataset.dataset": {
        "MapDatasetMeta": "gristmill._api.dataset.map_dataset:MapDatasetMeta",
        "IterDatasetMeta": "gristmill._api.dataset.iter_dataset:IterDatasetMeta",
    },
    "grain._src.python.dataset.sources.tfrecord_dataset": {
        "_TFRecordReader": "gristmill._as_grain.grain_tfrecord:TFRecordReader",
        "_TFRecordDatasetIterator": "gristmill._as_grain.grain_tfrecord:TFRecordDatasetIterator",
    },
    "grain._src.python.dataset.transformations.mix": {
        "MixedIterDataset": "gristmill._as_grain.grain_mix:MixedIterDataset",
    },
    "grain._src.python.dataset.transformations.process_prefetch": {
        "_PROCESS_KILL_TIMEOUT_S": "gristmill._as_grain.grain_only_names:PROCESS_KILL_TIMEOUT_S",
    },
    "grain._src.python.dataset.stats": {
        name: f"gristmill._as_grain.grain_stats:{name}" for name in _STATS.split()
    },
}
"""Names that no public module of gristmill has, as `module:name`."""

REPLACEMENTS: Mapping[str, str] = {
    "SingleBinPackIterDataset": (
        "`grain.experimental.FirstFitPackIterDataset(ds, ..., num_packing_bins=1)`"
    ),
    "MultiprocessPrefetchIterDataset": "`ds.mp_prefetch(grain.MultiprocessingOptions(...))`",
    "ProcessPrefetchIterDataset": "`ds.mp_prefetch(grain.MultiprocessingOptions(...))`",
    "PrefetchIterDataset": "`ds.to_iter_dataset(grain.ReadOptions(...))`",
    "BatchMapDataset": "`ds.batch(...)`",
    "BatchIterDataset": "`ds.batch(...)`",
    "MapMapDataset": "`ds.map(...)`",
    "MapIterDataset": "`ds.map(...)`",
    "FilterMapDataset": "`ds.filter(...)`",
    "FilterIterDataset": "`ds.filter(...)`",
    "MixedMapDataset": "`grain.MapDataset.mix(...)`",
    "RepeatMapDataset": "`ds.repeat(...)`",
    "ShuffleMapDataset": "`ds.shuffle(...)`",
    "SliceMapDataset": "`ds.slice(...)`",
    "SourceMapDataset": "`grain.MapDataset.source(...)`",
    "RangeMapDataset": "`grain.MapDataset.range(...)`",
    "get_execution_summary": "`iterator.stats()`",
    "pretty_format_summary": "`print(iterator.stats())`",
    "unflatten_as": "`jax.tree_util.tree_unflatten`",
    "tensorflow": "`tf.data`, or `grain.python`: Grain's own package has it no longer",
}
"""What a program can use instead of a name of Grain that gristmill does not have."""


def is_module(name: str) -> bool:
    """Return whether gristmill replaces a module of Grain, or a package of such modules."""
    return any(f"{module}.".startswith(f"{name}.") for module in FACADES)
