"""What map and iter datasets have in common: parents, seeds, a node of the plan."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np

from gristmill.dataset._show import show_html, show_text
from gristmill.dataset._spec import infer_spec
from gristmill.errors import PlanError, PlanTypeError
from gristmill.plan import Node, SeedNode
from gristmill.transforms import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap

R = TypeVar("R")


class Dataset:
    """A pipeline as a tree: each dataset is a step over its parents. Making one reads nothing."""

    _parents: tuple["Dataset", ...] = ()

    @property
    def parents(self) -> Sequence[Any]:
        """The datasets it is made of."""
        return self._parents

    @property
    def _parent(self) -> Any:
        (parent,) = self._parents
        return parent

    @property
    def node(self) -> Node:
        """What it does, as data."""
        raise NotImplementedError

    @cached_property
    def _default_seed(self) -> int | None:
        """What it takes when it is given no seed; named as in Grain, for users' own datasets."""
        return _seed_from([(self, 0)])

    @property
    def _element_spec(self) -> Any:
        """What its elements look like; named as in Grain, for users' own datasets to define."""
        return infer_spec(self.node, getattr(self, "transform", None), self._parents)

    def __str__(self) -> str:
        return show_text(self)

    def _repr_html_(self) -> str:
        return show_html(self)

    def pipe(self, func: Callable[..., R], /, *args: Any, **kwargs: Any) -> R:
        """Give `func(self, *args, **kwargs)`, so that it can stand in a chain of calls."""
        return func(self, *args, **kwargs)

    def apply(self, transformations: Any) -> Any:
        """Apply one transformation, or several one after the other."""
        several: Sequence[Any] = (
            cast("Sequence[Any]", transformations)
            if isinstance(transformations, Sequence)
            else (transformations,)
        )
        dataset: Any = self
        for transformation in several:
            dataset = _applied(dataset, transformation)
        return dataset


def _applied(dataset: Any, transformation: Any) -> Any:
    match transformation:
        case Batch():
            return dataset.batch(
                transformation.batch_size,
                drop_remainder=transformation.drop_remainder,
                batch_fn=transformation.batch_fn,
            )
        case Map():
            return dataset.map(transformation)
        case RandomMap():
            return dataset.random_map(transformation)
        case MapWithIndex():
            return dataset.map_with_index(transformation)
        case Filter():
            return dataset.filter(transformation)
        case FlatMap():
            return dataset._split(transformation)  # noqa: SLF001  (of ours, for this alone)
        case _:
            raise PlanTypeError(
                f"`apply` takes transformations, got {transformation!r}. Derive it from Map, "
                "RandomMap, Filter or FlatMap, or call `map` with a function."
            )


def seed_for(parents: Sequence[Dataset], seed: int | None, *, step: str) -> int:
    """Settle the seed of a random step over some datasets."""
    if seed is not None:
        return seed
    default = _seed_from([(parent, 1) for parent in parents])
    if default is None:
        raise PlanError(
            f"`{step}` needs a seed. Call `ds.seed(0)` before it, which seeds all random steps "
            f"after it, or pass `seed=` to `{step}`."
        )
    return default


def _seed_from(level: list[tuple[Dataset, int]]) -> int | None:
    """Make a seed from those set below, as Grain does: breadth first, each with its distance."""
    found: list[int] = []
    for dataset, depth in level:
        node = dataset.node
        if isinstance(node, SeedNode):
            found += (node.seed, depth)
        else:
            level.extend((parent, depth + 1) for parent in dataset.parents)
    return int(np.random.SeedSequence(found).generate_state(1)[0]) if found else None
