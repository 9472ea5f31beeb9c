"""Options that hold for a whole pipeline, wherever in it they are set."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.stream import HintNode


@final
@dataclass(frozen=True, kw_only=True)
class FilterLimits:
    """From which share of elements left out on a filter warns or raises; `None` for never."""

    warns_from: float | None = 0.9
    raises_from: float | None = None


@final
@dataclass(frozen=True, kw_only=True)
class OptionsNode(HintNode):
    """The parent as it is, and the options that were given for all of the pipeline."""

    given: Mapping[str, Any]

    @property
    def label(self) -> str:
        return f"Options({', '.join(f'{name}={value}' for name, value in self.given.items())})"


def limits_of(plan: Node) -> FilterLimits:
    """Give what filters may leave out, by the options of a plan; those further up come first."""
    given: dict[str, Any] = {}
    for node in _all_nodes(plan):
        if isinstance(node, OptionsNode):
            given = {**node.given, **given}
    default = FilterLimits()
    return FilterLimits(
        warns_from=given.get("filter_warn_threshold_ratio", default.warns_from),
        raises_from=given.get("filter_raise_threshold_ratio", default.raises_from),
    )


def _all_nodes(plan: Node) -> Iterator[Node]:
    yield plan
    below = getattr(plan, "parents", None)
    for node in (getattr(plan, "parent", None),) if below is None else below:
        if node is not None:
            yield from _all_nodes(node)
