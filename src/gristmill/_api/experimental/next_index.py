"""Reading and setting the index of the next element of an iterator."""

from collections.abc import Callable
from typing import Any

from gristmill._api.dataset.iterator import DatasetIterator
from gristmill._plan.nodes.base import unknown_index


def get_next_index(ds_iter: DatasetIterator[Any]) -> int:
    """Return the index of the element that an iterator returns next.

    >>> from gristmill import MapDataset
    >>> iterator = iter(MapDataset.range(10).batch(2).to_iter_dataset())
    >>> get_next_index(iterator), len(next(iterator)), get_next_index(iterator)
    (0, 2, 1)

    Args:
        ds_iter: An iterator over a dataset.

    Raises:
        UnknownIndexError: The index is not known without counting, such as after a filter.
    """
    return _private_method(ds_iter, "_get_next_index")()


def set_next_index(ds_iter: DatasetIterator[Any], index: int) -> None:
    """Continue with the element at an index, without computing those before it.

    >>> from gristmill import MapDataset
    >>> iterator = iter(MapDataset.range(10).to_iter_dataset())
    >>> set_next_index(iterator, 7)
    >>> list(iterator)
    [7, 8, 9]

    Args:
        ds_iter: An iterator over a dataset.
        index: The index of the element that it is to return next.

    Raises:
        IndexError: `index` is past the end.
        UnknownIndexError: The position is not known without counting, such as after a filter.
    """
    _private_method(ds_iter, "_set_next_index")(index)


def _private_method(ds_iter: DatasetIterator[Any], name: str) -> Callable[..., Any]:
    """Return a method of an iterator, named as in Grain so that users' iterators may define it."""
    method: Callable[..., Any] | None = getattr(ds_iter, name, None)
    if method is None:
        raise unknown_index(type(ds_iter).__name__)
    return method
