"""`MapDataset`: random access to elements by index, with one method per step."""

import builtins
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, cast, overload

import numpy as np

from gristmill._api.dataset.base import apply_all, as_parents, check_list, check_operand
from gristmill._api.dataset.builders.combining import concatenate_node, mix_node, select_node
from gristmill._api.dataset.builders.steps import (
    batch_node,
    fan_out_node,
    filter_node,
    map_node,
    map_with_index_node,
    pick_node,
    random_map_node,
    read_node,
    reject_absent_elements,
    repeat_node,
    seed_node,
    shuffle_node,
)
from gristmill._api.dataset.iter_dataset import IterDataset, SliceableIterDataset
from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._api.dataset.map_steps import MapSteps
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
from gristmill._api.dataset.suggestions import SuggestsConstructors
from gristmill._api.grain_datasets import grain_node, grain_source_node, is_grain_dataset
from gristmill._api.plan_access import source_node
from gristmill._base.argument_advice import advises_list
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_kind
from gristmill._base.grain.classes import MapDataset as GrainMapDataset
from gristmill._base.indices import as_indices
from gristmill._data.sources.memory.range import RangeDataSource
from gristmill._data.transforms.base import Transformation, Transformations
from gristmill._engine.access.context import Reader
from gristmill._engine.access.reader import open_dataset, read_element
from gristmill._plan.mix_schedule import MixWeights
from gristmill._plan.nodes.base import ENDLESS, Node
from gristmill._plan.nodes.dataset import CustomNode
from gristmill._plan.nodes.hints import as_on_error
from gristmill._plan.nodes.sliced_stream import slice_records
from gristmill.errors import PlanError, PlanTypeError
from gristmill.options import ReadOptions, SkipErrors
from gristmill.types import RandomAccessDataSource

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")


class MapDatasetMeta(SuggestsConstructors, ABCMeta):
    """Constructors of `MapDataset`. As in Grain they exist on the class, not on its instances."""

    def source(cls, source: Sequence[T] | RandomAccessDataSource[T]) -> "MapDataset[T]":
        """Return a dataset of the records of a source, in the order of the source.

        >>> ds = MapDataset.source(["a", "b"])
        >>> len(ds), ds[1]
        (2, 'b')

        Args:
            source: An object with `__len__` and `__getitem__`, such as a list, an array or a
                source of `gristmill.sources`. It may also have `__getitems__(indices)`, which then
                reads many records in one call.

        Raises:
            PlanTypeError: `source` is not a source.
        """
        if is_grain_dataset(source):
            return PlannedMapDataset(grain_source_node(source), ())
        return SliceableMapDataset(source_node(source), ())

    def range(cls, start: int, stop: int | None = None, step: int = 1) -> "MapDataset[int]":
        """Return a dataset of integers, with the arguments of the built-in `range`.

        >>> list(MapDataset.range(1, 8, 3))
        [1, 4, 7]

        Args:
            start: The first integer, or the end if `stop` is `None`.
            stop: The end, which is not included.
            step: The difference between two integers.
        """
        first, end = (0, start) if stop is None else (start, stop)
        return SliceableMapDataset(source_node(RangeDataSource(first, end, step)), ())

    def mix(
        cls, datasets: "Sequence[MapDataset[T]]", weights: MixWeights | None = None
    ) -> "MapDataset[T]":
        """Return a dataset that alternates between datasets in proportion to weights.

        The order is deterministic. The length is that at which the first dataset is exhausted;
        `repeat` datasets before mixing them to prevent that.

        >>> list(MapDataset.mix([MapDataset.range(5), MapDataset.range(7, 10)]))
        [0, 7, 1, 8, 2, 9]

        Args:
            datasets: The datasets to mix. None of them may be empty.
            weights: A positive number for each dataset. By default all are equal. Or weights that
                change with the number of mixed elements: a table such as `{0: [0.9, 0.1], 5000:
                [0.5, 0.5]}`, a pure function of that number, or a `MixSchedule`, which counts in
                training steps.
        """
        parents = as_datasets(datasets)
        return PlannedMapDataset(mix_node(parents, weights), parents)

    def select_from_datasets(
        cls,
        datasets: "Sequence[MapDataset[T]]",
        selection_map: RandomAccessDataSource[tuple[int, int]],
    ) -> "MapDataset[T]":
        """Return a dataset that takes each element from where `selection_map` points to.

        >>> two = [MapDataset.source(["a", "b"]), MapDataset.source(["x", "y"])]
        >>> list(MapDataset.select_from_datasets(two, [(1, 0), (0, 1), (1, 1)]))
        ['x', 'b', 'y']

        Args:
            datasets: The datasets to take elements from.
            selection_map: For each index, the number of a dataset and an index in it. A list, or
                a `DatasetSelectionMap`. It must be deterministic.
        """
        parents = as_datasets(datasets)
        return PlannedMapDataset(select_node(parents, selection_map), parents)

    @advises_list("MapDataset.concatenate")
    def concatenate(cls, datasets: "Sequence[MapDataset[T]]") -> "MapDataset[T]":
        """Return a dataset of all elements of the first dataset, then of the second, and so on.

        `first + second` does the same for two datasets.

        >>> list(MapDataset.concatenate([MapDataset.range(2), MapDataset.range(7, 9)]))
        [0, 1, 7, 8]

        Args:
            datasets: The datasets to concatenate. None of them may be infinite.
        """
        parents = as_datasets(check_list(datasets, "MapDataset.concatenate"))
        return PlannedMapDataset(concatenate_node(parents), parents)


