"""`IterDataset`: a stream of elements, with one method per step."""

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar, cast, overload

import numpy as np

from gristmill._api.dataset.base import Dataset, apply_all, as_parents, check_list, check_operand
from gristmill._api.dataset.builders.combining import mix_stream_node
from gristmill._api.dataset.builders.steps import (
    batch_node,
    counted_map_node,
    counted_random_map_node,
    filter_node,
    flat_map_node,
    map_node,
    prefetch_node,
    read_node,
    seed_node,
)
from gristmill._api.dataset.builders.workers import (
    as_worker_count,
    as_worker_options,
    workers_node,
)
from gristmill._api.dataset.iterator import DatasetIterator, StreamIterator
from gristmill._api.dataset.signatures import (
    Array,
    FieldsT,
    Leaf,
    SupportsFilter,
    SupportsFlatMap,
    SupportsMap,
    SupportsMapWithIndex,
    SupportsRandomMap,
    UntypedElement,
)
from gristmill._api.dataset.stream_steps import StreamSteps
from gristmill._api.dataset.suggestions import SuggestsConstructors
from gristmill._api.find_steps import find_steps_of
from gristmill._api.grain_datasets import grain_node, is_grain_dataset
from gristmill._api.monitoring.watched import watch_if_requested
from gristmill._api.plan_access import plan_of, require_length
from gristmill._api.step_bookmarks import NUM_BOOKMARKS, StepBookmarks
from gristmill._base.argument_advice import advises_list
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_int
from gristmill._base.grain.classes import IterDataset as GrainIterDataset
from gristmill._data.transforms.base import Transformation, Transformations
from gristmill._engine.executors.pools.keeper import PoolKeeper
from gristmill._engine.inline_plan import inline_plan
from gristmill._engine.provenance.origin import RecordOrigin
from gristmill._plan.mix_schedule import MixWeights
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine_streams import ConcatStreamsNode
from gristmill._plan.nodes.hints import options_of
from gristmill._plan.nodes.sliced_stream import slice_records, sliced_streams
from gristmill._plan.nodes.stream import CustomStreamNode, refuse_workers
from gristmill._plan.steps_of_records import no_element_at
from gristmill._plan.traverse import known_length
from gristmill.errors import PlanTypeError
from gristmill.options import MultiprocessingOptions, RayOptions, WorkerOptions

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")


