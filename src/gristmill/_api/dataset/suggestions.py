"""Suggest the right method where code calls one that datasets do not have."""

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

_STREAM_ONLY = "call `to_iter_dataset()` before it, it is a method of `IterDataset`"

_OF_BOTH = {
    "as_numpy_iterator": "iterate over the dataset, its elements are NumPy arrays",
    "bucket_by_sequence_length": "use `bucket_by_length(boundaries, batch_sizes=...)`",
    "bucketize": "use `bucket_by_length(boundaries, batch_sizes=...)`",
    "accumulate": "use `scan(function, initial)` of the `IterDataset`",
    "cardinality": "use `len(ds)` of the `MapDataset`",
    "chain": "use `ds + other`, or `concatenate([ds, other])` of the class",
    "collate": "pass `batch(batch_size, batch_fn=...)`",
    "concat": "use `ds + other`, or `concatenate([ds, other])` of the class",
    "concatenate": "use `ds + other`, or `concatenate([ds, other])` of the class",
    "flat_map": "derive a class from `transforms.FlatMap` and call `apply` with an instance of it",
    "flatmap": "derive a class from `transforms.FlatMap` and call `apply` with an instance of it",
    "fold": "use `functools.reduce(function, ds, initial)`",
    "from_generator": "use `gristmill.from_generator(factory)`",
    "from_tensor_slices": "use `MapDataset.source(ArraySource(...))`",
    "group_by_window": "use `bucket_by_length(boundaries, batch_sizes=...)`",
    "groupby": "use `bucket_by_length(boundaries, batch_sizes=...)`, or `filter` for each group",
    "head": "use `take(count)`",
    "interleave": "use `experimental.InterleaveIterDataset`",
    "islice": "use `take(count)` and `skip(count)`",
    "limit": "use `take(count)`",
    "mix": "use `mix([ds, other], weights)` of the class",
    "num_elements": "use `len(ds)` of the `MapDataset`",
    "padded_batch": "use `pad_batch(batch_size)`",
    "rebatch": "use `experimental.RebatchIterDataset`, or `unbatch()` and `batch(batch_size)`",
    "random_split": "use `split([0.8, 0.2], seed=0)` of the `MapDataset`",
    "reduce": "use `functools.reduce(function, ds, initial)`",
    "sample_from_datasets": "use `mix([ds, other], weights)` of the class",
    "select": "use `ds[[3, 1, 4]]` of the `MapDataset`",
    "shard": "slice the `MapDataset`: `ds[shard::num_shards]`",
    "to_list": "use `list(ds)`",
    "train_test_split": "use `split([0.8, 0.2], seed=0)` of the `MapDataset`",
    "with_options": "use `experimental.WithOptionsIterDataset`",
    "zip": "use `experimental.ZipMapDataset` or `experimental.ZipIterDataset`",
}

_OF_MAP = {
    "mp_prefetch": _STREAM_ONLY,
    "prefetch": "call `to_iter_dataset(ReadOptions(...))`, which prefetches",
    "scan": _STREAM_ONLY,
    "window": _STREAM_ONLY,
    "window_shuffle": "use `experimental.WindowShuffleMapDataset`, or `shuffle(seed=)`",
}

_OF_STREAM = {
    "cache": (
        "call `cache(path)` of the `MapDataset` before `to_iter_dataset()`, or use "
        "`experimental.CacheIterDataset`"
    ),
    "filter_map": "use `map` and `filter`",
    "k_fold": "call `k_fold(k, i)` of the `MapDataset` before `to_iter_dataset()`",
    "range": "use `MapDataset.range(...).to_iter_dataset()`",
    "sample": "call `sample(weights)` of the `MapDataset` before `to_iter_dataset()`",
    "slice": "slice the `MapDataset` before `to_iter_dataset()`, or use `take` and `skip`",
    "source": "use `MapDataset.source(...).to_iter_dataset()`, or `gristmill.from_generator(...)`",
    "split": "call `split([0.8, 0.2], seed=0)` of the `MapDataset` before `to_iter_dataset()`",
    "to_iter_dataset": "it is a stream already; `to_iter_dataset()` is a method of `MapDataset`",
    "window_shuffle": (
        "use `shuffle(buffer_size, seed=)`, or shuffle the `MapDataset` before `to_iter_dataset()`"
    ),
}


def missing_method(name: str, *, is_stream: bool, known: Iterable[str]) -> str:
    """Return the message for an attribute that a dataset does not have.

    >>> missing_method("padded_batch", is_stream=True, known=[])
    '`IterDataset` has no `padded_batch`: use `pad_batch(batch_size)`.'
    >>> missing_method("bathc", is_stream=False, known=["batch", "map"])
    '`MapDataset` has no `bathc`: did you mean `batch`?'

    Args:
        name: The attribute.
        is_stream: Whether the dataset is an `IterDataset`.
        known: The attributes that it has.
    """
    kind = "IterDataset" if is_stream else "MapDataset"
    advice = (_OF_STREAM if is_stream else _OF_MAP).get(name) or _OF_BOTH.get(name)
    if advice is not None:
        return f"`{kind}` has no `{name}`: {advice}."
    public = [one for one in known if not one.startswith("_")]
    close = difflib.get_close_matches(name, public, n=1)
    return f"`{kind}` has no `{name}`" + (f": did you mean `{close[0]}`?" if close else ".")


class SuggestsConstructors(type):
    """A metaclass of datasets that suggests the right one of their constructors."""

    if not TYPE_CHECKING:  # for type checkers, an unknown attribute is an error

        def __getattr__(cls, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
            known = [*dir(cls), *vars(type(cls))]
            raise AttributeError(missing_method(name, is_stream=cls._is_stream, known=known))
