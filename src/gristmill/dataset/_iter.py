"""`IterDataset`: elements one after the other, one fluent step after the other."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar, cast

import numpy as np

from gristmill._check import as_int, as_seed
from gristmill._site import call_site
from gristmill.dataset._dataset import Dataset, seed_for
from gristmill.dataset._iterator import DatasetIterator, StreamIterator
from gristmill.dataset._transform import as_function
from gristmill.errors import PlanTypeError
from gristmill.options import MultiprocessingOptions, WorkerOptions
from gristmill.plan import (
    ENDLESS,
    BatchNode,
    CountedMapNode,
    CustomStreamNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MixStreamNode,
    Node,
    PrefetchNode,
    SeedNode,
    WorkersNode,
    mixed_order,
)
from gristmill.transforms import Filter, FlatMap, Map, MapWithIndex, RandomMap, SupportsMapBatch

T = TypeVar("T")
S = TypeVar("S")


class IterDatasetMeta(ABCMeta):
    """The ways to begin an `IterDataset` of others; on the class, not on its instances."""

    def mix(
        cls,
        datasets: "Sequence[IterDataset[T]] | Mapping[str, IterDataset[T]]",
        weights: Sequence[float] | Mapping[str, float] | None = None,
    ) -> "IterDataset[T]":
        """Give elements of several datasets in turn, by weights, until one has none left.

        Of a mapping, the states are kept by key: going on from a checkpoint, datasets and weights
        may be others, and a dataset that is new starts at its beginning.

        >>> from gristmill.dataset import MapDataset
        >>> few, many = MapDataset.range(7, 10), MapDataset.range(5)
        >>> list(IterDataset.mix([many.to_iter_dataset(), few.to_iter_dataset()]))
        [0, 7, 1, 8, 2, 9, 3]
        """
        parents, names, proportions = mixed_order(datasets, weights)
        node = MixStreamNode(
            site=call_site(),
            parents=tuple(stream_node("datasets", parent) for parent in parents),
            proportions=proportions,
            names=names,
        )
        return PlannedIterDataset(node, parents)


class IterDataset(Dataset, Iterable[T], Generic[T], metaclass=IterDatasetMeta):
    """Elements one after the other, from an iterator that can tell its state.

    >>> from gristmill.dataset import MapDataset
    >>> ds = MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2).batch(2)
    >>> [batch.tolist() for batch in ds]
    [[1, 3], [5, 7], [9]]

    Users derive their own, with `__iter__` that gives a `DatasetIterator`.
    """

    def __init__(self, parents: "Dataset | Sequence[Dataset]" = ()) -> None:
        super().__init__()
        self._parents = (parents,) if isinstance(parents, Dataset) else tuple(parents)

    @abstractmethod
    def __iter__(self) -> DatasetIterator[T]:
        """Give a new iterator, at the beginning."""

    @property
    def node(self) -> Node:
        return CustomStreamNode(
            site=call_site(), parents=(), dataset=self, name=type(self).__name__
        )

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T]], S] | None = None,
    ) -> "IterDataset[S]":
        """Give every `batch_size` elements stacked, or as `batch_fn` makes one of them."""
        node = BatchNode(
            site=call_site(),
            parent=self.node,
            size=as_int("batch_size", batch_size, minimum=1),
            drop_remainder=bool(drop_remainder),
            function=batch_fn,
        )
        return PlannedIterDataset(node, (self,))

    def filter(self, transform: Filter | Callable[[T], bool]) -> "IterDataset[T]":
        """Leave out the elements for which the function says no."""
        function, name = as_function("filter", transform, Filter, "filter")
        node = FilterNode(site=call_site(), parent=self.node, name=name, function=function)
        return PlannedIterDataset(node, (self,), transform)

    def map(self, transform: Map | Callable[[T], S]) -> "IterDataset[S]":
        """Give a function of each element."""
        function, name = as_function("map", transform, Map, "map")
        at_once = transform.map_batch if isinstance(transform, SupportsMapBatch) else None
        node = MapNode(
            site=call_site(),
            parent=self.node,
            name=name,
            function=function,
            batch_function=at_once,
            skips_none=True,
        )
        return PlannedIterDataset(node, (self,), transform)

    def map_with_index(self, transform: MapWithIndex | Callable[[int, T], S]) -> "IterDataset[S]":
        """Give a function of each element and how many came before it."""
        function, name = as_function("map_with_index", transform, MapWithIndex, "map_with_index")
        node = CountedMapNode(site=call_site(), parents=(self.node,), name=name, function=function)
        return PlannedIterDataset(node, (self,), transform)

    def random_map(
        self,
        transform: RandomMap | Callable[[T, np.random.Generator], S],
        *,
        seed: int | None = None,
    ) -> "IterDataset[S]":
        """Give a function of each element and a generator made from the seed and its number."""
        function, name = as_function("random_map", transform, RandomMap, "random_map")
        node = CountedMapNode(
            site=call_site(),
            parents=(self.node,),
            name=name,
            function=function,
            seed=seed_for((self,), seed, step="random_map"),
        )
        return PlannedIterDataset(node, (self,), transform)

    def seed(self, seed: int) -> "IterDataset[T]":
        """Give every random step after this a seed of its own, derived from this one."""
        node = SeedNode(site=call_site(), parent=self.node, seed=as_seed(seed, bits=63))
        return PlannedIterDataset(node, (self,))

    def mp_prefetch(
        self,
        options: MultiprocessingOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
    ) -> "IterDataset[T]":
        """Compute what is below in worker processes. The stream is the same, whatever their number.

        `sequential_slice`, by which Grain deals records to its workers, has nothing to change here.
        """
        del sequential_slice
        settled = MultiprocessingOptions(num_workers=10) if options is None else options
        if settled.num_workers == 0:
            return self
        node = WorkersNode(
            site=call_site(),
            parent=self.node,
            options=settled,
            worker=WorkerOptions(worker_init_fn=worker_init_fn),
        )
        return PlannedIterDataset(node, (self,))

    def prefetch(self, multiprocessing_options: MultiprocessingOptions) -> "IterDataset[T]":
        """Use `mp_prefetch`, which is the same."""
        warnings.warn("Use `mp_prefetch` instead.", DeprecationWarning, stacklevel=2)
        return self.mp_prefetch(multiprocessing_options)

    def _split(self, transform: FlatMap) -> "IterDataset[Any]":
        return FlatMapIterDataset(self, transform)


class PlannedIterDataset(IterDataset[T]):
    """A dataset of ours: a node of the plan, run by the engine."""

    def __init__(self, node: Node, parents: Sequence[Dataset], transform: Any = None) -> None:
        super().__init__(parents)
        self._node = node
        self.transform = transform

    @property
    def node(self) -> Node:
        return self._node

    def __iter__(self) -> DatasetIterator[T]:
        return StreamIterator(self._node)


class FlatMapIterDataset(PlannedIterDataset[Any]):
    """The pieces of each element, one after the other, however many there are."""

    def __init__(self, parent: IterDataset[Any], transform: FlatMap) -> None:
        function, name = as_function("flat_map", transform, FlatMap, "flat_map")
        node = FlatMapNode(
            site=call_site(),
            parent=parent.node,
            name=name,
            function=function,
            max_fan_out=ENDLESS - 1,  # as in Grain, where only a map dataset has places to count
        )
        super().__init__(node, (parent,), transform)


class ThreadPrefetchIterDataset(PlannedIterDataset[T]):
    """Lets what is below run ahead in a thread."""

    def __init__(self, parent: IterDataset[T], *, prefetch_buffer_size: int) -> None:
        node = PrefetchNode(
            site=call_site(),
            parent=parent.node,
            buffer_size=as_int("prefetch_buffer_size", prefetch_buffer_size),
        )
        super().__init__(node, (parent,))


def stream_node(name: str, dataset: Any) -> Node:
    """Give the node of an argument that is a stream; a `MapDataset` is read in order."""
    if isinstance(dataset, IterDataset):
        return cast("IterDataset[Any]", dataset).node
    if not isinstance(dataset, Dataset):
        raise PlanTypeError(
            f"`{name}` must be an IterDataset, got {dataset!r}. Call `to_iter_dataset()` on a "
            "MapDataset."
        )
    return cast(Any, dataset).to_iter_dataset().node
