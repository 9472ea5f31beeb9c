"""Check the arguments of a call and name the wrong one in the error message."""

import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex, TypeVar, cast

from gristmill.errors import PlanError, PlanTypeError

T = TypeVar("T")


def as_int(
    name: str,
    value: object,
    *,
    minimum: int = 0,
    maximum: int | None = None,
    phrase: str | None = None,
) -> int:
    """Return `value` as a Python integer if it is an integer within bounds.

    NumPy integers are accepted; booleans and floats are not.

    Args:
        name: The name of the argument, for the error message.
        value: The value to check.
        minimum: The smallest accepted value.
        maximum: The largest accepted value; `None` for no limit.
        phrase: What must hold, in the words of Grain's message, which its users search for.

    Raises:
        PlanTypeError: If `value` is not an integer.
        PlanError: If `value` is out of bounds.

    >>> as_int("batch_size", 128, minimum=1)
    128
    """
    if isinstance(value, bool):
        raise PlanTypeError(f"`{name}` must be an integer, got {value!r}.")
    try:
        number = operator.index(cast(SupportsIndex, value))
    except TypeError:
        raise PlanTypeError(
            f"`{name}` must be an integer, got {value!r} of type {type(value).__name__}."
        ) from None
    if phrase is not None and (number < minimum or (maximum is not None and number > maximum)):
        raise PlanError(f"{phrase}, got {number}.")
    if number < minimum:
        raise PlanError(f"`{name}` must be at least {minimum}, got {number}.")
    if maximum is not None and number > maximum:
        raise PlanError(f"`{name}` must be at most {maximum}, got {number}.")
    return number


def as_seconds(name: str, value: object, *, allow_zero: bool = False) -> float:
    """Return `value` as a float if it is a number of seconds above zero.

    >>> as_seconds("timeout_s", 2)
    2.0

    Args:
        name: The name of the argument, for the error message.
        value: The value to check.
        allow_zero: Whether zero is allowed, too.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlanTypeError(f"`{name}` must be a number of seconds, got {value!r}.")
    if not (value > 0 or (allow_zero and value == 0)):  # also refuses NaN
        limit = "at least" if allow_zero else "above"
        raise PlanError(f"`{name}` must be {limit} 0, got {value!r}.")
    return float(value)


def as_amount(name: str, value: object) -> float:
    """Return `value` as a float if it is a finite number of at least zero.

    >>> as_amount("num_cpus", 0.5)
    0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise PlanTypeError(f"`{name}` must be a number, got {value!r}.")
    if not 0 <= value < math.inf:  # also refuses NaN
        raise PlanError(f"`{name}` must be at least 0 and finite, got {value!r}.")
    return float(value)


def as_kind(name: str, value: object, kind: type[T], *, remedy: str) -> T:
    """Return `value` if it is an instance of the class `kind`.

    Args:
        name: The name of the argument, for the error message.
        value: The value to check.
        kind: The class that `value` must be an instance of.
        remedy: A sentence that ends the error message.

    >>> as_kind("name", "gristmill", str, remedy="Pass a string.")
    'gristmill'
    """
    if not isinstance(value, kind):
        raise PlanTypeError(f"`{name}` must be {kind.__name__}, got {value!r}. {remedy}")
    return value


def as_list(name: str, value: object) -> list[Any]:
    """Return the items of a sequence as a list. Strings and bytes are refused.

    >>> as_list("operations", (1, 2))
    [1, 2]
    """
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise PlanTypeError(f"`{name}` must be a list, got {value!r}. Put it in brackets.")
    return list(cast("Sequence[Any]", value))


def as_bool(name: str, value: object) -> bool:
    """Return `value` as a bool if it is a bool, a NumPy bool, 0 or 1.

    Other values that Python treats as true or false, such as strings, are refused.

    >>> as_bool("shuffle", False)
    False
    """
    if type(value).__name__ in ("bool", "bool_", "int") and value in (0, 1):
        return bool(value)
    raise PlanTypeError(f"`{name}` must be True or False, got {value!r}.")


def as_seed(value: object, *, bits: int = 32) -> int:
    """Return `value` if it is a seed of at most `bits` bits. A shuffle is keyed with 32 bits.

    >>> as_seed(42)
    42
    """
    phrase = f"Seed must be an integer between 0 and 2**{bits}-1"
    return as_int("seed", value, maximum=2**bits - 1, phrase=phrase)


def as_batch_size(value: object) -> int:
    """Return `value` if it is a number of elements of a batch.

    >>> as_batch_size(128)
    128
    """
    return as_int("batch_size", value, minimum=1, phrase="batch_size must be positive")


def as_num_epochs(value: object) -> int | None:
    """Return `value` if it is a number of epochs, or `None` for no limit.

    >>> as_num_epochs(3)
    3
    """
    if value is None:
        return None
    return as_int("num_epochs", value, minimum=1, phrase="num_epochs must be positive")
