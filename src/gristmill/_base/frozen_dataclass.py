"""Frozen, keyword-only dataclasses that take no time to define.

`dataclasses.dataclass(frozen=True)` compiles six methods for each class, which takes 0.4 ms. For
the nodes of plans alone that is 30 ms, in the user's program and in the process from which workers
are forked. The classes here share methods that loop over their fields instead. Creating an object
takes a few microseconds longer, and a plan has few nodes.
"""

from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen_dataclass(cls: type[T]) -> type[T]:
    """Make a class what `dataclass(frozen=True, kw_only=True)` makes it, without compiling methods.

    Its base classes that are dataclasses must be made by this function, too.

    >>> @frozen_dataclass
    ... class Point:
    ...     x: int
    ...     y: int = 0
    >>> Point(x=1), Point(x=1) == Point(x=1, y=0), len({Point(x=1), Point(x=1)})
    (Point(x=1, y=0), True, 1)
    """
    dataclass(init=False, repr=False, eq=False, kw_only=True)(cls)
    for name, method in _METHODS.items():
        if name not in vars(cls):  # as with `dataclass`, a class may define its own
            setattr(cls, name, method)
    return cls


def _init(self: Any, **values: Any) -> None:
    attributes = cast("dict[str, Any]", vars(self))
    for one in fields(self):
        if one.name in values:
            attributes[one.name] = values.pop(one.name)
        elif one.default is not MISSING:
            attributes[one.name] = one.default
        elif one.default_factory is not MISSING:
            attributes[one.name] = one.default_factory()
        else:
            raise TypeError(f"{type(self).__name__}() misses the argument {one.name!r}.")
    if values:
        raise TypeError(f"{type(self).__name__}() has no argument {next(iter(values))!r}.")
    check = getattr(self, "__post_init__", None)
    if check is not None:
        check()


def _repr(self: Any) -> str:
    shown = [f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _compared(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, one.name) for one in fields(value) if one.compare])


def _eq(self: Any, other: object) -> Any:
    return _compared(self) == _compared(other) if type(self) is type(other) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_METHODS: dict[str, Any] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}
