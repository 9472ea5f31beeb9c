"""Hints: nodes that pass on their parent's elements unchanged, and affect how a plan runs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, final

from gristmill._plan.nodes.base import Node, UnaryNode
from gristmill.options import MultiprocessingOptions, ReadOptions, WorkerOptions
from gristmill.types import Cursor


@dataclass(frozen=True, kw_only=True)
class HintNode(UnaryNode):
    """The elements of the parent. States do not mention it, because the stream is the same."""

    @property
    def description(self) -> None:
        return None

    @property
    def is_elementwise(self) -> bool:
        return True

    def index_at(self, cursor: Cursor) -> int:
        return self.parent.index_at(cursor)

    def cursor_at(self, index: int) -> Cursor:
        return self.parent.cursor_at(index)


@final
@dataclass(frozen=True, kw_only=True)
class SeedNode(HintNode):
    """The seed from which the random nodes above it derive their own."""

    seed: int

    @property
    def label(self) -> str:
        return f"Seed({self.seed})"


@final
@dataclass(frozen=True, kw_only=True)
class ReadNode(HintNode):
    """How many threads read a dataset as a stream, and how far ahead."""

    options: ReadOptions

    @property
    def label(self) -> str:
        return f"ToIter(num_threads={self.options.num_threads})"


@final
@dataclass(frozen=True, kw_only=True)
class WorkersNode(HintNode):
    """Worker processes may compute the nodes below it, but not those above."""

    options: MultiprocessingOptions
    worker: WorkerOptions

    @property
    def label(self) -> str:
        return f"Workers({self.options.num_workers})"


@final
@dataclass(frozen=True, kw_only=True)
class PrefetchNode(HintNode):
    """A thread may compute elements of the nodes below it in advance."""

    buffer_size: int

    @property
    def label(self) -> str:
        return f"ThreadPrefetch({self.buffer_size})"


@final
@dataclass(frozen=True, kw_only=True)
class OptionsNode(HintNode):
    """Options of the whole pipeline, both below and above it."""

    options: Mapping[str, Any]
    """The options that the user set, by name."""

    @property
    def label(self) -> str:
        return f"Options({', '.join(f'{name}={value}' for name, value in self.options.items())})"


@final
@dataclass(frozen=True, kw_only=True)
class FilterLimits:
    """The shares of removed elements from which a filter warns or raises; `None` for never."""

    warns_from: float | None = 0.9
    raises_from: float | None = None


def limits_of(plan: Node) -> FilterLimits:
    """Return the limits of filters in a plan. Options further up take priority."""
    options: dict[str, Any] = {}
    for node in _all_nodes(plan):
        if isinstance(node, OptionsNode):
            options = {**node.options, **options}
    default = FilterLimits()
    return FilterLimits(
        warns_from=options.get("filter_warn_threshold_ratio", default.warns_from),
        raises_from=options.get("filter_raise_threshold_ratio", default.raises_from),
    )


def _all_nodes(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan, top down."""
    yield plan
    for parent in plan.parents:
        yield from _all_nodes(parent)
