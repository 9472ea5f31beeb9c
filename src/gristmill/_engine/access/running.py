"""Find out which step and which elements a thread is computing, from its stack.

Nothing is recorded while elements are computed: that would take time for each of them. Only when a
block takes very long does a worker look at the frames of its own threads.
"""

from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, TypeAlias

from gristmill._engine.access.batch import make_batches
from gristmill._engine.blocks.error_notes import call_each, call_for_all, record_name, step_name
from gristmill._engine.blocks.lineage import Lineage
from gristmill._plan.nodes.base import Node

_Running: TypeAlias = tuple[Node, Lineage, int, int]
"""A step, the lineage of its block, and the first and the last row that it is computing."""


def describe_running(frame: FrameType | None) -> str | None:
    """Return which step a thread is in, and with which elements; `None` if it is in no step.

    Args:
        frame: The innermost frame of the thread.
    """
    while frame is not None:
        find = _FINDERS.get(frame.f_code)
        if find is not None:
            return _describe(*find(frame.f_locals))
        frame = frame.f_back
    return None


def _describe(node: Node, lineage: Lineage, first: int, last: int) -> str:
    elements = record_name(node, lineage.position(first))
    if last > first:
        elements = f"the elements from {elements} to position {lineage.position(last)}"
    return f"{step_name(node)}, added at {node.site}, on {elements}"


def _in_each(variables: dict[str, Any]) -> _Running:
    lineage: Lineage = variables["lineage"]
    # A step that is about to return has as many results as elements.
    row = min(len(variables.get("results", ())), len(lineage) - 1)
    return variables["node"], lineage, row, row


def _in_all(variables: dict[str, Any]) -> _Running:
    lineage: Lineage = variables["lineage"]
    return variables["node"], lineage, 0, len(lineage) - 1


def _in_batch(variables: dict[str, Any]) -> _Running:
    lineage: Lineage = variables["block"].lineage
    first = variables.get("first", 0)
    return variables["node"], lineage, first, variables.get("end", len(lineage)) - 1


_FINDERS: dict[CodeType, Callable[[dict[str, Any]], _Running]] = {
    call_each.__code__: _in_each,
    call_for_all.__code__: _in_all,
    make_batches.__code__: _in_batch,
}
