"""Notes on exceptions of user code: the step that raised, its call site, and the record."""

import operator
from collections.abc import Callable, Iterable
from typing import TypeVar

from gristmill._base.grain.frame import call_in_pipeline
from gristmill._engine.blocks.block import SourceEndedError
from gristmill._engine.blocks.lineage import Lineage
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.sampled import SampleNode, SourceNode
from gristmill._plan.record_index import record_index
from gristmill._plan.traverse import bottom_of, sample_of
from gristmill.errors import WorkerError

T = TypeVar("T")


def call_each(
    node: Node,
    lineage: Lineage,
    function: Callable[..., T],
    *arguments: Iterable[object],
    is_source: bool = False,
) -> tuple[list[T], BaseException | None]:
    """Call a user's function for each element.

    Args:
        node: The step.
        lineage: The lineage of the elements.
        function: The function.
        *arguments: Its arguments for each element.
        is_source: Whether it reads records, so that a `StopIteration` is the end of them.

    Returns:
        The results up to the first exception, and that exception with its note, if any.
    """
    results: list[T] = []
    try:
        # Results before an exception stay in the list.
        call_in_pipeline(results.extend, map(function, *arguments))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too, follows the results before it
        return results, add_context(error, node, lineage, len(results))
    if len(results) < len(lineage):  # `map` treats a StopIteration as the end of its input
        if is_source:
            where = record_name(node, lineage.position(len(results)))
            return results, SourceEndedError(
                f"The epoch ends: {step_name(node)} raised StopIteration, on {where}."
            )
        return results, add_context(StopIteration(), node, lineage, len(results))
    return results, None


def call_for_all(node: Node, lineage: Lineage, function: Callable[..., T], *arguments: object) -> T:
    """Return the result of a user's function that is called once for all elements of a block.

    Args:
        node: The step.
        lineage: The lineage of the elements. With it, `describe_running` can name them.
        function: The function.
        *arguments: Its arguments.
    """
    return call_in_pipeline(function, *arguments)


def step_name(node: Node) -> str:
    """Return the name of a node in error notes, profiles and statistics."""
    if isinstance(node, SampleNode | AccessNode):
        node = node.parent
    return f"reading {node.label}" if isinstance(node, SourceNode) else node.label


def add_context(error: BaseException, node: Node, lineage: Lineage, row: int) -> BaseException:
    """Return an exception with a note that names the step, its call site and the record.

    A `StopIteration` becomes a `RuntimeError`.
    """
    if isinstance(error, StopIteration):
        ended = RuntimeError("A step raised StopIteration, which would have ended the stream.")
        ended.__cause__ = error
        error = ended
    position = lineage.position(row)
    step = step_name(node)
    add_note_once(error, f"In {step}, added at {node.site}, on {record_name(node, position)}.")
    return error


def add_note_once(error: BaseException, note: str) -> None:
    """Add a note to an exception unless it has that note: a source may raise one object twice."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def as_visible(error: BaseException) -> BaseException:
    """Return an error as it is, but for `sys.exit()` in a step, which would end the program.

    A program that ends with status 0 in the middle of a training has no error to look for.
    """
    if not isinstance(error, SystemExit):
        return error
    notes: list[str] = getattr(error, "__notes__", [])
    visible = WorkerError(
        f"`sys.exit({'' if error.code is None else repr(error.code)})` was called by code of the "
        f"pipeline. {' '.join(notes[:1])} Raise an exception there, or return a value."
    )
    for note in notes[1:]:
        visible.add_note(note)
    visible.__cause__ = error
    return visible


def record_name(node: Node, position: int) -> str:
    """Return a description of the record at a position, with its index in the source if known."""
    bottom = bottom_of(node)
    if not isinstance(bottom, SampleNode):
        return f"element {position}"
    key = record_key(node, position)
    if key is None:
        return f"position {position} of the stream"
    return f"record {key} of the source (position {position} of the stream)"


def record_key(node: Node, position: int) -> int | None:
    """Return the index in the source of the record at a position, if it is known."""
    try:
        if not isinstance(bottom_of(node), SampleNode):
            return record_index(node, position)
        key = sample_of(node).metadata(position).record_key
        return None if key is None else operator.index(key)
    except Exception:  # an error of the user's sampler must not hide the one being reported
        return None
