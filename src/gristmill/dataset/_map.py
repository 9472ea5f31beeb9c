"""`MapDataset`: elements by index, one fluent step after the other."""

import builtins
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar, cast, overload

import numpy as np

from gristmill._check import as_int, as_kind, as_seed
from gristmill._site import call_site
from gristmill.dataset._dataset import Dataset, seed_for
from gristmill.dataset._iter import IterDataset, PlannedIterDataset
from gristmill.dataset._iterator import DatasetIterator
from gristmill.dataset._transform import as_function, as_split
from gristmill.errors import PlanError, PlanTypeError
from gristmill.execute import fetch_one, open_fetch
from gristmill.options import ReadOptions
from gristmill.plan import (
    ENDLESS,
    AccessNode,
    BatchNode,
    ConcatenateNode,
    CustomNode,
    FanOutNode,
    FilterNode,
    MapNode,
    MapWithIndexNode,
    MixNode,
    Node,
    PickNode,
    ReadNode,
    RepeatNode,
    SeededMapNode,
    SeedNode,
    SelectNode,
    ShuffleNode,
    SliceNode,
    SourceNode,
    WindowShuffleNode,
    ZipNode,
    as_proportions,
)
from gristmill.sources import RandomAccessDataSource, RangeDataSource
from gristmill.transforms import Filter, FlatMap, Map, MapWithIndex, RandomMap, SupportsMapBatch

T = TypeVar("T")
S = TypeVar("S")


class MapDatasetMeta(ABCMeta):
    """The ways to begin a `MapDataset`; on the class, not on its instances."""

    def source(cls, source: Sequence[T] | RandomAccessDataSource[T]) -> "MapDataset[T]":
        """Give the records of a source.

        >>> MapDataset.source(["a", "b"])[3]
        'b'
        """
        return PlannedMapDataset(SourceNode(site=call_site(), source=source), ())

    def range(cls, start: int, stop: int | None = None, step: int = 1) -> "MapDataset[int]":
        """Give integers, as the built-in `range` does.

        >>> list(MapDataset.range(1, 8, 3))
        [1, 4, 7]
        """
        first, end = (0, start) if stop is None else (start, stop)
        source = RangeDataSource(first, end, step)
        return PlannedMapDataset(SourceNode(site=call_site(), source=source), ())

    def mix(
        cls, datasets: "Sequence[MapDataset[T]]", weights: Sequence[float] | None = None
    ) -> "MapDataset[T]":
        """Give elements of several datasets in turn, by weights, until one has given all it has.

        >>> list(MapDataset.mix([MapDataset.range(5), MapDataset.range(7, 10)]))
        [0, 7, 1, 8, 2, 9]
        """
        parents = _as_datasets(datasets)
        node = MixNode(
            site=call_site(),
            parents=tuple(parent.node for parent in parents),
            proportions=as_proportions(weights, len(parents)),
        )
        return PlannedMapDataset(node, parents)

    def select_from_datasets(
        cls, datasets: "Sequence[MapDataset[T]]", selection_map: Any
    ) -> "MapDataset[T]":
        """Give elements where `selection_map[index]` says: a dataset's number, an index in it."""
        parents = _as_datasets(datasets)
        node = SelectNode(
            site=call_site(),
            parents=tuple(parent.node for parent in parents),
            selection=selection_map,
        )
        return PlannedMapDataset(node, parents)

    def concatenate(cls, datasets: "Sequence[MapDataset[T]]") -> "MapDataset[T]":
        """Give one dataset after the other.

        >>> list(MapDataset.concatenate([MapDataset.range(2), MapDataset.range(7, 9)]))
        [0, 1, 7, 8]
        """
        parents = _as_datasets(datasets)
        nodes = tuple(parent.node for parent in parents)
        return PlannedMapDataset(ConcatenateNode(site=call_site(), parents=nodes), parents)


