"""Find which part of a thing cannot be pickled."""

import copyreg
import io
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, cast, final

import numpy as np

from gristmill._base.tree import children

Failure: TypeAlias = Callable[[Any], Exception | None]
"""Try to pickle: the exception, or `None` if all is well."""

Part: TypeAlias = tuple[str, Any]
"""How one gets there, as Python is written, and what is there."""

_DEEPEST = 50
"""Steps from the whole to a part: nobody would read a longer way."""


@final
@dataclass(frozen=True)
class Unpicklable:
    """The smallest part that cannot be pickled."""

    path: str
    thing: Any
    error: Exception

    def tell(self) -> str:
        """Say it in half a sentence, as in "`self.lock` is a _thread.lock"."""
        told = f"`{self.path}` is {_describe(self.thing)}"
        if re.match("cannot pickle .* object", str(self.error)):
            return told  # which says nothing more
        return f"{told}, and pickling it raised {type(self.error).__name__}: {self.error}"


def find_unpicklable(path: str, thing: Any, error: Exception, failure: Failure) -> Unpicklable:
    """Follow, from a thing that cannot be pickled, the first part that cannot, and so on.

    >>> import pickle
    >>> def failure(thing):
    ...     try:
    ...         pickle.dumps(thing)
    ...     except Exception as error:
    ...         return error
    >>> batch = {"x": [1, 2, iter([]), (n for n in "")]}
    >>> find_unpicklable("batch", batch, failure(batch), failure).tell()
    '`batch["x"][3]` is a generator'
    """
    kept: dict[int, Any] = {id(thing): thing}  # by id, for cycles; held, so that ids stay theirs
    while len(kept) <= _DEEPEST:
        found = _first_failing(
            [part for part in _parts(path, thing) if id(part[1]) not in kept], failure
        )
        if found is None:
            break
        (path, thing), error = found
        kept[id(thing)] = thing
    return Unpicklable(path, thing, error)


def _first_failing(parts: list[Part], failure: Failure) -> tuple[Part, Exception] | None:
    """Give the first part that fails alone, halving: the parts may be a million records."""
    if not parts:
        return None
    error = failure([thing for _, thing in parts])
    if error is None:
        return None
    if len(parts) == 1:
        return parts[0], error
    middle = len(parts) // 2
    return _first_failing(parts[:middle], failure) or _first_failing(parts[middle:], failure)


def _parts(path: str, thing: Any) -> list[Part]:
    """Give what pickle takes a thing apart into."""
    try:
        return list(_take_apart(path, thing))
    except Exception:  # the user's `__reduce__`, `__getstate__`: then the thing itself is to blame
        return []


def _take_apart(path: str, thing: Any) -> Iterator[Part]:
    match thing:
        case dict():
            return _items(path, cast("dict[Any, Any]", thing))
        case set() | frozenset():
            return ((f"{path}[...]", item) for item in cast("set[Any]", thing))
        case types.MethodType():
            return _parts_of_method(thing)
        case types.FunctionType():
            return _parts_of_function(thing)
        case partial():
            return _parts_of_partial(path, cast("partial[Any]", thing))
        case staticmethod() | classmethod():
            return iter([(path, cast(Any, thing).__func__)])
        case type():
            return _parts_of_class(thing)
        case np.ndarray():
            array = cast(Any, thing)
            return ((f"{path}{list(at)}", item) for at, item in np.ndenumerate(array))
        case _:
            items = children(thing) if isinstance(thing, list | tuple) else None
            if items is None:
                return _parts_of_object(path, thing)
            return ((path + step, item) for step, item in zip(*items, strict=True))


def _numbered(path: str, items: Any) -> Iterator[Part]:
    return ((f"{path}[{number}]", item) for number, item in enumerate(items))


def _items(path: str, mapping: Mapping[Any, Any]) -> Iterator[Part]:
    for key, value in mapping.items():
        yield (f'{path}["{key}"]' if isinstance(key, str) else f"{path}[{key!r}]"), value
    yield from ((f"{path}.keys()[{number}]", key) for number, key in enumerate(mapping))


def _parts_of_method(method: types.MethodType) -> Iterator[Part]:
    owner = method.__self__
    yield (owner.__qualname__ if isinstance(owner, type) else "self"), owner
    yield method.__func__.__name__, method.__func__


def _parts_of_partial(path: str, applied: partial[Any]) -> Iterator[Part]:
    yield getattr(applied.func, "__name__", path), applied.func
    yield from _numbered(f"{path}.args", applied.args)
    yield from _items(f"{path}.keywords", applied.keywords)


def _parts_of_function(function: types.FunctionType) -> Iterator[Part]:
    """Give the variables that a function takes along: a reader knows them by their names."""
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
"""What of a class is made anew with it."""


def _parts_of_class(kind: type) -> Iterator[Part]:
    for name, value in vars(kind).items():
        if name not in _NOT_SENT and not isinstance(value, types.MemberDescriptorType):
            yield f"{kind.__qualname__}.{name}", value
    yield from ((base.__qualname__, base) for base in kind.__bases__)
    yield type(kind).__qualname__, type(kind)


def _parts_of_object(path: str, thing: Any) -> Iterator[Part]:
    """Give what the object itself says is to be pickled, which may leave some attributes out."""
    reduce: Any = copyreg.dispatch_table.get(cast("type[Any]", type(thing)))
    reduced: Any = reduce(thing) if reduce else thing.__reduce_ex__(5)
    if isinstance(reduced, str):
        return
    rest: Sequence[Any] = (*reduced[2:], None, None, None)
    state, items, pairs = rest[:3]
    for part in cast(Any, state) if isinstance(state, tuple) else (state,):  # a pair, with slots
        if isinstance(part, dict):
            attributes = cast("dict[str, Any]", part)
            yield from ((f"{path}.{name}", value) for name, value in attributes.items())
        else:
            yield f"{path}[...]", part
    yield from _numbered(path, items or ())
    yield from _items(path, dict(pairs or ()))
    for argument in reduced[1]:
        is_class = isinstance(argument, type)
        yield (argument.__qualname__ if is_class else f"{path}[...]"), argument


def _describe(thing: Any) -> str:
    """Name what something is.

    >>> _describe(open), _describe((n for n in "")), _describe(io.BytesIO)
    ('a builtin_function_or_method', 'a generator', 'the class BytesIO')
    """
    if isinstance(thing, type):
        return f"the class {thing.__qualname__}"
    if isinstance(thing, types.ModuleType):
        return f"the module {thing.__name__}"
    kind = cast("type[Any]", type(thing))
    name = kind.__qualname__.rpartition("<locals>.")[2]
    if kind.__module__ not in ("builtins", "__main__"):
        name = f"{kind.__module__}.{name}"
    if isinstance(thing, io.IOBase):
        return f"an open file ({name})"
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