class MapDataset(MapSteps[T_co], GrainMapDataset, Generic[T_co], metaclass=MapDatasetMeta):
    """A dataset with random access to its elements.

    Each method adds a step and returns a new dataset; the original does not change. Steps are
    evaluated lazily: nothing is read until an element is requested. The elements do not depend on
    how or in which order they are computed.

    An index beyond the length refers to a later epoch: `ds[len(ds)]` is the first element of the
    second epoch, which `shuffle` orders differently. An element that `filter` removed is `None`;
    iteration skips it.

    >>> ds = MapDataset.range(10).filter(lambda x: x % 2 == 0).map(lambda x: x * x)
    >>> ds[4], ds[5], list(ds)
    (16, None, [0, 4, 16, 36, 64])

    Create one with `MapDataset.source`, `range`, `mix`, `concatenate` or `select_from_datasets`.
    Subclass it for a dataset of your own, with `__len__` and `__getitem__`.

    Args:
        parents: The datasets that a dataset of your own reads from.
    """

    def __init__(self, parents: "MapDataset[Any] | Sequence[MapDataset[Any]]" = ()) -> None:
        super().__init__()
        self._parents = as_parents(parents)

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of elements of one epoch."""

    @overload
    def __getitem__(self, index: int) -> T_co | None: ...

    @overload
    def __getitem__(self, index: slice) -> "MapDataset[T_co]": ...

    @overload
    def __getitem__(self, index: "Sequence[int] | MapDataset[int]") -> "MapDataset[T_co]": ...

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Return the element at an index, or the dataset of those in a slice or a sequence.

        Args:
            index: An integer, for one element, which is `None` if a filter removed it. A slice or a
                sequence of integers, for a dataset.
        """

    def __iter__(self) -> DatasetIterator[T_co]:
        return iter(self.to_iter_dataset())

    def _getitems(self, indices: Sequence[int]) -> Sequence[T_co | None]:
        """Return many elements. Named as in Grain, for datasets that users define to override."""
        return [self[index] for index in indices]

    @property
    def _plan_node(self) -> Node:
        return CustomNode(site=call_site(), dataset=self, name=type(self).__name__)

    def _then(self, node: Node) -> "MapDataset[Any]":
        return PlannedMapDataset(node, (self,))

    def __add__(self, other: "MapDataset[S]") -> "MapDataset[T_co | S]":
        """Return all elements of this dataset, then all of another, as `concatenate` does."""
        check_operand(self, other, MapDataset)
        return MapDataset.concatenate([cast("Any", self), cast("Any", other)])

    def apply(self, transformations: Transformation | Transformations) -> "MapDataset[Any]":
        """Apply one transformation, or several in order.

        >>> from gristmill import Batch, MapDataset
        >>> [batch.tolist() for batch in MapDataset.range(3).apply([Batch(2)])]
        [[0, 1], [2]]

        Args:
            transformations: A transformation, such as a `Map` or `Batch`, or a sequence of them.

        Returns:
            The transformed dataset.
        """
        return apply_all(self, transformations, flat_map=FlatMapMapDataset)

    @overload
    def batch(
        self: "MapDataset[UntypedElement]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "MapDataset[Any]": ...

    @overload
    def batch(
        self: "MapDataset[FieldsT]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "MapDataset[FieldsT]": ...

    @overload
    def batch(
        self: "MapDataset[Leaf]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "MapDataset[Array]": ...

    @overload
    def batch(
        self: "MapDataset[Mapping[str, Leaf]]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "MapDataset[dict[str, Array]]": ...

    @overload
    def batch(
        self: "MapDataset[tuple[Leaf, ...]]",
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: None = None,
    ) -> "MapDataset[tuple[Array, ...]]": ...

    @overload
    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T_co]], S],
    ) -> "MapDataset[S]": ...

    @overload
    def batch(
        self, batch_size: int, *, drop_remainder: bool = False, batch_fn: None = None
    ) -> "MapDataset[Any]": ...

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[Any]], Any] | None = None,
    ) -> "MapDataset[Any]":
        """Combine every `batch_size` consecutive elements into one.

        By default the leaves of the elements are stacked along a new first axis. Type checkers
        know the result for numbers, strings and arrays, and for flat dicts and tuples of them.
        Named tuples and dataclasses keep their type. For other trees it is `Any`, because the type
        of a stacked tree cannot be expressed in general.

        >>> [batch.tolist() for batch in MapDataset.range(5).batch(2)]
        [[0, 1], [2, 3], [4]]

        Args:
            batch_size: The number of elements of a batch, at least 1.
            drop_remainder: Whether to drop a last batch with fewer elements.
            batch_fn: A function from a list of elements to a batch, instead of stacking.

        Returns:
            A dataset of batches.

        Raises:
            PlanError: A filter precedes it, so the elements of a batch cannot be located by index.
                Call `to_iter_dataset()` before `batch`.
        """
        reject_absent_elements(self, "batch")
        return PlannedMapDataset(batch_node(self, batch_size, drop_remainder, batch_fn), (self,))

    def filter(
        self, transform: SupportsFilter[T_co] | Callable[[T_co], object]
    ) -> "MapDataset[T_co]":
        """Keep the elements for which a function returns true.

        Length and indices do not change: a removed element is `None`, and iteration skips it.

        >>> ds = MapDataset.range(4).filter(lambda x: x % 2)
        >>> len(ds), ds[0], ds[1], list(ds)
        (4, None, 1, [1, 3])

        Args:
            transform: A `Filter`, or a function of an element.

        Returns:
            The filtered dataset.
        """
        return PlannedMapDataset(filter_node(self, transform), (self,), transform)

    def map(self, transform: SupportsMap[T_co, S] | Callable[[T_co], S]) -> "MapDataset[S]":
        """Replace each element by the result of a function.

        The function is not called for elements that a filter removed.

        >>> list(MapDataset.range(3).map(str))
        ['0', '1', '2']

        Args:
            transform: A `Map`, or a function of an element. It must be deterministic; use
                `random_map` for randomness.

        Returns:
            The mapped dataset.
        """
        return PlannedMapDataset(map_node(self, transform), (self,), transform)

    def map_with_index(
        self, transform: SupportsMapWithIndex[T_co, S] | Callable[[int, T_co], S]
    ) -> "MapDataset[S]":
        """Replace each element by the result of a function of its index and the element.

        >>> list(MapDataset.source(["a", "b"]).map_with_index(lambda i, x: f"{x}{i}"))
        ['a0', 'b1']

        Args:
            transform: A `MapWithIndex`, or a function of an index and an element.

        Returns:
            The mapped dataset.
        """
        return PlannedMapDataset(map_with_index_node(self, transform), (self,), transform)

    def random_map(
        self,
        transform: SupportsRandomMap[T_co, S] | Callable[[T_co, np.random.Generator], S],
        *,
        seed: int | None = None,
    ) -> "MapDataset[S]":
        """Replace each element by the result of a function of the element and a random generator.

        The generator is a function of the seed and the index alone, so an element is the same
        whenever and wherever it is computed. Later epochs have other indices, hence other values.

        >>> ds = MapDataset.range(3).random_map(lambda x, rng: x + int(rng.integers(10)), seed=0)
        >>> list(ds) == [ds[0], ds[1], ds[2]]
        True

        Args:
            transform: A `RandomMap`, or a function of an element and a `numpy.random.Generator`.
            seed: The seed of this step. By default it is derived from `ds.seed()`.

        Returns:
            The mapped dataset.

        Raises:
            PlanError: There is no seed.
        """
        return PlannedMapDataset(random_map_node(self, transform, seed), (self,), transform)

    def seed(self, seed: int) -> "MapDataset[T_co]":
        """Set the seed from which all random steps after this one derive their own.

        >>> list(MapDataset.range(5).seed(1).shuffle())
        [1, 4, 2, 3, 0]

        Args:
            seed: A non-negative integer.

        Returns:
            A dataset with the same elements.
        """
        return PlannedMapDataset(seed_node(self, seed), (self,))

    def shuffle(self, seed: int | None = None) -> "MapDataset[T_co]":
        """Permute the elements, in each epoch differently.

        The order of an epoch is a function of the seed and the number of the epoch. It is computed
        for each index on its own: shuffling needs no memory, and a restart does not repeat work.

        >>> list(MapDataset.range(5).shuffle(seed=42))
        [4, 1, 2, 3, 0]

        Args:
            seed: The seed of this step. By default it is derived from `ds.seed()`.

        Returns:
            The shuffled dataset.

        Raises:
            PlanError: There is no seed.
        """
        return PlannedMapDataset(shuffle_node(self, seed), (self,))

    def slice(self, sl: "builtins.slice | Sequence[int] | MapDataset[int]") -> "MapDataset[T_co]":
        """Return the dataset of the elements in a slice, as `ds[start:stop:step]` does.

        `ds[shard::num_shards]` is one of `num_shards` shards.

        >>> list(MapDataset.range(10).slice(slice(1, None, 4)))
        [1, 5, 9]
        >>> list(MapDataset.range(10).slice([3, 1, 3]))
        [3, 1, 3]

        Args:
            sl: A slice within one epoch. Or the indices of the elements, as a sequence or a finite
                dataset, which is read by this call.
        """
        if isinstance(sl, Sequence | np.ndarray | MapDataset):
            picks = tuple(_as_index(index) for index in _indices_of(sl))
            return PlannedMapDataset(pick_node(self, picks), (self,))
        return self._slice(sl)

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> "MapDataset[T_co]":
        """Return a dataset of several epochs, or of infinitely many.

        >>> list(MapDataset.range(3).repeat(2))
        [0, 1, 2, 0, 1, 2]

        Args:
            num_epochs: The number of epochs, at least 1. `None` means infinitely many.
            reseed_each_epoch: Whether random steps before this one differ from epoch to epoch. If
                not, all epochs are equal to the first.

        Raises:
            PlanError: The dataset is infinite already.
        """
        return PlannedMapDataset(repeat_node(self, num_epochs, reseed_each_epoch), (self,))

    def to_iter_dataset(
        self,
        read_options: ReadOptions | None = None,
        *,
        allow_nones: bool = False,
        on_error: Literal["raise"] | SkipErrors = "raise",
    ) -> IterDataset[T_co]:
        """Return the elements of one epoch as a stream, in the order of their indices.

        >>> list(MapDataset.range(4).filter(lambda x: x > 1).to_iter_dataset())
        [2, 3]

        Args:
            read_options: How many threads read, and how far ahead of the consumer.
            allow_nones: Whether the stream contains `None` for elements that a filter removed. By
                default it skips them.
            on_error: `"raise"` to raise the errors of elements, or `SkipErrors(budget)` to skip
                elements that raise, here or in a step before the first batch. The iterator lists
                them as `skipped`.
        """
        node = read_node(self, read_options, allow_nones, as_on_error(on_error))
        return SliceableIterDataset(node, (self,))


