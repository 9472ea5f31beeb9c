"""The base class of `MapDataset` and `IterDataset`: parents, seeds and the node of the plan."""

import importlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np

from gristmill._api.dataset.element_spec import infer_spec
from gristmill._api.dataset.no_stats import SupportsStats
from gristmill._api.dataset.render import show_html, show_line, show_text
from gristmill._api.dataset.suggestions import missing_method
from gristmill._api.grain_datasets import is_grain_dataset
from gristmill._api.monitoring.watched import watch
from gristmill._api.plan_access import plan_of
from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.transforms.base import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap
from gristmill._data.transforms.stream_operations import Scan, Unbatch, Window
from gristmill._plan.nodes.base import Node, kind_of
from gristmill._plan.nodes.hints import SeedNode
from gristmill.errors import PlanError, PlanTypeError, TransformationTypeError

if TYPE_CHECKING:
    from gristmill._api.preview import Preview
    from gristmill._metrics.explanation import Explanation

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Dataset(SupportsStats):
    """A step of a pipeline over its parents. Creating a dataset reads nothing."""

    _is_stream: ClassVar[bool] = False
    """Whether it is an `IterDataset`."""
    _parents: tuple["Dataset", ...] = ()
    _transform: object = None
    """The user's transformation, if the step has one. It may define `output_spec`."""

    @property
    def parents(self) -> Sequence[Any]:
        """The datasets that this one reads from."""
        return self._parents

    @property
    def _parent(self) -> Any:
        """The only parent. Named as in Grain, for datasets that users define."""
        (parent,) = self._parents
        return parent

    @property
    def _plan_node(self) -> Node:
        """The node of the plan that this dataset adds."""
        raise NotImplementedError

    @cached_property
    def _default_seed(self) -> int | None:
        """The seed of a step without one. Named as in Grain, for datasets that users define."""
        return _seed_from([(self, 0)])

    @property
    def _element_spec(self) -> Any:
        """The spec of the elements. Named as in Grain, for users' own datasets to override."""
        return infer_spec(plan_of(self), self._transform, self._parents)

    if not TYPE_CHECKING:  # for type checkers, an unknown attribute is an error

        def __getattr__(self, name: str) -> Any:
            try:
                # Raises the error of a property in place of one about the property itself.
                return object.__getattribute__(self, name)
            except AttributeError:
                known = dir(type(self))
                if name.startswith("_") or name in known:
                    raise
            raise AttributeError(missing_method(name, is_stream=self._is_stream, known=known))

    def __str__(self) -> str:
        return show_text(self)

    def __repr__(self) -> str:
        return show_line(self, kind_of(self))

    def _repr_html_(self) -> str:
        return show_html(self)

    def preview(
        self,
        num_elements: int = 9,
        *,
        decode: "Callable[[Any], object] | Mapping[str, Callable[[Any], object]] | None" = None,
    ) -> "Preview":
        """Return the first elements to look at: images, packed rows, decoded tokens and values.

        Of batches, the rows are shown. The elements are computed in this process, without workers.
        Notebooks show the result as HTML; `print` it in a terminal, or call `show` for images.

        >>> from gristmill import MapDataset
        >>> print(MapDataset.range(3).map(lambda x: {"square": x * x}).batch(3).preview(2))
        RangeDataSource(start=0, stop=3, step=1) -> Map <lambda> -> Batch(3): 2 elements
        [0]
          square: 0
        [1]
          square: 1

        Args:
            num_elements: How many to show.
            decode: A function that turns a list of tokens into a string, for all leaves with one
                axis of integers. Or functions by the names of leaves, which get their values.
        """
        module: Any = importlib.import_module("gristmill._api.preview")  # most programs have none
        return module.preview_dataset(self, num_elements, decode)

    def explain(
        self,
        *,
        max_s: float = 5.0,
        headspace: Callable[[Any], object] | None = None,
        num_steps: int = 10,
    ) -> "Explanation":
        """Run this dataset for some seconds, and explain which step limits it and why.

        The elements are dropped, so that the dataset is the only limit. `explain` of an iterator
        describes a training that was measured.

        >>> from gristmill import MapDataset
        >>> MapDataset.range(10).batch(5).explain().stats.num_elements
        2

        Args:
            max_s: When to stop, in seconds. It stops earlier at the end of the dataset.
            headspace: Your training step, a function of an element, to measure how fast it would be
                if data were free. It is called with the last element again and again.
            num_steps: How often to call it.

        Raises:
            PlanError: `max_s` is not positive, or the dataset has no element for `headspace`.
            PlanTypeError: `headspace` is not a function.
        """
        module: Any = importlib.import_module("gristmill._api.monitoring.explain")
        return module.explain_dataset(self, max_s=max_s, headspace=headspace, num_steps=num_steps)

    def monitor(self) -> str:
        """Let `gristmill top` and `gristmill report` of the same user read what this dataset does.

        They show the iterators that are made of it from now on, or of datasets that are built on
        it, and what `feed` makes of them. They connect to a Unix socket, which a thread of this
        process answers. Without this call, and without `GRISTMILL_MONITOR=1` in the environment,
        there is neither.

        Returns:
            The path of the socket.

        Raises:
            PlanError: Other users can enter the folder of the socket.
        """
        return watch(self)

    def report(self, path: str | os.PathLike[str], *, max_s: float = 5.0) -> None:
        """Run this dataset for some seconds, as `explain` does, and write a page about that.

        `report` of an iterator describes a training that was measured.

        Args:
            path: The file. An existing one is replaced. Its folder must exist.
            max_s: When to stop, in seconds. It stops earlier at the end of the dataset.

        Raises:
            PlanError: `max_s` is not positive, or the file cannot be written.
        """
        module: Any = importlib.import_module("gristmill._api.monitoring.explain")
        module.run_dataset(self, methodcaller("report", path), max_s=max_s)

    def trace(self, path: str | os.PathLike[str], *, max_s: float = 5.0) -> None:
        """Run this dataset for some seconds, and write which thread or worker did what and when.

        The file is in Chrome's trace format, as that of an iterator, and about its last blocks.

        Args:
            path: The file. An existing one is replaced. Its folder must exist.
            max_s: When to stop, in seconds. It stops earlier at the end of the dataset.

        Raises:
            PlanError: `max_s` is not positive, or the file cannot be written.
        """
        module: Any = importlib.import_module("gristmill._api.monitoring.explain")
        module.run_dataset(self, methodcaller("trace", path), max_s=max_s)

    def pipe(
        self, func: Callable[Concatenate[Self, P], R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return `func(self, *args, **kwargs)`, so that it can be part of a chain of calls.

        >>> from gristmill import MapDataset
        >>> def squares(ds, first):
        ...     return ds[first:].map(lambda x: x * x)
        >>> list(MapDataset.range(5).pipe(squares, first=2))
        [4, 9, 16]

        Args:
            func: A function of a dataset.
            *args: Positional arguments for `func`.
            **kwargs: Keyword arguments for `func`.

        Returns:
            The result of `func`.
        """
        return func(self, *args, **kwargs)


def check_operand(dataset: Dataset, other: object, kind: type) -> None:
    """Raise if another object cannot be added to a dataset of some class with `+`."""
    if isinstance(other, kind) or is_grain_dataset(other):
        return
    if isinstance(other, Dataset):
        raise PlanTypeError(
            "`+` concatenates two datasets with random access, or two streams. Call "
            "`to_iter_dataset()` on the `MapDataset`."
        )
    raise PlanTypeError(
        f"`+` concatenates two datasets, got {type(other).__name__}. Pass records as "
        "`MapDataset.source(...)`; use `map` to add something to each element."
    )


def check_list(datasets: T, name: str) -> T:
    """Return the argument of a function that takes a list of datasets, not a single one."""
    if isinstance(datasets, Dataset) or not isinstance(cast(object, datasets), Iterable):
        raise PlanTypeError(
            f"`{name}` takes a list of datasets, got {type(datasets).__name__}. Write "
            f"`{name}([first, second])`."
        )
    return datasets


def pair_with_index(start: int, index: int, element: T) -> tuple[int, T]:
    """Return the number of an element, counted from `start`, and the element."""
    return start + index, element


def as_parents(parents: Any) -> tuple[Any, ...]:
    """Return one dataset, or several, as a tuple. They may be those of Grain."""
    if isinstance(parents, Dataset) or is_grain_dataset(parents):
        return (parents,)
    return tuple(parents)


def apply_all(
    dataset: Any, transformations: Any, *, flat_map: Callable[[Any, FlatMap], Any]
) -> Any:
    """Apply one transformation, or several in order, and return the resulting dataset.

    Args:
        dataset: A `MapDataset` or `IterDataset`.
        transformations: A transformation, or a sequence of them.
        flat_map: How to apply a `FlatMap`, which is not a method of datasets.
    """
    several: Sequence[Any] = (
        cast("Sequence[Any]", transformations)
        if isinstance(transformations, Sequence)
        else (transformations,)
    )
    for transformation in several:
        match transformation:
            case Batch():
                dataset = dataset.batch(
                    transformation.batch_size,
                    drop_remainder=transformation.drop_remainder,
                    batch_fn=transformation.batch_fn,
                )
            case Map():
                dataset = dataset.map(transformation)
            case RandomMap():
                dataset = dataset.random_map(transformation)
            case MapWithIndex():
                dataset = dataset.map_with_index(transformation)
            case Filter():
                dataset = dataset.filter(transformation)
            case FlatMap():
                dataset = flat_map(dataset, transformation)
            case Unbatch():
                dataset = dataset.unbatch()
            case BucketByLength() | Scan() | Window():
                dataset = _with_operation(dataset, transformation)
            case _:
                raise TransformationTypeError(
                    f"Transformation type: {transformation!r} is not supported. Derive it from "
                    "Map, RandomMap, Filter or FlatMap, or call `map` with a function."
                )
    return dataset


def _with_operation(dataset: Any, operation: BucketByLength | Scan | Window) -> Any:
    """Return the stream that an operation over the order of elements makes of another."""
    if not dataset._is_stream:  # noqa: SLF001 - of the class above
        raise PlanTypeError(
            f"`{type(operation).__name__}` needs a stream. Call `to_iter_dataset()` before it."
        )
    return dataset._with_operation(operation)  # noqa: SLF001 - of its subclass


def resolve_seed(dataset: Dataset, seed: int | None, *, method: str) -> int:
    """Return the seed of a random step over `dataset`: `seed`, or one derived from `ds.seed()`."""
    if seed is not None:
        return seed
    default = _seed_from([(dataset, 1)])
    if default is None:
        raise PlanError(
            f"`{method}` requires a seed. Call `ds.seed(0)` before it, which seeds all random "
            f"steps after it, or pass `seed=` to `{method}`."
        )
    return default


def _seed_from(level: list[tuple[Dataset, int]]) -> int | None:
    """Combine the seeds set below as Grain does: breadth first, each with its distance."""
    found: list[int] = []
    for dataset, depth in level:
        node = plan_of(dataset)
        if isinstance(node, SeedNode):
            found += (node.seed, depth)
        elif (seed := getattr(dataset, "_seed_rng_seed", None)) is not None:  # a dataset of Grain
            found += (seed, depth)
        else:
            level.extend((parent, depth + 1) for parent in dataset.parents)
    return int(np.random.SeedSequence(found).generate_state(1)[0]) if found else None
