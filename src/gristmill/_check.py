"""Check arguments where the user wrote them, and name them in the message."""

import operator
from collections.abc import Sequence
from typing import Any, TypeVar, cast

from gristmill.errors import PlanError, PlanTypeError

T = TypeVar("T")


def as_int(name: str, value: Any, *, minimum: int = 0, maximum: int | None = None) -> int:
    """Take any integer, NumPy's included, within bounds.

    >>> as_int("batch_size", 128, minimum=1)
    128
    """
    if isinstance(value, bool):
        raise PlanTypeError(f"`{name}` must be an integer, got {value!r}.")
    try:
        number = operator.index(value)
    except TypeError:
        raise PlanTypeError(
            f"`{name}` must be an integer, got {value!r} of type {type(value).__name__}."
        ) from None
    if number < minimum:
        raise PlanError(f"`{name}` must be at least {minimum}, got {number}.")
    if maximum is not None and number > maximum:
        raise PlanError(f"`{name}` must be at most {maximum}, got {number}.")
    return number


def as_seconds(name: str, value: Any) -> float:
    """Take a time above zero.

    >>> as_seconds("timeout_s", 2)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlanTypeError(f"`{name}` must be a number of seconds, got {value!r}.")
    if not value > 0:
        raise PlanError(f"`{name}` must be above 0, got {value!r}.")
    return float(value)


def as_kind(name: str, value: Any, kind: type[T], *, remedy: str) -> T:
    """Take an instance of a class.

    >>> as_kind("name", "gristmill", str, remedy="Pass text.")
    'gristmill'
    """
    if not isinstance(value, kind):
        raise PlanTypeError(f"`{name}` must be {kind.__name__}, got {value!r}. {remedy}")
    return value


def as_list(name: str, value: Any) -> list[Any]:
    """Take a sequence as a list.

    >>> as_list("operations", (1, 2))
    [1, 2]
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise PlanTypeError(f"`{name}` must be a list, got {value!r}. Put it in brackets.")
    return list(cast("Sequence[Any]", value))


def as_bool(name: str, value: Any) -> bool:
    """Take `True` or `False`, NumPy's and 1 or 0 included, and nothing else that counts as one.

    >>> as_bool("shuffle", False)
    False
    """
    if type(value).__name__ in ("bool", "bool_", "int") and value in (0, 1):
        return bool(value)
    raise PlanTypeError(f"`{name}` must be True or False, got {value!r}.")


def as_seed(value: Any, *, bits: int = 32) -> int:
    """Take a seed; 32 bits are what a shuffle is keyed with.

    >>> as_seed(42)
    42
    """
    return as_int("seed", value, maximum=2**bits - 1)


def is_grains(value: object, name: str) -> bool:
    """Tell an object of a class of Grain's, or derived from one, by the class's name.

    Grain need not be installed: who passes such an object has it.
    """
    kinds = (value if isinstance(value, type) else type(value)).__mro__
    return any(
        kind.__name__ == name and kind.__module__.partition(".")[0] == "grain" for kind in kinds
    )