class MapDataset(Dataset, Generic[T], metaclass=MapDatasetMeta):
    """Elements by index. Past the length come later epochs; `None` stands for an absent element.

    >>> ds = MapDataset.range(10).filter(lambda x: x % 2 == 0).map(lambda x: x * x)
    >>> ds[4], ds[5], list(ds)
    (16, None, [0, 4, 16, 36, 64])

    Users derive their own, with `__len__` and `__getitem__`.
    """

    def __init__(self, parents: "MapDataset[Any] | Sequence[MapDataset[Any]]" = ()) -> None:
        super().__init__()
        self._parents = (parents,) if isinstance(parents, MapDataset) else tuple(parents)

    @abstractmethod
    def __len__(self) -> int:
        """Count the elements of one epoch."""

    @overload
    def __getitem__(self, index: int) -> T | None: ...

    @overload
    def __getitem__(self, index: slice) -> "MapDataset[T]": ...

    @overload
    def __getitem__(self, index: Sequence[int]) -> "MapDataset[T]": ...

    @abstractmethod
    def __getitem__(self, index: Any) -> Any:
        """Give the element at an index, or a dataset of those in a slice or sequence."""

    def __iter__(self) -> DatasetIterator[T]:
        return iter(self.to_iter_dataset())

    @property
    def node(self) -> Node:
        return CustomNode(site=call_site(), dataset=self, name=type(self).__name__)

    def batch(
        self,
        batch_size: int,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T]], S] | None = None,
    ) -> "MapDataset[S]":
        """Give every `batch_size` elements stacked, or as `batch_fn` makes one of them.

        >>> [batch.tolist() for batch in MapDataset.range(5).batch(2)]
        [[0, 1], [2, 3], [4]]
        """
        _refuse_gaps(self)
        node = BatchNode(
            site=call_site(),
            parent=self.node,
            size=as_int("batch_size", batch_size, minimum=1),
            drop_remainder=bool(drop_remainder),
            function=batch_fn,
        )
        return PlannedMapDataset(node, (self,))

    def filter(self, transform: Filter | Callable[[T], bool]) -> "MapDataset[T]":
        """Leave out elements: their places are `None`, and iterating skips those."""
        function, name = as_function("filter", transform, Filter, "filter")
        node = FilterNode(site=call_site(), parent=self.node, name=name, function=function)
        return PlannedMapDataset(node, (self,), transform)

    def map(self, transform: Map | Callable[[T], S]) -> "MapDataset[S]":
        """Give a function of each element."""
        function, name = as_function("map", transform, Map, "map")
        at_once = transform.map_batch if isinstance(transform, SupportsMapBatch) else None
        node = MapNode(
            site=call_site(),
            parent=self.node,
            name=name,
            function=function,
            batch_function=at_once,
        )
        return PlannedMapDataset(node, (self,), transform)

    def map_with_index(self, transform: MapWithIndex | Callable[[int, T], S]) -> "MapDataset[S]":
        """Give a function of each element and its index.

        >>> list(MapDataset.source(["a", "b"]).map_with_index(lambda i, x: f"{x}{i}"))
        ['a0', 'b1']
        """
        function, name = as_function("map_with_index", transform, MapWithIndex, "map_with_index")
        node = MapWithIndexNode(site=call_site(), parent=self.node, name=name, function=function)
        return PlannedMapDataset(node, (self,), transform)

    def random_map(
        self,
        transform: RandomMap | Callable[[T, np.random.Generator], S],
        *,
        seed: int | None = None,
    ) -> "MapDataset[S]":
        """Give a function of each element and a generator made from the seed and its index."""
        function, name = as_function("random_map", transform, RandomMap, "random_map")
        node = SeededMapNode(
            site=call_site(),
            parent=self.node,
            name=name,
            function=function,
            seed=seed_for((self,), seed, step="random_map"),
        )
        return PlannedMapDataset(node, (self,), transform)

    def seed(self, seed: int) -> "MapDataset[T]":
        """Give every random step after this a seed of its own, derived from this one."""
        node = SeedNode(site=call_site(), parent=self.node, seed=as_seed(seed, bits=63))
        return PlannedMapDataset(node, (self,))

    def shuffle(self, seed: int | None = None) -> "MapDataset[T]":
        """Give the elements in another order, in each epoch in a different one.

        >>> list(MapDataset.range(5).shuffle(seed=42))
        [4, 1, 2, 3, 0]
        """
        settled = as_seed(seed_for((self,), seed, step="shuffle"))
        return PlannedMapDataset(
            ShuffleNode(site=call_site(), parent=self.node, seed=settled), (self,)
        )

    def slice(self, sl: builtins.slice) -> "MapDataset[T]":
        """Give the elements of a slice: `ds.slice(slice(0, None, 8))` is `ds[::8]`."""
        part = as_kind("sl", sl, builtins.slice, remedy="Pass `slice(start, stop, step)`.")
        start, stop, step = part.indices(len(self))
        node = SliceNode(site=call_site(), parent=self.node, start=start, stop=stop, step=step)
        return PlannedMapDataset(node, (self,))

    def repeat(
        self, num_epochs: int | None = None, *, reseed_each_epoch: bool = True
    ) -> "MapDataset[T]":
        """Give several epochs as one, or epochs without end.

        Random steps below differ from epoch to epoch, unless `reseed_each_epoch` is false.
        """
        if len(self) >= ENDLESS:
            raise PlanError("The dataset has no end already. Repeat it once.")
        node = RepeatNode(
            site=call_site(),
            parent=self.node,
            num_epochs=None if num_epochs is None else as_int("num_epochs", num_epochs, minimum=1),
            reseeds=bool(reseed_each_epoch),
        )
        return PlannedMapDataset(node, (self,))

    def _split(self, transform: FlatMap) -> "MapDataset[Any]":
        return FlatMapMapDataset(self, transform)

    def to_iter_dataset(
        self, read_options: ReadOptions | None = None, *, allow_nones: bool = False
    ) -> "IterDataset[T]":
        """Give the elements one after the other, without the absent ones unless allowed."""
        site = call_site()
        access = AccessNode(site=site, parent=self.node, keeps_none=bool(allow_nones))
        options = ReadOptions() if read_options is None else read_options
        return PlannedIterDataset(ReadNode(site=site, parent=access, options=options), (self,))


