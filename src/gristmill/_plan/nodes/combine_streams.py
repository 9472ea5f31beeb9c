"""Stream nodes that make one stream of several."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, cast, final

from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine import as_proportions
from gristmill._plan.nodes.stream import StatefulNode
from gristmill.errors import PlanError


@final
@dataclass(frozen=True, kw_only=True)
class MixStreamNode(StatefulNode):
    """Elements of the parents in turn, by proportions, until one of them has none left.

    With `names` a state is kept by name, so that parents may come and go between two runs.
    """

    proportions: tuple[int, ...]
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.parents:
            raise PlanError("There is nothing to mix. Pass at least one dataset.")
        names = self.names or ()
        if len(set(names)) < len(names):
            raise PlanError(f"Datasets of the same name cannot be told apart: {list(names)}.")

    @property
    def label(self) -> str:
        return f"Mix(weights={list(self.proportions)})"

    def name_of(self, number: int) -> str:
        """Name a parent, for errors."""
        return str(number) if self.names is None else repr(self.names[number])


@final
@dataclass(frozen=True, kw_only=True)
class ZipStreamNode(StatefulNode):
    """Tuples of one element of each parent; if strict, all must end at the same time."""

    strict: bool = True

    def __post_init__(self) -> None:
        if not self.parents:
            raise PlanError("There is nothing to zip. Pass at least one dataset.")

    @property
    def label(self) -> str:
        return f"Zip({len(self.parents)} datasets)"


@final
@dataclass(frozen=True, kw_only=True)
class InterleaveNode(StatefulNode):
    """One element of each of `cycle` datasets in turn; where one ends, the next not yet begun.

    They are not parents: `node_at` makes the node of one when its turn comes, or gives `None`
    where there is none at that number.
    """

    node_at: Callable[[int], Node | None]
    count: int
    cycle: int

    @property
    def label(self) -> str:
        return f"Interleave({self.count} datasets, cycle_length={self.cycle})"


def mixed_order(
    datasets: Any, weights: Any
) -> tuple[list[Any], tuple[str, ...] | None, tuple[int, ...]]:
    """Give what is mixed in the order that Grain mixes it, the names, and the proportions.

    A mapping is taken in the order of its sorted keys.

    >>> mixed_order({"b": "B", "a": "A"}, {"a": 1.0, "b": 2.0})
    (['A', 'B'], ('a', 'b'), (100, 200))
    """
    if not isinstance(datasets, Mapping):
        if isinstance(weights, Mapping):
            raise PlanError(
                "`weights` have names, the datasets have not. Pass both as mappings or as lists."
            )
        several = list(datasets)
        return several, None, _proportions(weights, len(several))
    named = dict(sorted(cast("Mapping[Any, Any]", datasets).items(), key=itemgetter(0)))
    if isinstance(weights, Mapping):
        weighed = cast("Mapping[Any, float]", weights)
        if weighed.keys() != named.keys():
            raise PlanError(
                f"`weights` are of {list(weighed)}, the datasets {list(named)}. Give one for each."
            )
        weights = [weighed[key] for key in named]
    names = tuple(str(key) for key in named)
    return list(named.values()), names, _proportions(weights, len(named))


def _proportions(weights: Sequence[float] | None, count: int) -> tuple[int, ...]:
    if not count:
        raise PlanError("There is nothing to mix. Pass at least one dataset.")
    return as_proportions(weights, count)
