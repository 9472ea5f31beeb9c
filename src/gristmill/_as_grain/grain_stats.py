"""What users' own iterators import of Grain's statistics, as calls that do nothing.

gristmill measures each step itself.
"""

from collections.abc import Callable
from typing import Any, Self, TypeVar, final

F = TypeVar("F", bound=Callable[..., Any])

IPL_CAT_PREPROCESSING = "preprocessing"
IPL_CAT_READ = "read"
IPL_CAT_ENQUEUE = "enqueue"
IPL_CAT_UNKNOWN = "unknown"
IPL_CAT_PREFETCH = "prefetch"


@final
class Timer:
    """A context manager that measures nothing: its value is always 0."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Do nothing."""

    def value(self) -> int:
        """Return 0."""
        return 0

    def reset(self) -> None:
        """Do nothing."""


def record_next_duration_if_output(next_fn: F) -> F:
    """Return the function, which is the `__next__` of an iterator."""
    return next_fn


def trace_input_pipeline(
    stage_category: str = IPL_CAT_UNKNOWN, **trace_kwargs: object
) -> Callable[[F], F]:
    """Return a decorator that returns its function."""
    del stage_category, trace_kwargs
    return _unchanged


def trace_input_pipeline_next(stage_category: str = IPL_CAT_PREFETCH) -> Callable[[F], F]:
    """Return a decorator that returns its function."""
    del stage_category
    return _unchanged


def trace_input_pipeline_prefetch(func: F) -> F:
    """Return the function."""
    return func


def _unchanged(function: F) -> F:
    return function