class IterDatasetMeta(SuggestsConstructors, ABCMeta):
    """Constructors of `IterDataset`. As in Grain they exist on the class, not on its instances."""

    def mix(
        cls,
        datasets: "Sequence[IterDataset[T]] | Mapping[str, IterDataset[T]]",
        weights: MixWeights | None = None,
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
            weights: A positive number for each stream. By default all are equal. Or weights that
                change with the number of mixed elements: a table such as `{0: [0.9, 0.1], 5000:
                [0.5, 0.5]}`, a pure function of that number, or a `MixSchedule`, which counts in
                training steps.
        """
        node, parents = mix_stream_node(datasets, weights, partial(stream_node, "datasets"))
        return PlannedIterDataset(node, parents)

    @advises_list("IterDataset.concatenate")
    def concatenate(cls, datasets: "Sequence[IterDataset[T]]") -> "IterDataset[T]":
        """Return a stream of all elements of the first stream, then of the second, and so on.

        `first + second` does the same for two streams.

        >>> from gristmill import MapDataset
        >>> first, second = MapDataset.range(2), MapDataset.range(7, 9)
        >>> list(IterDataset.concatenate([first.to_iter_dataset(), second.to_iter_dataset()]))
        [0, 1, 7, 8]

        Args:
            datasets: The streams to concatenate. All but the last must be finite.
        """
        parents = tuple(check_list(datasets, "IterDataset.concatenate"))
        nodes = tuple(stream_node("datasets", parent) for parent in parents)
        return PlannedIterDataset(ConcatStreamsNode(site=call_site(), inputs=nodes), parents)


class IterDataset(
    StreamSteps[T_co], GrainIterDataset, Iterable[T_co], Generic[T_co], metaclass=IterDatasetMeta
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

    def from_step(self, step: int) -> DatasetIterator[T_co]:
        """Return an iterator that continues at a step: its next element is that of the step.

        In constant time if each step reads the same number of records. After a filter, packing or
        other steps whose elements must be counted, the elements before are computed, from the
        nearest *bookmark* on: one of 64 positions that iterators of this dataset have passed by, or
        as many as `DatasetOptions(num_bookmarks=...)` sets.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(100).shuffle(seed=0).to_iter_dataset().batch(10)
        >>> state = ds.from_step(7).get_state()  # a state made by hand

        Args:
            step: The number of the element in the stream.

        Raises:
            IndexError: The stream ends before that step.
        """
        number = as_int("step", step)
        iterator = iter(self)
        try:
            self._seek(iterator, number)
        except BaseException:
            iterator.close()
            raise
        return iterator

    def at(self, step: int) -> T_co:
        """Return the element at a step of the stream, as `from_step` finds it.

        It is computed in the calling process, without workers and prefetching.

        >>> from gristmill import MapDataset
        >>> MapDataset.range(10**9).shuffle(seed=0).to_iter_dataset().batch(4).at(123_456_789)
        array([589687327, 595979660, 591784108, 602271551])

        Args:
            step: The number of the element in the stream.

        Raises:
            IndexError: The stream has no element at that step.
        """
        with self._inline().from_step(step) as iterator:
            for element in iterator:
                return element
        raise no_element_at(step, step)

    def steps_of(self, record: int | tuple[int, int] | RecordOrigin) -> Iterator[int]:
        """Return the steps at which a record comes, in order; endless if the stream is.

        The stream is computed from its start, as far as steps are requested. A loader finds them in
        constant time where the order is a permutation.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(10).shuffle(seed=0).repeat(2).to_iter_dataset().batch(4)
        >>> list(ds.steps_of(7)) == [step for step, batch in enumerate(ds) if 7 in batch]
        True

        Args:
            record: The index of the record in the source; if there are several sources, an origin
                as `provenance().records` contains them, or the number of the source and an index.

        Raises:
            IndexError: The source has no such record.
            PlanError: There are several sources, and `record` is an index.
            ProvenanceError: A step does not keep track of records.
        """
        return find_steps_of(self, record)

    def _inline(self) -> "IterDataset[T_co]":
        """Return this dataset without workers."""
        return self

    def _seek(self, iterator: DatasetIterator[T_co], step: int) -> None:
        """Move an iterator that is at its start to a step."""
        for number in range(step):
            if next(iterator, _END) is _END:
                raise no_element_at(step, number)

    def __len__(self) -> int:
        """Return the number of elements.

        Raises:
            TypeError: It is not known before they are computed, or there is no end.
        """
        return require_length(self, known_length(plan_of(self)))

    def __bool__(self) -> bool:
        return True  # even if there are no elements, or their number is unknown

    @property
    def _plan_node(self) -> Node:
        return CustomStreamNode(site=call_site(), dataset=self, name=type(self).__name__)

    def _then(self, node: Node) -> "IterDataset[Any]":
        return PlannedIterDataset(node, (self,))

    def __add__(self, other: "IterDataset[S]") -> "IterDataset[T_co | S]":
        """Return all elements of this stream, then all of another, as `concatenate` does."""
        check_operand(self, other, IterDataset)
        return IterDataset.concatenate([cast("Any", self), cast("Any", other)])

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
        self: "IterDataset[FieldsT]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "IterDataset[FieldsT]": ...

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
        know the result for numbers, strings and arrays, and for flat dicts and tuples of them.
        Named tuples and dataclasses keep their type. For other trees it is `Any`, because the type
        of a stacked tree cannot be expressed in general.

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
        options: MultiprocessingOptions | RayOptions | None = None,
        worker_init_fn: Callable[[int, int], None] | None = None,
        sequential_slice: bool = False,
        *,
        worker_options: WorkerOptions | None = None,
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
                With 0 workers nothing changes. With `RayOptions`, the workers are actors on a Ray
                cluster.
            worker_init_fn: A function of the index of a worker and the number of workers, called
                once in each worker when it starts.
            sequential_slice: Passed to `set_slice` of your own streams, and otherwise ignored. In
                Grain it determines which records each worker reads.
            worker_options: How workers are started, monitored and replaced. It may contain the
                `worker_init_fn` instead.

        Returns:
            A stream of the same elements.

        Raises:
            PlanError: All elements come from `from_generator`, which workers cannot read.
        """
        resolved, started = as_worker_count(options, worker_options)
        if resolved.num_workers == 0:
            return self
        refuse_workers(plan_of(self))
        worker = as_worker_options(started, worker_init_fn)
        sliced = sliced_streams(
            plan_of(self),
            resolved,
            worker,
            is_sequential=bool(sequential_slice),
            site=call_site(),
        )
        if sliced is not None:
            return PlannedIterDataset(sliced, (self,))
        return PlannedIterDataset(workers_node(self, resolved, worker), (self,))

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
        self._kept_bookmarks: StepBookmarks | None = None

    @property
    def _plan_node(self) -> Node:
        return super()._plan_node if self._has_own_iter else self._node

    @property
    def _has_own_iter(self) -> bool:
        """Whether a user's subclass overrides `__iter__`; then it is called."""
        return type(self).__iter__ is not type(self)._runs_plan  # noqa: SLF001 - the same class

    def _inline(self) -> IterDataset[T_co]:
        node = inline_plan(self._plan_node)
        made: PlannedIterDataset[T_co] = PlannedIterDataset(node, self._parents)
        made._kept_bookmarks = self._bookmarks
        return made

    def _seek(self, iterator: DatasetIterator[T_co], step: int) -> None:
        if self._has_own_iter:
            super()._seek(iterator, step)
        else:
            self._bookmarks.seek(iterator, step)

    @property
    def _bookmarks(self) -> StepBookmarks:
        if self._kept_bookmarks is None:
            count = options_of(self._plan_node).get("num_bookmarks", NUM_BOOKMARKS)
            self._kept_bookmarks = StepBookmarks(count)
        return self._kept_bookmarks

    @property
    def _pools(self) -> PoolKeeper:
        if self._kept_pools is None:
            self._kept_pools = PoolKeeper().serve(self)
        return self._kept_pools

    def __iter__(self) -> DatasetIterator[T_co]:
        iterator = StreamIterator[T_co](self._node, self._pools, bookmarks=self._bookmarks)
        watch_if_requested(iterator, self)
        return iterator

    _runs_plan: ClassVar[Callable[..., Any]] = __iter__
    """The `__iter__` that yields what the node describes, unlike one that a user overrides."""


_END: Any = object()


class SliceableIterDataset(PlannedIterDataset[T_co]):
    """A stream over random access, which can be restricted to a slice."""

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict this object to some of its elements. Call it before iterating.

        All other methods return a new dataset. This one exists for the `set_slice` of datasets of
        your own, which may call that of what they read: `mp_prefetch` calls it on a copy.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(5).to_iter_dataset()
        >>> ds.set_slice(slice(1, None, 2))
        >>> list(ds)
        [1, 3]

        Args:
            sl: The slice of the elements to keep.
            sequential_slice: Whether to keep a contiguous range of the records of each source
                instead: the one with the number `sl.start` of `sl.step` ranges.

        Raises:
            PlanError: With `sequential_slice`, it reads a dataset of your own without `set_slice`.
        """
        read: Any = self._node
        access = read.parent
        if sequential_slice:
            records = slice_records(access.parent, sl)
        else:
            self._parents = (self._parent.slice(sl),)
            records = plan_of(self._parent)
        self._node = replace(read, parent=replace(access, parent=records))
        self._kept_pools = self._kept_bookmarks = None


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

    Raises:
        PlanTypeError: If `transform` is neither a function nor a `FlatMap`.
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

    Raises:
        PlanError: If `prefetch_buffer_size` is negative.
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
