"""Builders of the plan nodes behind the methods of `MapDataset` and `IterDataset`.

Each checks its arguments and records the user's line that called the method.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

from gristmill._api.dataset.base import Dataset, resolve_seed
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_int, as_seed
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
from gristmill._plan.mixing import as_proportions
from gristmill._plan.nodes.base import ENDLESS, Node, name_of, stable_repr
from gristmill._plan.nodes.combine import ConcatenateNode, MixNode, SelectNode
from gristmill._plan.nodes.combine_streams import MixStreamNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.hints import PrefetchNode, ReadNode, SeedNode, WorkersNode
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
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions
from gristmill.types import RandomAccessDataSource

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
        size=as_int("batch_size", batch_size, minimum=1),
        drop_remainder=bool(drop_remainder),
        function=batch_fn,
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


def mix_node(datasets: Sequence[Dataset], weights: Sequence[float] | None) -> MixNode:
    """Return the node that alternates between datasets in proportion to `weights`."""
    return MixNode(
        site=call_site(),
        inputs=tuple(map(plan_of, datasets)),
        proportions=as_proportions(weights, len(datasets)),
    )


def select_node(
    datasets: Sequence[Dataset], selection_map: RandomAccessDataSource[tuple[int, int]]
) -> SelectNode:
    """Return the node that takes each element from where `selection_map` points to."""
    nodes = tuple(map(plan_of, datasets))
    return SelectNode(site=call_site(), inputs=nodes, selection=selection_map)


def concatenate_node(datasets: Sequence[Dataset]) -> ConcatenateNode:
    """Return the node that concatenates datasets."""
    return ConcatenateNode(site=call_site(), inputs=tuple(map(plan_of, datasets)))


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
        num_epochs=None if num_epochs is None else as_int("num_epochs", num_epochs, minimum=1),
        reseeds=bool(reseed_each_epoch),
    )


def read_node(dataset: Dataset, read_options: ReadOptions | None, allow_nones: bool) -> ReadNode:
    """Return the node that turns random access into a stream."""
    site = call_site()
    return ReadNode(
        site=site,
        parent=AccessNode(site=site, parent=plan_of(dataset), keeps_none=bool(allow_nones)),
        options=ReadOptions() if read_options is None else read_options,
    )


def mix_stream_node(
    nodes: Sequence[Node], names: tuple[str, ...] | None, proportions: tuple[int, ...]
) -> MixStreamNode:
    """Return the node that alternates between streams in proportion to `proportions`."""
    return MixStreamNode(
        site=call_site(), inputs=tuple(nodes), proportions=proportions, names=names
    )


def workers_node(
    dataset: Dataset,
    options: MultiprocessingOptions,
    worker_init_fn: Callable[[int, int], None] | None,
) -> WorkersNode:
    """Return the node that allows the steps below it to run in worker processes."""
    worker = WorkerOptions(worker_init_fn=worker_init_fn)
    return WorkersNode(site=call_site(), parent=plan_of(dataset), options=options, worker=worker)


def prefetch_node(dataset: Dataset, buffer_size: int) -> PrefetchNode:
    """Return the node that records that the user asked for a prefetching thread."""
    return PrefetchNode(
        site=call_site(),
        parent=plan_of(dataset),
        buffer_size=as_int("prefetch_buffer_size", buffer_size),
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
