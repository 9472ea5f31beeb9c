"""Integer arithmetic on blocks of indices, exact at any size.

Indices are arrays of 64-bit integers. An endless dataset has `sys.maxsize` elements, so that an
index in its second epoch may exceed 64 bits. Such indices are arrays of Python integers (dtype
`object`): slower by far, and exact. The functions here choose between the two.
"""

import operator
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import NDArray

from gristmill.types import Indices, Span

_INT64 = np.dtype(np.int64)
_LIMIT = 2**63


def as_indices(
    span: range | NDArray[Any] | Sequence[int] | Sequence[tuple[int, int]],
) -> Indices:
    """Return indices as an array of 64-bit integers, or of Python integers if these are too large.

    >>> as_indices(range(3, 9, 2)).tolist()
    [3, 5, 7]
    >>> as_indices([1, 2**64]).dtype
    dtype('O')
    """
    if isinstance(span, range):
        if not (-_LIMIT < span.start < _LIMIT and -_LIMIT < span.stop < _LIMIT):
            return _as_objects(span)
        if span.step == 1:
            return np.arange(span.start, span.stop, dtype=np.int64)
        if abs(span.step) >= _LIMIT:
            return _as_objects(span)
        # `np.arange` computes the number of steps in floating point.
        return span.start + span.step * np.arange(len(span), dtype=np.int64)
    if isinstance(span, np.ndarray):
        if span.dtype is _INT64:
            return span
        if span.dtype == np.uint64:  # which NumPy would convert modulo 2^64
            return as_indices(span.tolist())
    try:
        return np.asarray(span, dtype=np.int64)
    except OverflowError:
        return _as_objects(span)


def split_epochs(indices: Indices, length: int) -> tuple[Indices, Indices]:
    """Return the epoch of each index, and the 64-bit offset within the epoch.

    >>> epochs, offsets = split_epochs(as_indices([3, 2**64 + 1]), 10)
    >>> epochs.tolist(), offsets.tolist()
    ([0, 1844674407370955161], [3, 7])
    """
    if indices.dtype.hasobject:
        return as_indices(indices // length), as_indices(indices % length)
    epochs = indices // length  # `np.divmod` is slower: it does not optimize a constant divisor
    return epochs, indices - epochs * length


def join_epochs(epochs: Indices, offsets: Indices, length: int | Indices, *, bound: int) -> Indices:
    """Return `epochs * length + offsets`.

    >>> length = 2**63 - 1
    >>> join_epochs(as_indices([0, 1]), as_indices([3, 7]), length, bound=length).tolist()
    [3, 9223372036854775814]

    Args:
        epochs: The epoch of each index.
        offsets: The offset of each index.
        length: The number of indices in an epoch, or one number for each index.
        bound: An upper bound of the lengths, and of the absolute offsets plus 1.
    """
    if not epochs.dtype.hasobject:
        largest = _largest(epochs)
        if not largest:  # most blocks are in the first epoch
            return offsets
        if largest >= _LIMIT // max(1, bound):
            epochs = _as_objects(epochs)
    return epochs * length + offsets


def keys_by_epoch(
    epochs: Indices, offsets: Indices, epoch_keys: Callable[[int, Indices], Indices]
) -> Indices:
    """Return the keys at some offsets of epochs, which are computed for one epoch at a time.

    >>> shifted = lambda epoch, offsets: as_indices(offsets + 100 * epoch)
    >>> keys_by_epoch(as_indices([0, 1]), as_indices([3, 7]), shifted).tolist()
    [3, 107]

    Args:
        epochs: The epoch of each key.
        offsets: The offset of each key in its epoch.
        epoch_keys: A function of an epoch and some offsets in it.
    """
    if not len(epochs):
        return offsets
    first = epochs[0]
    if first == epochs[-1] and (epochs == first).all():
        return epoch_keys(int(first), offsets)
    keys = np.empty(len(offsets), dtype=np.int64)
    for epoch in np.unique(epochs).tolist():
        chosen = epochs == epoch
        keys[chosen] = epoch_keys(epoch, offsets[chosen])
    return keys


def scale(indices: Indices, factor: int, offset: int = 0) -> Indices:
    """Return `indices * factor + offset`, for a positive factor and an offset below it.

    >>> scale(as_indices([1, 2**62]), 4, 1).tolist()
    [5, 18446744073709551617]
    """
    if factor == 1:
        return indices
    return exact_up_to(indices, _LIMIT // factor - 1) * factor + offset


def exact_up_to(indices: Indices, largest: int) -> Indices:
    """Return indices as Python integers if the absolute value of any of them is above `largest`.

    Call it before arithmetic that is exact in 64 bits up to that value.
    """
    if indices.dtype.hasobject or _largest(indices) <= largest:
        return indices
    return _as_objects(indices)


def _largest(indices: Indices) -> int:
    """Return the largest absolute value of 64-bit integers; 0 if there are none."""
    if not len(indices):
        return 0
    largest = int(indices.view(np.uint64).max())  # a negative one is above all others
    return largest if largest < _LIMIT else max(int(indices.max()), -int(indices.min()))


def _as_objects(
    span: range | NDArray[Any] | Sequence[int] | Sequence[tuple[int, int]],
) -> Indices:
    """Return an array of Python integers, which all arithmetic of `Indices` can use as well."""
    return cast("Indices", np.array(span, dtype=object))


def check_index(index: SupportsIndex, length: int, *, name: str = "index") -> int:
    """Return `index` as an `int`, or raise `IndexError` if it is not in `[0, length)`.

    Negative indices are out of bounds: sources do not count from the end.

    >>> check_index(2, 3)
    2
    >>> check_index(3, 3)
    Traceback (most recent call last):
        ...
    IndexError: `index` must be in [0, 3), got 3.

    Args:
        index: An integer, a NumPy integer or any object with `__index__`.
        length: The length of the sequence.
        name: The name of the argument, for the error message.
    """
    number = operator.index(index)
    if not 0 <= number < length:
        raise IndexError(f"`{name}` must be in [0, {length}), got {number}.")
    return number


def check_indices(indices: Span, length: int) -> None:
    """Raise `IndexError` if any of `indices` is not in `[0, length)`.

    Only the smallest and the largest index are compared with the bounds, so the cost for a block
    is two NumPy reductions, and constant for a range.

    >>> check_indices(range(3), 3)
    """
    if not len(indices):
        return
    if isinstance(indices, range):
        check_index(indices[0], length)
        check_index(indices[-1], length)
    else:
        check_index(indices.min(), length)
        check_index(indices.max(), length)
