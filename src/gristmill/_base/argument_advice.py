"""Errors for arguments that a function does not have, such as those of other libraries."""

import difflib
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gristmill.errors import PlanTypeError

P = ParamSpec("P")
T = TypeVar("T")

POSITIONAL = "positional"
"""The key of the advice for too many positional arguments."""


def advises(name: str, advice: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator that describes what to write instead of arguments that do not fit.

    Args:
        name: The name of the function, as users write it.
        advice: What to write, by the name of an unknown or a missing argument, or `POSITIONAL`.

    >>> @advises("load", {"num_workers": "Pass `worker_count`."})
    ... def load(source, *, worker_count=0):
    ...     return source
    >>> load([1], num_workers=2)
    Traceback (most recent call last):
    ...
    gristmill.errors.PlanTypeError: `load` has no argument `num_workers`. Pass `worker_count`.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                frames = error.__traceback__
                if frames is None or frames.tb_next is not None:
                    raise  # from within the function
                message = _explain(function, name, advice, args, kwargs)
                if message is None:
                    raise
            raise PlanTypeError(message)

        return call

    return decorate


def advises_list(name: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Return a decorator for a function that takes one list of datasets, not one after the other.

    Args:
        name: The name of the function, as users write it.
    """
    message = f"`{name}` takes a list of datasets. Write `{name}([first, second])`."
    return advises(name, {POSITIONAL: message})


def _explain(
    function: Callable[..., Any],
    name: str,
    advice: Mapping[str, str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> str | None:
    """Return the message for arguments that do not fit, or `None` if that of Python is enough."""
    parameters = inspect.signature(function).parameters
    unknown = next((one for one in kwargs if one not in parameters), None)
    if unknown is not None:
        close = difflib.get_close_matches(unknown, list(parameters), n=1)
        guess = f"Did you mean `{close[0]}`?" if close else ""
        return f"`{name}` has no argument `{unknown}`. {advice.get(unknown, guess)}".rstrip()
    positional = [one for one in parameters.values() if one.kind is not one.KEYWORD_ONLY]
    if len(args) > len(positional):
        return advice.get(POSITIONAL)
    given = {*kwargs, *(one.name for one in positional[: len(args)])}
    missing = [
        one.name
        for one in parameters.values()
        if one.default is one.empty and one.name not in given
    ]
    for one in missing:
        if one in advice:
            return f"`{name}` needs the argument `{one}`. {advice[one]}"
    return None
