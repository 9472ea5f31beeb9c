"""Fingerprint a plan: a hash that changes when what the plan computes may have changed.

Nodes count by their fields, arrays by their content, files by their size and version, and the
user's functions by their bytecode, defaults, closures and the globals they refer to. What an
installed package defines counts by its name and the version of the package. Line numbers, threads
and workers do not count.
"""

import dataclasses
import hashlib
import importlib.metadata
import os
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator
from functools import cache, partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast, final

import numpy as np

from gristmill._base.version import VERSION
from gristmill._plan.nodes.base import Node, UnaryNode, stable_repr
from gristmill.errors import PlanError
from gristmill.types import AnyArray

_LOADED_ATTRIBUTES = frozenset({"_loaded", "_layout", "_lock"})
"""Attributes of our own sources that hold what was read from files: the files count already."""

_NUMBERS_AND_STRINGS = (type(None), bool, int, float, complex, str, np.dtype, np.generic)
_NOT_CODE = (GetSetDescriptorType, MemberDescriptorType)


def fingerprint(plan: Node) -> str:
    """Return a hash of everything that the elements of a plan depend on, as 32 hex digits.

    It is equal in all processes that build the same plan with the same version of Python.

    >>> from gristmill import MapDataset
    >>> two = [MapDataset.range(9).map(lambda x: x + add)._plan_node for add in (1, 1)]
    >>> fingerprint(two[0]) == fingerprint(two[1])
    True

    Raises:
        PlanError: The plan holds an object whose state cannot be read, such as a lock.
    """
    hasher = _Hasher()
    hasher.feed([VERSION, sys.implementation.cache_tag, np.__version__])
    hasher.feed(plan)
    return hasher.hexdigest()


def fingerprint_steps(plan: Node) -> list[tuple[str, str]]:
    """Return the label of each step that calls the user's code, and a hash of that code.

    Bottom up, one input after the other. The hash is empty if an object has no readable state.

    >>> from gristmill import MapDataset
    >>> [(label, len(code)) for label, code in
    ...     fingerprint_steps(MapDataset.range(9).map(str).batch(3)._plan_node)]
    [('Map str', 32), ('Batch(3)', 32)]
    """
    found = [pair for parent in plan.parents for pair in fingerprint_steps(parent)]
    if plan.user_part not in ("transform", "function") or plan.description is None:
        return found
    if not plan.calls_function:
        return [*found, (plan.label, "")]
    try:
        return [*found, (plan.label, _digest_without_parents(plan))]
    except Exception:  # a user's object may raise anything while it is read
        return [*found, (plan.label, "")]


def _digest_without_parents(node: Node) -> str:
    hasher = _Hasher()
    for field in dataclasses.fields(node):
        value = getattr(node, field.name)
        if field.name != "site" and not isinstance(value, Node):
            hasher.feed((field.name, value))
    return hasher.hexdigest()


