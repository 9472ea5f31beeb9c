"""Which leaves of a batch JAX can hold, and as what."""

from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill.errors import FeedError


def can_hold(leaf: Any) -> bool:
    """Tell whether a leaf can become an array of JAX.

    >>> can_hold(np.zeros(2)), can_hold(np.array(["a"])), can_hold("text")
    (True, False, False)
    """
    if isinstance(leaf, np.ndarray | np.generic):
        return _is_numeric(cast("NDArray[Any]", leaf).dtype)
    jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
    return isinstance(leaf, bool | int | float | complex | jax.Array)


@cache
def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Tell numbers, those of `ml_dtypes` included, from texts, objects, times and records."""
    if dtype.kind == "m":  # which are integers, says NumPy
        return False
    dtypes: Any = load_extra("jax", extra="jax", wanted_by="`feed`").dtypes
    return dtype.kind in "biufc" or bool(dtypes.issubdtype(dtype, np.number))


def as_held(leaf: Any, name: object) -> Any:
    """Give a leaf in the type that JAX gives it, where JAX would change a number without a word.

    By default JAX has no integers of 64 bits. Those that fit into 32 become that.

    >>> as_held(np.array([1, 2]), "batch").dtype
    dtype('int32')
    >>> as_held(np.array([2**40]), 'batch["id"]')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gristmill.errors.FeedError: batch["id"] holds 1099511627776, which does not fit into ...
    """
    if not isinstance(leaf, np.ndarray | np.generic):
        if isinstance(leaf, int):
            held = _canonical(np.dtype(np.int64))
            if not np.iinfo(held).min <= leaf <= np.iinfo(held).max:
                raise _too_large(name, leaf, held)
        return leaf
    array = cast("NDArray[Any]", leaf)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return array
    held = _canonical(array.dtype)
    if held == array.dtype:
        return array
    narrow = np.asarray(array).astype(held)
    if not np.array_equal(narrow, array):
        raise _too_large(name, array[narrow != array].flat[0], held)
    return narrow


def _canonical(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Give the type that JAX has in the place of one."""
    jax: Any = load_extra("jax", extra="jax", wanted_by="`feed`")
    return jax.dtypes.canonicalize_dtype(dtype)


def _too_large(name: object, number: object, held: np.dtype[Any]) -> FeedError:
    return FeedError(
        f"{name} holds {number}, which does not fit into JAX's {held}. Switch 64 bits on with "
        '`jax.config.update("jax_enable_x64", True)`, or map it to something smaller.'
    )
