"""`IterDataset`: a stream of elements, with one method per step."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np

from gristmill._api.dataset.base import Dataset, apply_all, as_parents
from gristmill._api.dataset.builders import (
    batch_node,
    counted_map_node,
    counted_random_map_node,
    filter_node,
    flat_map_node,
    map_node,
    mix_stream_node,
    prefetch_node,
    read_node,
    seed_node,
    workers_node,
)
from gristmill._api.dataset.iterator import DatasetIterator, StreamIterator
from gristmill._api.dataset.signatures import (
    Array,
    Leaf,
    SupportsFilter,
    SupportsFlatMap,
    SupportsMap,
    SupportsMapWithIndex,
    SupportsRandomMap,
    UntypedElement,
)
from gristmill._api.grain_datasets import grain_node, is_grain_dataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.grain_classes import IterDataset as GrainIterDataset
from gristmill._data.transforms.base import Transformation, Transformations
from gristmill._engine.executors.processes.pool_keeper import PoolKeeper
from gristmill._plan.mixing import mixed_order
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.sliced_stream import sliced_streams
from gristmill._plan.nodes.stream import CustomStreamNode
from gristmill.errors import PlanTypeError
from gristmill.options import MultiprocessingOptions

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")


class IterDatasetMeta(ABCMeta):
    """Constructors of `IterDataset`. As in Grain they exist on the class, not on its instances."""

    def mix(
        cls,
        datasets: "Sequence[IterDataset[T]] | Mapping[str, IterDataset[T]]",
        weights: Sequence[float] | Mapping[str, float] | None = None,
    ) -> "IterDataset[T]":
        """Return a stream that alternates between streams in proportion to weights.

        The order is deterministic. The stream ends when the next element would come from a stream
        that has ended.

        >>> from gristmill import MapDataset
        >>> short, long = MapDataset.range(7, 10), MapDataset.range(5)
        >>> list(IterDataset.mix([long.to_iter_dataset(), short.to_iter_dataset()]))
        [0, 7, 1, 8, 2, 9, 3]

        Args:
            datasets: The streams to mix. With a mapping, the state is stored by key: a checkpoint
                can be restored with other weights or other streams. A stream with a new key starts
                at its beginning.
            weights: A positive number for each stream. By default all are equal.
        """
        parents, names, proportions = mixed_order(datasets, weights)
        nodes = [stream_node("datasets", parent) for parent in parents]
        return PlannedIterDataset(mix_stream_node(nodes, names, proportions), parents)


class IterDataset(
    Dataset, GrainIterDataset, Iterable[T_co], Generic[T_co], metaclass=IterDatasetMeta
):
    """A dataset that is read in order, as a stream.

    Each method adds a step and returns a new dataset; the original does not change. Steps are
    evaluated lazily: nothing is read until an element is requested. The stream and its states do
    not depend on how it is computed, whether in threads or in any number of worker processes.

    >>> from gristmill import MapDataset
    >>> ds = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2).batch(2)
    >>> [batch.tolist() for batch in ds]
    [[1, 3], [5, 7], [9]]

    Create one with `MapDataset.to_iter_dataset` or `IterDataset.mix`. Subclass it for a dataset of
    your own, with an `__iter__` that returns a `DatasetIterator`.

    Args:
        parents: The datasets that a dataset of your own reads from.
    """

    def __init__(self, parents: "Dataset | Sequence[Dataset]" = ()) -> None:
        super().__init__()
        self._parents = as_parents(parents)

    @abstractmethod
    def __iter__(self) -> DatasetIterator[T_co]:
        """Return a new iterator, at the start of the stream."""

    @property
    def _plan_node(self) -> Node:
        return CustomStreamNode(site=call_site(), dataset=self, name=type(self).__name__)

    def apply(self, transformations: Transformation | Transformations) -> "IterDataset[Any]":
        """Apply one transformation, or several in order.

        >>> from gristmill import Batch, MapDataset
        >>> ds = MapDataset.range(3).to_iter_dataset().apply([Batch(2)])
        >>> [batch.tolist() for batch in ds]
        [[0, 1], [2]]

        Args:
            transformations: A transformation, such as a `Map` or `Batch`, or a sequence of them.

        Returns:
            The transformed stream.
        """
        return apply_all(self, transformations, flat_map=FlatMapIterDataset)

    @overload
    def batch(
        self: "IterDataset[UntypedElement]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "IterDataset[Any]": ...

    @overload
    def batch(
        self: "IterDataset[Leaf]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "IterDataset[Array]": ...

    @overload
    def batch(
        self: "IterDataset[Mapping[str, Leaf]]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "IterDataset[dict[str, Array]]": ...

    @overload
    def batch(
        self: "IterDataset[tuple[Leaf, ...]]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "IterDataset[tuple[Array, ...]]": ...

    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T_co]], S],
    ) -> "IterDataset[S]": ...

    @overload
    def batch(
        self, batch_size: int, *, drop_remainder: bool = False, batch_fn: None = None
    ) -> "IterDataset[Any]": ...

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[Any]], Any] | None = None,
    ) -> "IterDataset[Any]":
        """Combine every `batch_size` consecutive elements into one.

        By default the leaves of the elements are stacked along a new first axis. Type checkers
        know the result for numbers, strings and arrays, and for flat dicts and tuples of them. For
        other trees it is `Any`, because the type of a stacked tree cannot be expressed in general.

        >>> from gristmill import MapDataset
        >>> [batch.tolist() for batch in MapDataset.range(5).to_iter_dataset().batch(2)]
        [[0, 1], [2, 3], [4]]

        Args:
            batch_size: The number of elements of a batch, at least 1.
            drop_remainder: Whether to drop a last batch with fewer elements.
            batch_fn: A function from a list of elements to a batch, instead of stacking.

        Returns:
            A stream of batches.
        """
        return PlannedIterDataset(batch_node(self, batch_size, drop_remainder, batch_fn), (self,))

    def filter(
        self, transform: SupportsFilter[T_co] | Callable[[T_co], object]
    ) -> "IterDataset[T_co]":
        """Keep the elements for which a function returns true.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(4).to_iter_dataset().filter(lambda x: x % 2))
        [1, 3]

        Args:
            transform: A `Filter`, or a function of an element.

        Returns:
            The filtered stream.
        """
        return PlannedIterDataset(filter_node(self, transform), (self,), transform)

    def map(self, transform: SupportsMap[T_co, S] | Callable[[T_co], S]) -> "IterDataset[S]":
        """Replace each element by the result of a function.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(3).to_iter_dataset().map(str))
        ['0', '1', '2']

        Args:
            transform: A `Map`, or a function of an element. It must be deterministic; use
                `random_map` for randomness. It is not called for an element that is `None`.

        Returns:
            The mapped stream.
        """
        return PlannedIterDataset(map_node(self, transform, skips_none=True), (self,), transform)

    def map_with_index(
        self, transform: SupportsMapWithIndex[T_co, S] | Callable[[int, T_co], S]
    ) -> "IterDataset[S]":
        """Replace each element by the result of a function of its index and the element.

        The index of an element is the number of elements before it in this stream.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.source(["a", "b", "c"]).to_iter_dataset().filter(lambda x: x != "a")
        >>> list(ds.map_with_index(lambda i, x: f"{x}{i}"))
        ['b0', 'c1']

        Args:
            transform: A `MapWithIndex`, or a function of an index and an element.

        Returns:
            The mapped stream.
        """
        return PlannedIterDataset(counted_map_node(self, transform), (self,), transform)

    def random_map(
        self,
        transform: SupportsRandomMap[T_co, S] | Callable[[T_co, np.random.Generator], S],
        *,
        seed: int | None = None,
    ) -> "IterDataset[S]":
        """Replace each element by the result of a function of the element and a random generator.

        The generator is a function of the seed and the number of elements before it in this
        stream. It does not depend on threads, workers or restarts.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(3).to_iter_dataset()
        >>> ds = ds.random_map(lambda x, rng: x + int(rng.integers(10)), seed=0)
        >>> list(ds) == list(ds)
        True

        Args:
            transform: A `RandomMap`, or a function of an element and a `numpy.random.Generator`.
            seed: The seed of this step. By default it is derived from `ds.seed()`.

        Returns:
            The mapped stream.

        Raises:
            PlanError: There is no seed.
        """
        node = counted_random_map_node(self, transform, seed)
        return PlannedIterDataset(node, (self,), transform)

    def seed(self, seed: int) -> "IterDataset[T_co]":
        """Set the seed from which all random steps after this one derive their own.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(2).to_iter_dataset().seed(1)
        >>> len(list(ds.random_map(lambda x, rng: x + rng.random())))
        2

        Args:
            seed: A non-negative integer.

        Returns:
            A stream of the same elements.
        """
        return PlannedIterDataset(seed_node(self, seed), (self,))

    def mp_prefetch(
        self,
        options: MultiprocessingOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
    ) -> "IterDataset[T_co]":
        """Compute the steps before this one in worker processes.

        The stream and its states are the same for any number of workers. Steps that depend on all
        elements before, such as packing, run in this process on the output of the workers.

        A stream of your own class that defines `set_slice(sl, sequential_slice)` is different: each
        worker reads one slice of it, and their elements alternate, as in Grain. So the stream
        depends on the number of workers in `options`, and a state needs the same number.

        >>> from gristmill import MapDataset, MultiprocessingOptions
        >>> ds = MapDataset.range(4).map(str).to_iter_dataset()
        >>> with iter(ds.mp_prefetch(MultiprocessingOptions(num_workers=1))) as iterator:
        ...     list(iterator)
        ['0', '1', '2', '3']

        Args:
            options: The number of workers, and how far each computes ahead. By default 10 workers.
                With 0 workers nothing changes.
            worker_init_fn: A function of the index of a worker and the number of workers, called
                once in each worker when it starts.
            sequential_slice: Passed to `set_slice` of your own streams, and otherwise ignored. In
                Grain it determines which records each worker reads.

        Returns:
            A stream of the same elements.
        """
        resolved = MultiprocessingOptions(num_workers=10) if options is None else options
        if resolved.num_workers == 0:
            return self
        sliced = sliced_streams(
            plan_of(self),
            resolved,
            worker_init_fn,
            is_sequential=bool(sequential_slice),
            site=call_site(),
        )
        if sliced is not None:
            return PlannedIterDataset(sliced, (self,))
        return PlannedIterDataset(workers_node(self, resolved, worker_init_fn), (self,))

    def prefetch(self, multiprocessing_options: MultiprocessingOptions) -> "IterDataset[T_co]":
        """Call `mp_prefetch`. Deprecated, as in Grain.

        Args:
            multiprocessing_options: The number of workers, and how far each computes ahead.

        Returns:
            A stream of the same elements.
        """
        warnings.warn("Use `mp_prefetch` instead.", DeprecationWarning, stacklevel=2)
        return self.mp_prefetch(multiprocessing_options)


class PlannedIterDataset(IterDataset[T_co]):
    """A stream that the engine runs, as a node of the plan describes."""

    def __init__(self, node: Node, parents: Sequence[Dataset], transform: object = None) -> None:
        super().__init__(parents)
        self._node = node
        self._transform = transform
        self._kept_pools: PoolKeeper | None = None

    @property
    def _plan_node(self) -> Node:
        return self._node

    @property
    def _pools(self) -> PoolKeeper:
        if self._kept_pools is None:
            self._kept_pools = PoolKeeper().serve(self)
        return self._kept_pools

    def __iter__(self) -> DatasetIterator[T_co]:
        return StreamIterator(self._node, self._pools)


class FlatMapIterDataset(PlannedIterDataset[S]):
    """Replaces each element by any number of elements.

    >>> from gristmill import MapDataset
    >>> from gristmill.transforms import FlatMap
    >>> class Split(FlatMap):
    ...     def flat_map(self, element):
    ...         return element.split()
    >>> list(FlatMapIterDataset(MapDataset.source(["a b", "c"]).to_iter_dataset(), Split()))
    ['a', 'b', 'c']

    Args:
        parent: The stream to read.
        transform: A `FlatMap`. Its `max_fan_out` is not used.
    """

    def __init__(self, parent: IterDataset[T], transform: SupportsFlatMap[T, S]) -> None:
        super().__init__(flat_map_node(parent, transform), (parent,), transform)


class ThreadPrefetchIterDataset(PlannedIterDataset[T_co]):
    """Yields the elements of another stream. It exists for compatibility with Grain.

    In gristmill every stream computes elements ahead of the consumer in a background thread, as far
    as its `ReadOptions` allow. So this step changes neither the stream nor its speed.

    >>> from gristmill import MapDataset
    >>> ds = MapDataset.range(3).to_iter_dataset()
    >>> list(ThreadPrefetchIterDataset(ds, prefetch_buffer_size=2))
    [0, 1, 2]

    Args:
        parent: The stream to read.
        prefetch_buffer_size: A non-negative integer. In Grain, how many elements to compute ahead.
    """

    def __init__(self, parent: IterDataset[T_co], *, prefetch_buffer_size: int) -> None:
        super().__init__(prefetch_node(parent, prefetch_buffer_size), (parent,))


def stream_node(name: str, dataset: Any) -> Node:
    """Return the node of a stream. A `MapDataset` is read in order.

    Args:
        name: The name of the argument, for the error message.
        dataset: A dataset.

    Raises:
        PlanTypeError: `dataset` is not a dataset.
    """
    if isinstance(dataset, IterDataset):
        return plan_of(cast("IterDataset[Any]", dataset))
    if is_grain_dataset(dataset):
        node = grain_node(dataset)
        is_stream = isinstance(node, CustomStreamNode)
        return node if is_stream else read_node(dataset, None, False)
    if not isinstance(dataset, Dataset):
        raise PlanTypeError(
            f"`{name}` must be an IterDataset, got {dataset!r}. Call `to_iter_dataset()` on a "
            "MapDataset."
        )
    return plan_of(cast(Any, dataset).to_iter_dataset())
