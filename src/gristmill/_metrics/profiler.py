"""Names for the engine's work in `jax.profiler` traces, without importing JAX."""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_NO_TRACE = nullcontext()


def traced(name: str) -> AbstractContextManager[object]:
    """Return a context manager whose body has a name in `jax.profiler` traces.

    It does nothing unless the program has imported `jax.profiler`.

    >>> with traced("reading"):
    ...     pass
    """
    profiler: Any = sys.modules.get("jax.profiler")
    return _NO_TRACE if profiler is None else profiler.TraceAnnotation(f"gristmill: {name}")


def named(name: str, function: Callable[P, T]) -> Callable[P, T]:
    """Return `function`, with a name for its calls in traces.

    >>> named("Map len", len)("four")
    4
    """

    def call(*arguments: P.args, **keywords: P.kwargs) -> T:
        with traced(name):
            return function(*arguments, **keywords)

    return call
