"""Calls user code from a file that libraries take for Grain's.

The preprocessing layers of Keras compute on the CPU inside a data pipeline. To find out whether
they are in one, they search the files of the calling functions for `grain/_src/python/dataset`
(`in_grain_data_pipeline`). This file has such a path.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def call_in_pipeline(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return `function(*args, **kwargs)`, called from this file."""
    return function(*args, **kwargs)
