"""Hints: nodes that pass on their parent's elements unchanged, and affect how a plan runs."""

from collections.abc import Iterator, Mapping
from typing import Any, final

from gristmill._base.checks import as_kind
from gristmill._base.frozen_dataclass import frozen_dataclass
from gristmill._plan.nodes.base import EpochChange, Node, Step, UnaryNode
from gristmill.errors import PlanError
from gristmill.options import MultiprocessingOptions, ReadOptions, SkipErrors, WorkerOptions
from gristmill.types import Cursor, Indices


@frozen_dataclass
class HintNode(UnaryNode):
    """The elements of the parent. States do not mention it, because the stream is the same."""

    @property
    def description(self) -> None:
        return None

    @property
    def is_elementwise(self) -> bool:
        return True

    @property
    def epoch_change(self) -> EpochChange:
        return EpochChange.NONE

    @property
    def keeps_absent(self) -> bool:
        return True

    def to_parent(self, indices: Indices) -> Indices:
        return indices

    def num_read(self, index: int) -> int:
        return index

    def index_at(self, cursor: Cursor) -> int:
        return self.parent.index_at(cursor)

    def cursor_at(self, index: int) -> Cursor:
        return self.parent.cursor_at(index)


@final
@frozen_dataclass
class SeedNode(HintNode):
    """The seed from which the random nodes above it derive their own."""

    seed: int

    @property
    def label(self) -> str:
        return f"Seed({self.seed})"


@final
@frozen_dataclass
class ReadNode(HintNode):
    """How many threads read a dataset as a stream, how far ahead, and which errors to skip."""

    options: ReadOptions
    on_error: SkipErrors | None = None

    @property
    def label(self) -> str:
        return f"ToIter(num_threads={self.options.num_threads})"


@final
@frozen_dataclass
class WorkersNode(HintNode):
    """Worker processes may compute the nodes below it, but not those above."""

    options: MultiprocessingOptions
    worker: WorkerOptions

    @property
    def label(self) -> str:
        return f"Workers({self.options.num_workers})"


@final
@frozen_dataclass
class PrefetchNode(HintNode):
    """A thread may compute elements of the nodes below it in advance."""

    buffer_size: int

    @property
    def label(self) -> str:
        return f"ThreadPrefetch({self.buffer_size})"


@final
@frozen_dataclass
class OptionsNode(HintNode):
    """Options of the whole pipeline, both below and above it."""

    options: Mapping[str, Any]
    """The options that the user set, by name."""

    @property
    def label(self) -> str:
        return f"Options({', '.join(f'{name}={value}' for name, value in self.options.items())})"


@final
@frozen_dataclass
class FilterLimits:
    """The shares of removed elements from which a filter warns or raises; `None` for never."""

    warns_from: float | None = 0.9
    raises_from: float | None = None


def options_of(plan: Node) -> dict[str, Any]:
    """Return the options that users set for a plan, by name. Those further up take priority."""
    options: dict[str, Any] = {}
    for node in all_nodes(plan):
        if isinstance(node, OptionsNode):
            options = {**node.options, **options}
    return options


def limits_of(plan: Node) -> FilterLimits:
    """Return the limits of filters in a plan."""
    options, default = options_of(plan), FilterLimits()
    return FilterLimits(
        warns_from=options.get("filter_warn_threshold_ratio", default.warns_from),
        raises_from=options.get("filter_raise_threshold_ratio", default.raises_from),
    )


def skip_errors_of(plan: Node) -> SkipErrors | None:
    """Return which errors a plan skips.

    Raises:
        PlanError: Above the records to skip is a step that holds elements: what it yields has no
            position in the list of skipped records.
    """
    found = {node.on_error for node in all_nodes(plan) if isinstance(node, ReadNode)} - {None}
    if not found:
        return None
    node = plan
    while isinstance(node, Step | HintNode):
        if isinstance(node, ReadNode):
            return node.on_error
        node = node.parent
    raise unlisted_skips(node)


def as_on_error(on_error: object) -> SkipErrors | None:
    """Return which errors of records to skip: `None` for none of them.

    >>> as_on_error("raise")

    Args:
        on_error: `"raise"`, or a `SkipErrors`.

    Raises:
        PlanTypeError: It is neither.
    """
    if on_error == "raise":
        return None
    return as_kind(
        "on_error", on_error, SkipErrors, remedy='Pass "raise" or `SkipErrors(budget=...)`.'
    )


def unlisted_skips(node: Node) -> PlanError:
    """Return the error for records that are to be skipped below a step that holds elements."""
    return PlanError(
        f"{node.label}, added at {node.site}, holds elements or combines streams, so "
        "`on_error=SkipErrors(...)` cannot list which records were skipped before it. Catch the "
        "errors in a map, and filter its results."
    )


def all_nodes(plan: Node) -> Iterator[Node]:
    """Yield the nodes of a plan, top down."""
    yield plan
    for parent in plan.parents:
        yield from all_nodes(parent)
