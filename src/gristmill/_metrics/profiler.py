"""Names for the engine's work in `jax.profiler` traces, without importing JAX."""

import sys
from collections.abc import Callable, Iterable
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


def mark_steps(worker: str, steps: Iterable[tuple[str, float]]) -> None:
    """Mark in a session of `jax.profiler` that a worker has computed a block, and what that took.

    A session cannot record other processes on all platforms, nor events of the past. So the mark is
    at the moment when the block arrives, on the thread that collects it, and has the milliseconds
    of each step as metadata.

    Args:
        worker: The name of the worker.
        steps: The names of its steps, and the seconds that they took.
    """
    profiler: Any = sys.modules.get("jax.profiler")
    if profiler is not None and profiler.TraceAnnotation.is_enabled():
        metadata = {name: f"{1e3 * seconds:.3f} ms" for name, seconds in steps}
        with profiler.TraceAnnotation(f"gristmill: {worker}", **metadata):
            pass
