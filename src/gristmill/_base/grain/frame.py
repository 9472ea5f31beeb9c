"""Call user code from a frame that Keras recognizes as one of Grain's.

The preprocessing layers of Keras compute on the CPU inside a data pipeline. To find out whether
they are in one, they search the files of the calling functions for `grain/_src/python/dataset`
(`in_grain_data_pipeline`).
"""

import os
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def call_in_pipeline(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Return `function(*args, **kwargs)`, called from a frame with such a file name."""
    return function(*args, **kwargs)


_FILE = os.path.join(os.path.dirname(__file__), "grain", "_src", "python", "dataset")
call_in_pipeline.__code__ = call_in_pipeline.__code__.replace(co_filename=_FILE)