class PlannedMapDataset(MapDataset[T_co]):
    """A dataset that the engine reads, as a node of the plan describes."""

    def __init__(
        self, node: Node, parents: Sequence[MapDataset[Any]], transform: object = None
    ) -> None:
        super().__init__(parents)
        self._node = node
        self._transform = transform

    @property
    def _plan_node(self) -> Node:
        return super()._plan_node if self._has_own_access else self._node

    @property
    def _has_own_access(self) -> bool:
        """Whether a user's subclass overrides the methods that read it; then these are called."""
        cls: Any = type(self)
        base: Any = PlannedMapDataset
        return cls.__getitem__ is not base.__getitem__ or cls.__len__ is not base.__len__

    @cached_property
    def _read(self) -> Reader:
        return open_dataset(self._node)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_read"}

    def __len__(self) -> int:
        return self._node.length()

    @overload
    def __getitem__(self, index: int) -> T_co | None: ...

    @overload
    def __getitem__(self, index: slice) -> MapDataset[T_co]: ...

    @overload
    def __getitem__(self, index: Sequence[int] | MapDataset[int]) -> MapDataset[T_co]: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice | Sequence | np.ndarray | MapDataset):
            return self.slice(cast("builtins.slice", index))
        position = _as_index(index)
        if not len(self):
            raise IndexError(f"`index` {position} is out of range: the dataset is empty.")
        return read_element(self._read, position)

    def __getitems__(self, indices: Sequence[int]) -> list[T_co | None]:
        """Return many elements, read in one call. PyTorch's loaders use it.

        Args:
            indices: The indices of the elements.
        """
        made = self._read(as_indices(indices))
        if made.error is not None:
            raise made.error
        return made.block.rows()


