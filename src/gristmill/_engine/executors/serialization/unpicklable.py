"""Search for the part of an object that cannot be pickled."""

import copyreg
import io
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast, final

import numpy as np

from gristmill._base.trees.tree import children

TryPickle: TypeAlias = Callable[[object], Exception | None]
"""Tries to pickle an object; returns the exception, or `None` if there is none."""

Part: TypeAlias = tuple[str, object]
"""A part of an object, after the Python expression for it."""

_MAX_DEPTH = 50
"""Steps from the whole object to a part. A longer expression would be unreadable."""


@final
@dataclass(frozen=True)
class Unpicklable:
    """The smallest part of an object that cannot be pickled."""

    path: str
    """The Python expression for it."""
    value: object
    error: Exception

    def describe(self) -> str:
        """Return a clause for an error message, such as "`self.lock` is a _thread.lock"."""
        description = f"`{self.path}` is {_describe(self.value)}"
        if re.match("cannot pickle .* object", str(self.error)):
            return description  # the message of the error adds nothing to it
        return f"{description}, and pickling it raised {type(self.error).__name__}: {self.error}"


def find_unpicklable(
    path: str, value: object, error: Exception, try_pickle: TryPickle
) -> Unpicklable:
    """Follow the first part that cannot be pickled, then the first such part of that, and so on.

    Args:
        path: The expression for `value`.
        value: An object that cannot be pickled.
        error: The exception that pickling it raised.
        try_pickle: Tries to pickle a part.

    >>> import pickle
    >>> def try_pickle(value):
    ...     try:
    ...         pickle.dumps(value)
    ...     except Exception as error:
    ...         return error
    >>> batch = {"x": [1, 2, iter([]), (n for n in "")]}
    >>> find_unpicklable("batch", batch, try_pickle(batch), try_pickle).describe()
    '`batch["x"][3]` is a generator'
    """
    visited = {id(value): value}  # for cycles; the values are kept, so that ids stay unique
    while len(visited) <= _MAX_DEPTH:
        found = _first_failing(
            [part for part in _parts(path, value) if id(part[1]) not in visited], try_pickle
        )
        if found is None:
            break
        (path, value), error = found
        visited[id(value)] = value
    return Unpicklable(path, value, error)


def _first_failing(parts: list[Part], try_pickle: TryPickle) -> tuple[Part, Exception] | None:
    """Return the first part that fails by itself, by bisection: there may be a million records."""
    if not parts:
        return None
    error = try_pickle([value for _, value in parts])
    if error is None:
        return None
    if len(parts) == 1:
        return parts[0], error
    middle = len(parts) // 2
    return _first_failing(parts[:middle], try_pickle) or _first_failing(parts[middle:], try_pickle)


def _parts(path: str, value: object) -> list[Part]:
    """Return the parts that pickle takes from an object."""
    try:
        return list(_iterate_parts(path, value))
    except Exception:  # the user's `__reduce__` or `__getstate__`: the object itself is the cause
        return []


def _iterate_parts(path: str, value: object) -> Iterator[Part]:
    match value:
        case dict():
            return _items(path, cast("dict[object, object]", value))
        case set() | frozenset():
            return ((f"{path}[...]", item) for item in cast("set[object]", value))
        case types.MethodType():
            return _parts_of_method(value)
        case types.FunctionType():
            return _parts_of_function(value)
        case partial():
            return _parts_of_partial(path, cast("partial[object]", value))
        case staticmethod() | classmethod():
            return iter([(path, cast("staticmethod[..., object]", value).__func__)])
        case type():
            return _parts_of_class(value)
        case np.ndarray():
            items = np.ndenumerate(cast("np.ndarray[Any, Any]", value))
            return ((f"{path}{list(index)}", item) for index, item in items)
        case list() | tuple():
            steps, values = children(cast("list[object]", value)) or ((), ())
            return ((path + step, item) for step, item in zip(steps, values, strict=True))
        case _:
            return _parts_of_object(path, value)


