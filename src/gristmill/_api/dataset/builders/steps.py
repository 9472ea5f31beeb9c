"""Builders of the plan nodes behind the methods of `MapDataset` and `IterDataset`.

Each checks its arguments and records the user's line that called the method.
"""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from gristmill._api.dataset.base import Dataset, resolve_seed
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_batch_size, as_int, as_num_epochs, as_seed
from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.transforms.base import (
    Batch,
    Filter,
    FlatMap,
    Map,
    MapWithIndex,
    RandomMap,
    SupportsMapBatch,
    SupportsMapRows,
    TfRandomMap,
)
from gristmill._data.transforms.stream_operations import rows_of
from gristmill._plan.nodes.base import ENDLESS, name_of, stable_repr
from gristmill._plan.nodes.buckets import BucketNode
from gristmill._plan.nodes.cached import StoredNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.hints import PrefetchNode, ReadNode, SeedNode
from gristmill._plan.nodes.rearrange import (
    PickNode,
    RepeatNode,
    ShuffleNode,
    SliceNode,
)
from gristmill._plan.nodes.steps import (
    BatchNode,
    FanOutNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    SeededMapNode,
)
from gristmill._plan.nodes.stream import CountedMapNode
from gristmill.errors import PlanError, PlanTypeError
from gristmill.options import (
    ReadOptions,
    SkipErrors,
)

_TRANSFORM_CLASSES = (Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap)
"""Users pass an instance of these. Any other class is used as a function, such as `str`."""


def batch_node(
    dataset: Dataset,
    batch_size: int,
    drop_remainder: bool,
    batch_fn: Callable[[Sequence[Any]], Any] | None,
) -> BatchNode:
    """Return the node that batches consecutive elements."""
    return BatchNode(
        site=call_site(),
        parent=plan_of(dataset),
        size=as_batch_size(batch_size),
        drop_remainder=bool(drop_remainder),
        function=batch_fn,
    )


def reject_absent_elements(dataset: Dataset, method: str) -> None:
    """Raise if elements may be absent, as Grain does: also below a dataset of the user's own."""
    node = plan_of(dataset)
    if isinstance(node, FilterNode | FanOutNode):
        step = "MapDataset.filter" if isinstance(node, FilterNode) else "FlatMapMapDataset"
        name = step.rpartition(".")[2]
        raise PlanError(
            f"`MapDataset.{method}` can not follow `{step}` because `{name}` can discard elements: "
            f"{node.label} leaves indices without one. Call `to_iter_dataset()` before `{method}`."
        )
    for parent in dataset.parents:
        reject_absent_elements(parent, method)


def bucket_node(
    dataset: Dataset, buckets: BucketByLength, lengths: object, group_size: int
) -> BucketNode:
    """Return the node of batches that are planned from the lengths of all records."""
    numbers = np.asarray(lengths)
    if not numbers.size:
        numbers = np.zeros(0, np.int64)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise PlanTypeError(
            "`lengths` must be a list or array of integers, the length of each record, got "
            f"{stable_repr(lengths)}."
        )
    if len(numbers) and numbers.min() < 0:
        raise PlanError(f"`lengths` must not be negative, got {numbers.min()}.")
    node = BucketNode(
        site=call_site(),
        parent=plan_of(dataset),
        buckets=buckets,
        lengths=numbers.astype(np.int64),
        group_size=as_int("group_size", group_size, minimum=1),
    )
    node.length()  # raises if a record is too long
    return node


def unbatch_node(dataset: Dataset) -> FanOutNode:
    """Return the node of the rows of batches of a `MapDataset`."""
    parent = plan_of(dataset)
    if parent.batch_size is None:
        raise PlanError(
            f"The number of rows of the elements of {parent.label} is not known, so rows have no "
            "indices. Call `to_iter_dataset()` before `unbatch()`."
        )
    return FanOutNode(
        site=call_site(),
        parent=parent,
        name="unbatch",
        function=rows_of,
        max_fan_out=parent.batch_size,
    )


def stored_node(
    dataset: Dataset, path: str | os.PathLike[str] | None, max_bytes: int
) -> StoredNode:
    """Return the node that keeps elements on disk, or in memory if `path` is `None`."""
    if path is None and sys.platform != "linux":
        raise PlanError("`cache()` in memory needs Linux. Pass a folder: `cache(path)`.")
    return StoredNode(
        site=call_site(),
        parent=plan_of(dataset),
        folder=None if path is None else os.path.abspath(os.fspath(path)),
        max_bytes=as_int("max_bytes", max_bytes, minimum=1),
    )


def filter_node(dataset: Dataset, transform: object) -> FilterNode:
    """Return the node that keeps the elements for which `transform` is true."""
    function, name = _as_function(transform, Filter, "filter")
    return FilterNode(site=call_site(), parent=plan_of(dataset), name=name, function=function)


def map_node(dataset: Dataset, transform: object, *, skips_none: bool = False) -> MapNode:
    """Return the node that maps each element."""
    function, name = _as_function(transform, Map, "map")
    return MapNode(
        site=call_site(),
        parent=plan_of(dataset),
        name=name,
        function=function,
        batch_function=transform.map_batch if isinstance(transform, SupportsMapBatch) else None,
        rows_function=transform.map_rows if isinstance(transform, SupportsMapRows) else None,
        skips_none=skips_none,
    )


def seed_node(dataset: Dataset, seed: int) -> SeedNode:
    """Return the node from which the random steps above it derive their seeds."""
    return SeedNode(site=call_site(), parent=plan_of(dataset), seed=as_seed(seed, bits=63))


def map_with_index_node(dataset: Dataset, transform: object) -> MapWithIndexNode:
    """Return the node that maps each element of a `MapDataset` with its index."""
    function, name = _as_function(transform, MapWithIndex, "map_with_index")
    return MapWithIndexNode(site=call_site(), parent=plan_of(dataset), name=name, function=function)


