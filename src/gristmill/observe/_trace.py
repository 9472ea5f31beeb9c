"""Give what the engine does a name in the profiles of JAX, where JAX is in use."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NOTHING = nullcontext()


def traced(name: str) -> AbstractContextManager[Any]:
    """Name what is done within in `jax.profiler` traces; nothing is imported for it.

    >>> with traced("reading"):
    ...     pass
    """
    profiler: Any = sys.modules.get("jax.profiler")
    return _NOTHING if profiler is None else profiler.TraceAnnotation(f"gristmill: {name}")


def named(name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Give a function whose calls have a name in traces.

    >>> named("Map len", len)("four")
    4
    """

    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        with traced(name):
            return function(*arguments, **keywords)

    return call
