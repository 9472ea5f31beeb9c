"""Call the user's code, and say which step and record an exception of it belongs to."""

import operator
from collections.abc import Callable, Iterable
from typing import Any

from gristmill.execute._track import Track
from gristmill.plan import AccessNode, Node, SampleNode, SourceNode, bottom_of, sample_of


def call_each(
    node: Node, track: Track, function: Callable[..., Any], *arguments: Iterable[Any]
) -> tuple[list[Any], BaseException | None]:
    """Call the user's function for each element: the results up to an exception, and that."""
    results: list[Any] = []
    try:
        results.extend(map(function, *arguments))  # what was done before an exception stays in
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit, too, comes after what was done before it
        return results, blame(error, node, track, len(results))
    if len(results) < len(track):  # which is how `map` takes a StopIteration
        return results, blame(StopIteration(), node, track, len(results))
    return results, None


def step_name(node: Node) -> str:
    """Say what a node does when it calls the user's code."""
    if isinstance(node, SampleNode | AccessNode):
        node = node.parent
    return f"reading {node.label}" if isinstance(node, SourceNode) else node.label


def blame(error: BaseException, node: Node, track: Track, row: int) -> BaseException:
    """Give an exception with a note: the step, where it was added, the record."""
    if isinstance(error, StopIteration):
        ended = RuntimeError("A step raised StopIteration, which would have ended the stream.")
        ended.__cause__ = error
        error = ended
    position = track.position(row)
    step = step_name(node)
    add_note_once(error, f"In {step}, added at {node.site}, on {record_name(node, position)}.")
    return error


def add_note_once(error: BaseException, note: str) -> None:
    """Add a note to an exception, unless it has it: a source may raise one object twice."""
    if note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def record_name(node: Node, position: int) -> str:
    """Name the record at a position, by its index in the source where that can be found."""
    bottom = bottom_of(node)
    if not isinstance(bottom, SampleNode):
        return f"element {position}"
    key = record_key(node, position)
    if key is None:
        return f"position {position} of the stream"
    return f"record {key} of the source (position {position} of the stream)"


def record_key(node: Node, position: int) -> int | None:
    """Give the index in the source of the record at a position, if the sampler tells."""
    try:
        key = sample_of(node).metadata(position).record_key
        return None if key is None else operator.index(key)
    except Exception:  # a user's sampler: whatever ails it is not what is being told
        return None