def counted_map_node(dataset: Dataset, transform: object) -> CountedMapNode:
    """Return the node that maps each element of a stream with the number of those before it."""
    function, name = _as_function(transform, MapWithIndex, "map_with_index")
    return CountedMapNode(site=call_site(), parent=plan_of(dataset), name=name, function=function)


def random_map_node(dataset: Dataset, transform: object, seed: int | None) -> SeededMapNode:
    """Return the node that maps each element of a `MapDataset` with a generator of its index."""
    function, name = _as_function(transform, RandomMap, "random_map")
    return SeededMapNode(
        site=call_site(),
        parent=plan_of(dataset),
        name=name,
        function=function,
        seed=resolve_seed(dataset, seed, method="random_map"),
    )


def counted_random_map_node(
    dataset: Dataset, transform: object, seed: int | None
) -> CountedMapNode:
    """Return the node that maps each element of a stream with a generator of its number."""
    function, name = _as_function(transform, RandomMap, "random_map")
    return CountedMapNode(
        site=call_site(),
        parent=plan_of(dataset),
        name=name,
        function=function,
        seed=resolve_seed(dataset, seed, method="random_map"),
    )


def fan_out_node(dataset: Dataset, transform: object) -> FanOutNode:
    """Return the node that maps each element of a `MapDataset` to up to `max_fan_out`."""
    function, name = _as_function(transform, FlatMap, "flat_map")
    max_fan_out = getattr(transform, "max_fan_out", None)
    return FanOutNode(
        site=call_site(),
        parent=plan_of(dataset),
        name=name,
        function=function,
        max_fan_out=as_int(f"{name}.max_fan_out", max_fan_out, minimum=1),
    )


def flat_map_node(dataset: Dataset, transform: object) -> FlatMapNode:
    """Return the node that maps each element of a stream to any number of elements."""
    function, name = _as_function(transform, FlatMap, "flat_map")
    return FlatMapNode(
        site=call_site(),
        parent=plan_of(dataset),
        name=name,
        function=function,
        # As in Grain: only a `MapDataset` has to reserve indices for the results.
        max_fan_out=ENDLESS - 1,
    )


def shuffle_node(dataset: Dataset, seed: int | None) -> ShuffleNode:
    """Return the node that permutes the elements of an epoch."""
    resolved = as_seed(resolve_seed(dataset, seed, method="shuffle"))
    return ShuffleNode(site=call_site(), parent=plan_of(dataset), seed=resolved)


def slice_node(dataset: Dataset, sl: slice) -> SliceNode:
    """Return the node of the elements in a slice."""
    if not isinstance(cast(object, sl), slice):
        raise PlanTypeError(
            f"sl is not a slice: {type(sl)}. Pass `slice(start, stop, step)`, or indices."
        )
    parent = plan_of(dataset)
    start, stop, step = sl.indices(parent.length())
    return SliceNode(site=call_site(), parent=parent, start=start, stop=stop, step=step)


def pick_node(dataset: Dataset, picks: tuple[int, ...]) -> PickNode:
    """Return the node of the elements at the given indices."""
    return PickNode(site=call_site(), parent=plan_of(dataset), picks=picks)


def repeat_node(dataset: Dataset, num_epochs: int | None, reseed_each_epoch: bool) -> RepeatNode:
    """Return the node that repeats a dataset, infinitely often if `num_epochs` is `None`."""
    parent = plan_of(dataset)
    if parent.length() >= ENDLESS:
        raise PlanError(
            f"Repeating already infinite dataset {parent.label} does nothing. Call `repeat` once."
        )
    return RepeatNode(
        site=call_site(),
        parent=parent,
        num_epochs=as_num_epochs(num_epochs),
        reseeds=bool(reseed_each_epoch),
    )


def read_node(
    dataset: Dataset,
    read_options: ReadOptions | None,
    allow_nones: bool,
    on_error: SkipErrors | None = None,
) -> ReadNode:
    """Return the node that turns random access into a stream."""
    site = call_site()
    return ReadNode(
        site=site,
        parent=AccessNode(site=site, parent=plan_of(dataset), keeps_none=bool(allow_nones)),
        options=ReadOptions() if read_options is None else read_options,
        on_error=on_error,
    )


def prefetch_node(dataset: Dataset, buffer_size: int) -> PrefetchNode:
    """Return the node that records that the user asked for a prefetching thread."""
    return PrefetchNode(
        site=call_site(),
        parent=plan_of(dataset),
        buffer_size=as_int(
            "prefetch_buffer_size",
            buffer_size,
            phrase="`prefetch_buffer_size` must be greater than or equal to 0",
        ),
    )


def _as_function(transform: Any, kind: type, method: str) -> tuple[Callable[..., Any], str]:
    """Return the function that a transformation of class `kind` stands for, and its name.

    Args:
        transform: An instance of `kind`, or a function.
        kind: The class of transformations that the dataset method takes.
        method: The name of the dataset method, which is also the name of the method of `kind`.

    Raises:
        PlanTypeError: `transform` is neither.
    """
    if _is_transform_class(transform):
        raise PlanTypeError(
            f"`{method}` got the class {transform.__name__}. "
            f"Pass an instance of it: `{transform.__name__}()`."
        )
    if isinstance(transform, kind):
        return getattr(transform, method), name_of(transform)
    if not callable(transform):
        raise PlanTypeError(
            f"`{method}` takes a function or a {kind.__name__}, got {stable_repr(transform)}."
        )
    return transform, name_of(transform)


def _is_transform_class(transform: object) -> bool:
    return isinstance(transform, type) and issubclass(transform, _TRANSFORM_CLASSES)
