"""Which leaves of a batch JAX supports, and with which dtype."""

from functools import cache
from typing import cast

import numpy as np

from gristmill._base.extras import load_extra
from gristmill.errors import FeedError
from gristmill.types import AnyArray, AnyDType, Leaf


def is_supported(leaf: object) -> bool:
    """Return whether a leaf can be converted to a `jax.Array`.

    >>> is_supported(np.zeros(2)), is_supported(np.array(["a"])), is_supported("a")
    (True, False, False)
    """
    if isinstance(leaf, np.ndarray | np.generic):
        return _is_numeric(cast("AnyArray", leaf).dtype)
    jax = load_extra("jax", extra="jax", wanted_by="`feed`")
    return isinstance(leaf, bool | int | float | complex | jax.Array)


@cache
def _is_numeric(dtype: AnyDType) -> bool:
    """Return whether a dtype is numeric, including those of `ml_dtypes`."""
    if dtype.kind == "m":  # timedelta64, which NumPy counts among the integers
        return False
    dtypes = load_extra("jax", extra="jax", wanted_by="`feed`").dtypes
    return dtype.kind in "biufc" or bool(dtypes.issubdtype(dtype, np.number))


def canonicalize(leaf: Leaf, name: object) -> Leaf:
    """Return a leaf with the byte order and integer dtype that JAX uses.

    By default JAX has no 64-bit integers, and truncates them silently. Here they are converted to
    32 bits if they fit, and rejected if not.

    >>> canonicalize(np.array([1, 2]), "batch").dtype
    dtype('int32')
    >>> canonicalize(np.array([2**40]), 'batch["id"]')  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    gristmill.errors.FeedError: batch["id"] contains 1099511627776, which does not fit into ...

    Args:
        leaf: A leaf that JAX supports.
        name: The name of the leaf, for the error message.

    Raises:
        FeedError: An integer does not fit.
    """
    if not isinstance(leaf, np.ndarray | np.generic):
        if isinstance(leaf, int):
            dtype = _canonical_dtype(np.dtype(np.int64))
            if not np.iinfo(dtype).min <= leaf <= np.iinfo(dtype).max:
                raise _too_large(name, leaf, dtype)
        return leaf
    array = cast("AnyArray", leaf)
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind not in "iu" or array.dtype.itemsize < 8:
        return array
    dtype = _canonical_dtype(array.dtype)
    if dtype == array.dtype:
        return array
    narrow = np.asarray(array).astype(dtype)
    if not np.array_equal(narrow, array):
        raise _too_large(name, array[narrow != array].flat[0], dtype)
    return narrow


def _canonical_dtype(dtype: AnyDType) -> AnyDType:
    """Return the dtype that JAX uses instead of `dtype`."""
    jax = load_extra("jax", extra="jax", wanted_by="`feed`")
    return jax.dtypes.canonicalize_dtype(dtype)


def _too_large(name: object, number: object, dtype: AnyDType) -> FeedError:
    return FeedError(
        f"{name} contains {number}, which does not fit into JAX's {dtype}. Enable 64 bits with "
        '`jax.config.update("jax_enable_x64", True)`, or map it to a smaller number.'
    )