class PlannedMapDataset(MapDataset[T]):
    """A dataset of ours: a node of the plan, read a block at a time."""

    def __init__(
        self, node: Node, parents: Sequence[MapDataset[Any]], transform: Any = None
    ) -> None:
        super().__init__(parents)
        self._node = node
        self.transform = transform

    @property
    def node(self) -> Node:
        return self._node

    @cached_property
    def _fetch(self) -> Any:
        return open_fetch(self._node)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_fetch"}

    def __len__(self) -> int:
        return self._node.length()

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(cast("builtins.slice", index))
        if isinstance(index, Sequence | np.ndarray):
            return self._pick(cast("Sequence[int]", index))
        place = as_index(index)
        if not len(self):
            raise IndexError(f"index {place} of an empty dataset")
        return fetch_one(self._fetch, place)

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Give many elements, read in one go; loaders that know of this ask for it."""
        made = self._fetch(np.array(indices, dtype=np.int64))
        if made.error is not None:
            raise made.error
        return made.block.rows()

    def _pick(self, indices: Sequence[int]) -> "MapDataset[T]":
        picks = tuple(as_index(index) for index in indices)
        node = PickNode(site=call_site(), parent=self._node, picks=picks)
        return PlannedMapDataset(node, (self,))


class WindowShuffleMapDataset(PlannedMapDataset[T]):
    """Each `window_size` elements in another order.

    >>> list(WindowShuffleMapDataset(MapDataset.range(6), window_size=3, seed=1))
    [1, 2, 0, 3, 5, 4]
    """

    def __init__(self, parent: MapDataset[T], *, window_size: int, seed: int) -> None:
        node = WindowShuffleNode(
            site=call_site(),
            parent=parent.node,
            window=as_int("window_size", window_size, minimum=1),
            seed=as_seed(seed),
        )
        super().__init__(node, (parent,))


class ZipMapDataset(PlannedMapDataset[Any]):
    """Tuples of the elements at the same index.

    >>> list(ZipMapDataset([MapDataset.range(2), MapDataset.range(7, 9)]))
    [(0, 7), (1, 8)]
    """

    def __init__(self, parents: Sequence[MapDataset[Any]]) -> None:
        datasets = _as_datasets(parents)
        nodes = tuple(parent.node for parent in datasets)
        super().__init__(ZipNode(site=call_site(), parents=nodes), datasets)


class FlatMapMapDataset(PlannedMapDataset[Any]):
    """The pieces of each element, at most `max_fan_out` of them."""

    def __init__(self, parent: MapDataset[Any], transform: FlatMap) -> None:
        function, name, fan_out = as_split(transform)
        node = FanOutNode(
            site=call_site(),
            parent=parent.node,
            name=name,
            function=function,
            max_fan_out=fan_out,
        )
        super().__init__(node, (parent,), transform)


def as_index(index: Any) -> int:
    """Take an integer of any kind as an index."""
    try:
        return int(index.__index__())
    except AttributeError:
        raise PlanTypeError(
            f"A dataset takes an integer, a slice or a sequence of integers, got {index!r}."
        ) from None


def _as_datasets(datasets: Any) -> tuple[MapDataset[Any], ...]:
    found = tuple(datasets)
    for dataset in found:
        as_kind("datasets", dataset, MapDataset, remedy="Pass `MapDataset.source(...)`.")
    return found


def _refuse_gaps(dataset: MapDataset[Any]) -> None:
    """Refuse what may hold absent elements, as Grain does: also below a dataset of the user's."""
    node = dataset.node
    if isinstance(node, FilterNode | FanOutNode):
        raise PlanError(
            f"`MapDataset.batch` cannot follow {node.label}, which leaves places empty. Call "
            "`to_iter_dataset()` before `batch`."
        )
    for parent in dataset.parents:
        _refuse_gaps(parent)
