"""From what the user passes as a transformation to a function and a name."""

from collections.abc import Callable
from typing import Any

from gristmill._check import as_int
from gristmill.errors import PlanTypeError
from gristmill.plan import name_of, stable_repr
from gristmill.transforms import Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap

_KINDS = (Batch, Filter, FlatMap, Map, MapWithIndex, RandomMap, TfRandomMap)
"""Classes of which users pass an instance; any other class is a function, such as `str`."""


def as_function(
    step: str, transform: Any, kind: type, method: str
) -> tuple[Callable[..., Any], str]:
    """Take a transformation of a kind, or a function that does the same."""
    if _is_kind(transform):
        raise PlanTypeError(
            f"`{step}` was given the class {transform.__name__}. "
            f"Pass an instance of it: `{transform.__name__}()`."
        )
    if isinstance(transform, kind):
        return getattr(transform, method), name_of(transform)
    if not callable(transform):
        raise PlanTypeError(
            f"`{step}` takes a function or a {kind.__name__}, got {stable_repr(transform)}."
        )
    return transform, name_of(transform)


def _is_kind(transform: Any) -> bool:
    return isinstance(transform, type) and issubclass(transform, _KINDS)


def as_split(transform: FlatMap) -> tuple[Callable[[Any], Any], str, int]:
    """Take a flat map: its function, name and most pieces."""
    function, name = as_function("flat_map", transform, FlatMap, "flat_map")
    fan_out = as_int(f"{name}.max_fan_out", getattr(transform, "max_fan_out", None), minimum=1)
    return function, name, fan_out