def _numbered(path: str, items: Iterable[object]) -> Iterator[Part]:
    return ((f"{path}[{number}]", item) for number, item in enumerate(items))


def _items(path: str, mapping: Mapping[Any, object]) -> Iterator[Part]:
    for key, value in mapping.items():
        yield (f'{path}["{key}"]' if isinstance(key, str) else f"{path}[{key!r}]"), value
    yield from ((f"{path}.keys()[{number}]", key) for number, key in enumerate(mapping))


def _parts_of_method(method: types.MethodType) -> Iterator[Part]:
    owner = method.__self__
    yield (owner.__qualname__ if isinstance(owner, type) else "self"), owner
    yield method.__func__.__name__, method.__func__


def _parts_of_partial(path: str, applied: partial[object]) -> Iterator[Part]:
    yield getattr(applied.func, "__name__", path), applied.func
    yield from _numbered(f"{path}.args", applied.args)
    yield from _items(f"{path}.keywords", applied.keywords)


def _parts_of_function(function: types.FunctionType) -> Iterator[Part]:
    """Yield the variables that are pickled with a function, under their names in the source."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if cell != types.CellType():  # an empty one: the variable has no value yet
            yield name, cell.cell_contents
    for name in _names_in(code):
        if name in function.__globals__:
            yield name, function.__globals__[name]
    defaults = function.__defaults__ or ()
    positional = code.co_varnames[: code.co_argcount]
    yield from zip(positional[len(positional) - len(defaults) :], defaults, strict=True)
    yield from (function.__kwdefaults__ or {}).items()
    yield from ((f"{function.__name__}.{name}", value) for name, value in vars(function).items())
    yield f"{function.__name__}.__annotations__", function.__annotations__


def _names_in(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


_NOT_SENT = {"__dict__", "__weakref__", "_abc_impl"}
"""Attributes of a class that are created with it."""


def _parts_of_class(kind: type) -> Iterator[Part]:
    for name, value in vars(kind).items():
        if name not in _NOT_SENT and not isinstance(value, types.MemberDescriptorType):
            yield f"{kind.__qualname__}.{name}", value
    yield from ((base.__qualname__, base) for base in kind.__bases__)
    yield type(kind).__qualname__, type(kind)


def _parts_of_object(path: str, value: object) -> Iterator[Part]:
    """Yield what `__reduce_ex__` of an object returns, which may leave out some attributes."""
    reduce = copyreg.dispatch_table.get(type(value))
    reduced: Any = reduce(value) if reduce else value.__reduce_ex__(5)
    if isinstance(reduced, str):
        return
    state, items, pairs = (*reduced[2:], None, None, None)[:3]
    states = cast("tuple[object, ...]", state) if isinstance(state, tuple) else (state,)
    for part in states:  # with slots there is a pair of them
        if isinstance(part, dict):
            attributes = cast("dict[str, object]", part)
            yield from ((f"{path}.{name}", value) for name, value in attributes.items())
        else:
            yield f"{path}[...]", part
    yield from _numbered(path, items or ())
    yield from _items(path, dict(pairs or ()))
    for argument in reduced[1]:
        is_class = isinstance(argument, type)
        yield (argument.__qualname__ if is_class else f"{path}[...]"), argument


def _describe(value: object) -> str:
    """Describe the type of an object.

    >>> _describe(open), _describe((n for n in "")), _describe(io.BytesIO)
    ('a builtin_function_or_method', 'a generator', 'the class BytesIO')
    """
    if isinstance(value, type):
        return f"the class {value.__qualname__}"
    if isinstance(value, types.ModuleType):
        return f"the module {value.__name__}"
    kind = type(value)
    name = kind.__qualname__.rpartition("<locals>.")[2]
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    if isinstance(value, io.IOBase):
        return f"an open file ({name})"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
