"""The number of the next element of an iterator, where that is known without counting.

Of a filter or flat map it is not: how many elements came out of so many is known only by reading.
"""

from typing import Any

from gristmill._check import as_int
from gristmill.dataset._iterator import DatasetIterator, StreamIterator
from gristmill.errors import StateError
from gristmill.plan import (
    AccessNode,
    BatchNode,
    CountedMapNode,
    HintNode,
    LimitNode,
    MapNode,
    Node,
)


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """Give the index of the element that comes next.

    >>> from gristmill.dataset import MapDataset
    >>> iterator = iter(MapDataset.range(10).batch(2).to_iter_dataset())
    >>> get_next_index(iterator), len(next(iterator)), get_next_index(iterator)
    (0, 2, 1)
    """
    if isinstance(ds_iter, StreamIterator):
        return _index_at(ds_iter.plan, ds_iter.cursor)
    own: Any = getattr(ds_iter, "_get_next_index", None)
    if own is None:
        raise _unknown(type(ds_iter).__name__)
    return own()


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Go on with the element of an index, without computing those before it.

    >>> from gristmill.dataset import MapDataset
    >>> iterator = iter(MapDataset.range(10).to_iter_dataset())
    >>> set_next_index(iterator, 7)
    >>> list(iterator)
    [7, 8, 9]
    """
    if isinstance(ds_iter, StreamIterator):
        ds_iter.go_to(_cursor_at(ds_iter.plan, as_int("index", index)))
        return
    own: Any = getattr(ds_iter, "_set_next_index", None)
    if own is None:
        raise _unknown(type(ds_iter).__name__)
    own(index)


def _index_at(node: Node, cursor: tuple[Any, ...]) -> int:
    match node:
        case AccessNode():
            return cursor[0]
        case HintNode() | MapNode():
            return _index_at(node.parent, cursor)
        case BatchNode():
            return -(-_index_at(node.parent, cursor) // node.size)
        case CountedMapNode() | LimitNode():
            return cursor[0][1]
        case _:
            raise _unknown(node.label)


def _cursor_at(node: Node, index: int) -> tuple[Any, ...]:
    match node:
        case AccessNode():
            if index > node.length():
                raise IndexError(f"index {index} of a dataset of {node.length()} elements")
            return (index,)
        case HintNode() | MapNode():
            return _cursor_at(node.parent, index)
        case BatchNode():
            is_at_end = index == node.length()  # where the last batch may be short
            below = node.parent.length() if is_at_end else index * node.size
            return _cursor_at(node.parent, below)
        case CountedMapNode() | LimitNode():
            return ([_cursor_at(node.parents[0], index), index],)
        case _:
            raise _unknown(node.label)


def _unknown(label: str) -> StateError:
    return StateError(
        f"How many elements of {label} came so far is not known without counting. Count in your "
        "loop, or use `get_state` and `set_state`."
    )