class SliceableMapDataset(PlannedMapDataset[T_co]):
    """The records of a source, which can be restricted to a contiguous range."""

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict this object to a contiguous range of the records. Call it before reading.

        All other methods return a new dataset. This one exists for the `set_slice` of datasets of
        your own, which may call that of what they read.

        >>> ds = MapDataset.range(5)
        >>> ds.set_slice(slice(0, None, 2), sequential_slice=True)
        >>> list(ds)
        [0, 1, 2]

        Args:
            sl: The number of the range, as `start`, and the number of ranges, as `step`.
            sequential_slice: It must be true.

        Raises:
            PlanError: `sequential_slice` is false.
        """
        if not sequential_slice:
            raise PlanError(
                "A source can only be restricted to a contiguous range, with `sequential_slice`. "
                "Use `ds.slice(sl)`, which returns a new dataset."
            )
        self._node = slice_records(self._node, sl)
        vars(self).pop("_read", None)


class FlatMapMapDataset(PlannedMapDataset[S]):
    """Replaces each element by several.

    Each element gets `max_fan_out` indices, so that elements can be located by index. Indices
    without a result are `None`, and iteration skips them.

    >>> from gristmill.transforms import FlatMap
    >>> class Split(FlatMap):
    ...     max_fan_out = 2
    ...
    ...     def flat_map(self, element):
    ...         return element.split()
    >>> ds = FlatMapMapDataset(MapDataset.source(["a b", "c"]), Split())
    >>> len(ds), list(ds)
    (4, ['a', 'b', 'c'])

    Args:
        parent: The dataset to read.
        transform: A `FlatMap`, with `max_fan_out`.

    Raises:
        PlanTypeError: If `transform` is neither a function nor a `FlatMap`.
    """

    def __init__(self, parent: MapDataset[T], transform: SupportsFlatMap[T, S]) -> None:
        super().__init__(fan_out_node(parent, transform), (parent,), transform)


def _indices_of(picks: "Sequence[int] | MapDataset[int]") -> Sequence[Any]:
    """Return indices that the user lists, or those that a dataset holds."""
    if not isinstance(picks, MapDataset):
        return picks
    if len(picks) >= ENDLESS:
        raise PlanError("A dataset of indices must be finite. Slice it first.")
    return [picks[number] for number in range(len(picks))]


def _as_index(index: Any) -> int:
    """Return an integer of any type as an `int`."""
    try:
        return int(index.__index__())
    except AttributeError:
        raise PlanTypeError(
            f"The index of a dataset must be an integer, a slice or a sequence of integers, got "
            f"{index!r}."
        ) from None


def as_datasets(datasets: Sequence[MapDataset[T]]) -> tuple[MapDataset[T], ...]:
    """Return datasets as a tuple, after a check that they are `MapDataset`s."""
    found = tuple(
        PlannedMapDataset[T](grain_node(dataset), ()) if is_grain_dataset(dataset) else dataset
        for dataset in datasets
    )
    for dataset in found:
        as_kind("datasets", dataset, MapDataset, remedy="Pass `MapDataset.source(...)`.")
    return found
