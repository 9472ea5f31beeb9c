"""The index of the next element of a stream, computed from its cursor, and the other way round.

Neither is possible above a filter or a flat map: how many elements they yield is only known by
reading.
"""

from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.batch import BatchNode
from gristmill._plan.nodes.dataset import AccessNode
from gristmill._plan.nodes.map import MapNode
from gristmill._plan.nodes.stream import CountedMapNode, HintNode
from gristmill._plan.nodes.stream_steps import LimitNode
from gristmill.errors import StateError
from gristmill.types import Cursor


def index_at(node: Node, cursor: Cursor) -> int:
    """Return the index of the element that `node` yields at `cursor`.

    Raises:
        StateError: The index is not known without counting.
    """
    match node:
        case AccessNode():
            return cursor[0]
        case HintNode() | MapNode():
            return index_at(node.parent, cursor)
        case BatchNode():
            return -(-index_at(node.parent, cursor) // node.size)
        case CountedMapNode() | LimitNode():
            return cursor[0][1]
        case _:
            raise unknown_index(node.label)


def cursor_at(node: Node, index: int) -> Cursor:
    """Return the cursor at which `node` yields the element `index`, in constant time.

    Raises:
        IndexError: `index` is past the end.
        StateError: The cursor is not known without counting.
    """
    match node:
        case AccessNode():
            if index > node.length():
                raise IndexError(f"`index` must be at most {node.length()}, got {index}.")
            return (index,)
        case HintNode() | MapNode():
            return cursor_at(node.parent, index)
        case BatchNode():
            is_at_end = index == node.length()  # the last batch may be short
            below = node.parent.length() if is_at_end else index * node.size
            return cursor_at(node.parent, below)
        case CountedMapNode() | LimitNode():
            return ([cursor_at(node.parents[0], index), index],)
        case _:
            raise unknown_index(node.label)


def unknown_index(label: str) -> StateError:
    """Return the error for a stream whose elements have no known index."""
    return StateError(
        f"The number of elements that {label} has yielded is not known without counting. Count "
        "them in your loop, or use `get_state` and `set_state`."
    )
