"""The base class of `MapDataset` and `IterDataset`: parents, seeds and the node of the plan."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

import numpy as np

from gristmill._api.dataset.element_spec import infer_spec
from gristmill._api.dataset.no_stats import SupportsStats
from gristmill._api.dataset.render import show_html, show_line, show_text
from gristmill._api.grain_datasets import is_grain_dataset
from gristmill._api.plan_access import plan_of
from gristmill._data.transforms.base import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.hints import SeedNode
from gristmill.errors import PlanError, TransformationTypeError

P = ParamSpec("P")
R = TypeVar("R")


class Dataset(SupportsStats):
    """A step of a pipeline over its parents. Creating a dataset reads nothing."""

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

    def __str__(self) -> str:
        return show_text(self)

    def __repr__(self) -> str:
        return show_line(self, type(self).__name__.removeprefix("Planned"))

    def _repr_html_(self) -> str:
        return show_html(self)

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
            case _:
                raise TransformationTypeError(
                    f"Transformation type: {transformation!r} is not supported. Derive it from "
                    "Map, RandomMap, Filter or FlatMap, or call `map` with a function."
                )
    return dataset


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