@final
class _Hasher:
    """Feeds objects to a hash, each with its type: different objects have different hashes."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._seen: dict[int, int] = {}
        self._alive: list[object] = []  # so that no other object gets the id of one in `_seen`

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def feed(self, value: Any) -> None:
        kind = cast(Any, type(value))
        if issubclass(kind, _NUMBERS_AND_STRINGS):
            self._write(kind.__qualname__, str(value) if kind is str else repr(value))
        elif issubclass(kind, bytes | bytearray | memoryview):
            self._write("bytes", bytes(value))
        elif kind is tuple:
            self._feed_all("tuple", value)
        elif kind is CodeType:
            self._feed_code(value)
        elif issubclass(kind, frozenset | set):
            self._write("set", "".join(sorted(map(_digest, value))))
        elif id(value) in self._seen:
            self._write("seen", str(self._seen[id(value)]))
        else:
            self._seen[id(value)] = len(self._seen)
            self._alive.append(value)
            self._feed_new(value)

    def _feed_new(self, value: Any) -> None:
        if isinstance(value, UnaryNode) and value.description is None:  # the stream is the same
            self.feed(value.parent)
        elif isinstance(value, Node):
            kept = [field for field in dataclasses.fields(value) if field.name != "site"]
            parts = [(field.name, getattr(value, field.name)) for field in kept]
            self._feed_all(f"node {type(value).__name__}", parts)
        elif type(value) in (list, dict):
            kind = cast(Any, type(value))
            self._feed_all(kind.__name__, value if kind is list else [*value.items()])
        elif isinstance(value, np.ndarray):
            self._feed_array(cast("AnyArray", value))
        elif isinstance(value, type):
            self._feed_class(value)
        elif isinstance(value, ModuleType):
            self._feed_module(value)
        elif callable(value):
            self._feed_callable(value)
        else:
            self._feed_instance(value)

    def _feed_callable(self, value: Any) -> None:
        if isinstance(value, FunctionType):
            self._feed_function(value)
        elif isinstance(value, MethodType):
            self._feed_all("method", (value.__func__, value.__self__))
        elif isinstance(value, partial):
            called = cast("partial[Any]", value)
            self._feed_all("partial", (called.func, called.args, called.keywords))
        elif isinstance(value, BuiltinFunctionType):
            owner = value.__self__
            self._feed_all("builtin", (value.__qualname__, owner, _version_of(value.__module__)))
        else:
            self._feed_instance(value)

    def _feed_all(self, kind: str, items: Any) -> None:
        self._write(kind, str(len(items)))
        for item in items:
            self.feed(item)

    def _write(self, kind: str, content: str | bytes) -> None:
        data = content.encode(errors="surrogatepass") if isinstance(content, str) else content
        self._hash.update(struct.pack("<QQ", len(kind), len(data)) + kind.encode())
        self._hash.update(data)

    def _feed_array(self, array: AnyArray) -> None:
        self._write("array", f"{array.dtype.descr}{array.shape}")
        mapped = _mapped_file(array)
        if mapped is not None:
            self._write("mapped", mapped)
        elif array.dtype.hasobject:
            self._feed_all("objects", array.ravel().tolist())
        else:
            self._hash.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def _feed_function(self, function: FunctionType) -> None:
        installed = _version_of(function.__module__)
        if installed is not None:
            return self._write("function", f"{installed} {function.__qualname__}")
        closure = [_cell_content(cell) for cell in function.__closure__ or ()]
        names = sorted(set(_names_in(function.__code__)))
        known = function.__globals__
        used = [(name, known[name]) for name in names if name in known]
        parts = (function.__code__, function.__defaults__, function.__kwdefaults__, closure, used)
        return self._feed_all("function", parts)

    def _feed_code(self, code: CodeType) -> None:
        parts = (code.co_code, code.co_consts, code.co_names, code.co_varnames, code.co_freevars)
        self._feed_all("code", (*parts, code.co_flags, code.co_argcount, code.co_exceptiontable))

    def _feed_class(self, kind: type) -> None:
        installed = _version_of(kind.__module__)
        if installed is not None:
            return self._write("class", f"{installed} {kind.__qualname__}")
        own = [
            (name, _unwrapped(value))
            for name, value in vars(kind).items()
            if not isinstance(value, _NOT_CODE) and name not in _CLASS_BOOKKEEPING
        ]
        return self._feed_all("class", (kind.__qualname__, kind.__bases__, own))

    def _feed_module(self, module: ModuleType) -> None:
        installed = _version_of(module.__name__)
        if installed is not None:
            return self._write("module", f"{installed} {module.__name__}")
        content = b""
        if module.__file__ is not None:
            with open(module.__file__, "rb") as file:
                content = file.read()
        self._write("module", content)
        inner = [value for value in vars(module).values() if isinstance(value, ModuleType)]
        return self._feed_all("modules", [one for one in inner if not _version_of(one.__name__)])

    def _feed_instance(self, value: Any) -> None:
        kind = cast(Any, type(value))
        self.feed(kind)
        wrapped = getattr(value, "__wrapped__", None)  # such as a function under `jax.jit`
        if wrapped is not None:
            return self.feed(wrapped)
        if dataclasses.is_dataclass(kind) and kind.__reduce__ is object.__reduce__:
            names = [field.name for field in dataclasses.fields(kind)]
            return self._feed_all("fields", [(name, getattr(value, name, None)) for name in names])
        try:
            reduced: Any = value.__reduce_ex__(4)
        except Exception as error:
            raise PlanError(
                f"gristmill cannot find out whether {stable_repr(value)} is the same in another "
                f"run or program: {error}. Let its class define `__getstate__`, or create it in "
                "the function that uses it."
            ) from error
        if isinstance(reduced, str):
            return self._write("name", reduced)
        parts: list[Any] = [*reduced, None, None, None]
        make, arguments, state, *rest = parts[:5]
        if isinstance(state, dict) and _version_of(str(kind.__module__)) is not None:
            attributes = cast("dict[str, Any]", state)
            state = {key: attributes[key] for key in attributes if key not in _LOADED_ATTRIBUTES}
        items = [None if some is None else list(some) for some in rest]
        return self._feed_all("reduced", (make, arguments, state, *items))


def _digest(value: Any) -> str:
    hasher = _Hasher()
    hasher.feed(value)
    return hasher.hexdigest()


_CLASS_BOOKKEEPING = frozenset(
    {"__doc__", "__module__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__"}
    | {"__abstractmethods__", "_abc_impl", "__annotations__", "__parameters__", "__orig_bases__"}
    | {"__dataclass_params__", "__dataclass_fields__", "__match_args__"}
)
"""Attributes of a class that its instances do not compute with."""


def _unwrapped(value: Any) -> Any:
    """Return the functions of a method that is wrapped in a descriptor."""
    if isinstance(value, staticmethod | classmethod):
        return cast(Any, value).__func__
    if isinstance(value, property):
        return (value.fget, value.fset)
    return value


def _names_in(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


def _cell_content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return "empty cell"


def _mapped_file(array: AnyArray) -> str | None:
    """Return the name, size and time of the file that an array maps, and where in it."""
    base: Any = array
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = cast(Any, base.base)
    if not isinstance(base, np.memmap) or base.filename is None:
        return None
    found = os.stat(base.filename)
    root = cast("AnyArray", base)
    while isinstance(root.base, np.memmap):
        root = root.base
    start = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    where = f"{base.offset} {start} {array.strides}"
    return f"{os.fspath(base.filename)} {found.st_size} {found.st_mtime_ns} {where}"


@cache
def _version_of(module: str | None) -> str | None:
    """Return the package and version of an installed module, or `None` for the user's own."""
    package = (module or "builtins").partition(".")[0]
    if package == "gristmill":
        return f"gristmill {VERSION}"
    if package == "__main__":
        return None
    if package in sys.stdlib_module_names:
        return f"{package} {sys.version_info[:3]}"
    path = getattr(sys.modules.get(package), "__file__", None)
    installed = [sysconfig.get_path(name) for name in ("purelib", "platlib")]
    if path is None or not any(os.path.commonpath([path, one]) == one for one in installed):
        return None
    find: Callable[[str], str] = importlib.metadata.version
    try:
        return f"{package} {find(package)}"
    except importlib.metadata.PackageNotFoundError:  # its distribution has another name
        return f"{package} {getattr(sys.modules.get(package), '__version__', os.stat(path))}"
