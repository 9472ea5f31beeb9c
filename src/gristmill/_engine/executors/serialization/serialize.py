"""Pickles between the parent and its workers, in which classes keep their identity.

A class that is defined in a script, a notebook or a function cannot be imported in a worker. It is
sent by value, and the worker has a copy of it. Elements that the worker sends back would be
instances of that copy, or would replace the original class by it. So each class is sent with a key:

    parent    class Box  ── key, by value ──▶  worker: a copy of Box, registered under the key
    parent    class Box  ◀── key ──            worker: an element, Box(1)
"""

import copyreg
import importlib
import io
import pickle
import sys
import threading
import uuid
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pickle import PickleBuffer
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final
from weakref import WeakKeyDictionary, WeakValueDictionary

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from gristmill._engine.executors.serialization.arrays import (
    MappedFile,
    Reduction,
    reduce_array,
    reduce_mapped,
    reduce_memoryview,
    reduce_plain_subclass,
)
from gristmill._engine.executors.serialization.packed_records import MIN_RECORDS
from gristmill._engine.executors.serialization.unpicklable import find_unpicklable
from gristmill._engine.tuning.policy import DEFAULT_POLICY, TuningPolicy
from gristmill.errors import UnsendableError

if TYPE_CHECKING:
    CloudPickler = pickle.Pickler  # its base class: cloudpickle has no type annotations
else:
    CloudPickler = cloudpickle.Pickler

BufferCallback: TypeAlias = Callable[[PickleBuffer], object]
"""Receives the memory of an array; returns true to keep it in the pickle. See `pickle.Pickler`."""

ReplaceList: TypeAlias = Callable[[list[Any]], object | None]
"""Returns what is pickled in place of a list, and loaded as a list; `None` for the list itself."""

PLAN_IN_BAND_BYTES = 1024
"""Smaller arrays of a plan stay in the pickle: to copy them costs less than another buffer."""

_PROTOCOL = 5

_KEYS: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_CLASSES: WeakValueDictionary[str, type] = WeakValueDictionary()
_PARENT_KEYS: set[str] = set()
"""In a worker: the keys under which the parent sent classes."""
_LOCK = threading.Lock()

_NAMED_TYPES = (type, FunctionType, BuiltinFunctionType)
"""Types of objects that are pickled as the name of a module and their name in it."""


@final
class PlanBytes(bytes):
    """A pickled plan. It keeps the classes in it alive, so that replies of workers find them."""

    classes: tuple[type, ...] = ()
    modules: frozenset[str] = frozenset()
    """The modules that it refers to: loading it imports them."""


def dump_plan(
    *objects: object,
    buffer_callback: BufferCallback | None = None,
    replace_list: ReplaceList | None = None,
) -> PlanBytes:
    """Pickle objects that the parent sends to its workers. Keep the result while they run.

    What the objects have in common, such as the globals of the script, stays shared, even if they
    are loaded one by one. Arrays on memory-mapped files are sent as the names of those files.

    Args:
        objects: The objects.
        buffer_callback: Receives the memory of arrays.
        replace_list: Replaces long lists, wherever they are; only `load_each` loads the result.

    >>> load(dump_plan(lambda x: x + 1))(1)
    2
    """
    file = io.BytesIO()
    if replace_list is None:
        pickler = _PlanPickler(file, buffer_callback)
    else:
        pickler = _ReplacingPickler(file, buffer_callback, replace_list)
    for value in objects:
        pickler.dump(value)
    payload = PlanBytes(file.getvalue())
    payload.classes = tuple(pickler.classes)
    payload.modules = frozenset(pickler.modules & sys.modules.keys() - {"__main__", "builtins"})
    return payload


def dump(value: object) -> bytes:
    """Pickle an object that a worker sends to its parent, with all its memory.

    >>> load(dump({"x": np.arange(3)}))
    {'x': array([0, 1, 2])}
    """
    try:
        return _dump_fast(value, None)
    except Exception:  # whatever it is: cloudpickle succeeds, or explains it better
        return _dump_by_value(value, None)


@final
class Sender:
    """Pickles the elements that a worker sends.

    The standard pickler is tried first, as it is faster. Once elements need cloudpickle, that is
    used for all that follow.

    >>> payload, buffers = Sender().dump({"x": np.zeros(10_000), "y": "small"})
    >>> len(buffers), load(payload, buffers)["x"].shape
    (1, (10000,))
    """

    def __init__(self, policy: TuningPolicy = DEFAULT_POLICY) -> None:
        self._min_buffer_bytes = policy.in_band_bytes
        self._needs_cloudpickle = False

    def dump(self, value: object, *, name: str = "element") -> tuple[bytes, list[PickleBuffer]]:
        """Pickle an object; return the pickle, and the memory of the larger arrays.

        Args:
            value: The object.
            name: Its name in the error message.

        Raises:
            UnsendableError: The object cannot be pickled; names the part that is the cause.
        """
        if not self._needs_cloudpickle:
            buffers: list[PickleBuffer] = []
            try:
                return _dump_fast(value, self._collect(buffers)), buffers
            except Exception:  # mostly because of a class of the script, which will come again
                pass
        buffers = []
        try:
            payload = _dump_by_value(value, self._collect(buffers))
        except Exception as error:
            raise _unsendable(name, value, error) from None  # it repeats the message of pickle
        self._needs_cloudpickle = True
        return payload, buffers

    def _collect(self, buffers: list[PickleBuffer]) -> BufferCallback:
        return out_of_band(buffers, smallest=self._min_buffer_bytes)


def load(payload: bytes | memoryview | NDArray[np.uint8], buffers: Iterable[Any] = ()) -> Any:
    """Return the object that was pickled. Buffers of writeable arrays must be writeable."""
    return pickle.loads(cast(Any, payload), buffers=buffers)


def load_each(payload: NDArray[np.uint8], buffers: Iterable[Any]) -> Iterator[Any]:
    """Load the objects that were pickled by one `dump_plan`, one after the other."""
    file = io.BytesIO(payload.data)
    unpickler = _PlanUnpickler(file, buffers=iter(buffers))
    while file.tell() < len(payload):  # words: a method of `io`
        yield unpickler.load()


def keys_of(kinds: Iterable[type]) -> list[str]:
    """Return the keys under which workers know classes that were sent to them by value."""
    return [_key_for(kind) for kind in kinds]


def classes_of(keys: Iterable[str]) -> list[type]:
    """Return the copies in this worker of classes that the parent sent under some keys."""
    return [_CLASSES[key] for key in keys]


def names_of(kinds: Iterable[type]) -> dict[str, tuple[str, str]]:
    """Return the module and the name of classes that were sent by value, by their keys."""
    return {_key_for(kind): (kind.__module__, kind.__qualname__) for kind in kinds}


def adopt_keys(names: Mapping[str, tuple[str, str]]) -> None:
    """Let keys of another process that runs the same program refer to the classes of this one.

    Args:
        names: What `names_of` returned there. Classes that this process does not have are left out.
    """
    for key, (module, name) in names.items():
        found: Any = sys.modules.get(module)
        for part in name.split("."):
            found = getattr(found, part, None)
        if isinstance(found, type):
            with _LOCK:
                _CLASSES.setdefault(key, found)


def out_of_band(buffers: list[PickleBuffer], *, smallest: int) -> BufferCallback:
    """Return a callback that appends the memory of arrays of at least `smallest` bytes."""

    def collect(buffer: PickleBuffer) -> bool:
        if buffer.raw().nbytes < smallest:
            return True
        buffers.append(buffer)
        return False

    return collect


def _dump_fast(value: object, buffer_callback: BufferCallback | None) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, _PROTOCOL, buffer_callback=buffer_callback)
    pickler.dispatch_table = {**copyreg.dispatch_table, **_REDUCERS}
    pickler.dump(value)
    return file.getvalue()


def _dump_by_value(value: object, buffer_callback: BufferCallback | None) -> bytes:
    file = io.BytesIO()
    _ElementPickler(file, buffer_callback).dump(value)
    return file.getvalue()


def _unsendable(name: str, value: object, error: Exception) -> UnsendableError:
    def try_pickle(part: object) -> Exception | None:
        try:
            _dump_by_value(part, _discard)
        except Exception as error:
            return error
        return None

    culprit = find_unpicklable(name, value, error, try_pickle)
    return UnsendableError(
        f"A worker cannot send an element: {culprit.describe()}. Return arrays, numbers, strings "
        "or other objects that can be pickled, or use `worker_count=0`."
    )


def _discard(_: PickleBuffer) -> None:
    """Leave the memory of an array out of a pickle that is never loaded."""


def _refuse_file(file: object) -> Reduction:
    """Refuse an open file, whose whole content cloudpickle would copy silently.

    Its position is a state that the workers would not share.
    """
    raise pickle.PicklingError("cannot pickle an open file object")


_REDUCERS: dict[type, Callable[[Any], Reduction]] = {
    np.ndarray: reduce_array,
    np.memmap: reduce_plain_subclass,
    np.recarray: reduce_plain_subclass,
    memoryview: reduce_memoryview,
}


class _Pickler(CloudPickler):
    def __init__(self, file: io.BytesIO, buffer_callback: BufferCallback | None) -> None:
        own = {**_REDUCERS, io.TextIOWrapper: _refuse_file}
        self.dispatch_table = ChainMap(own, cast(Any, CloudPickler.dispatch_table))
        super().__init__(file, _PROTOCOL, buffer_callback=buffer_callback)

    def reducer_override(self, obj: Any) -> Any:
        if obj is sys.stdout or obj is sys.stderr:  # of any class: a notebook has its own
            return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
        if issubclass(type(obj), type | FunctionType):
            _import_submodule_of(obj)
        reduced: Any = super().reducer_override(obj)
        return _with_slots(obj, reduced) if _is_class_by_value(obj, reduced) else reduced


class _PlanPickler(_Pickler):
    def __init__(self, file: io.BytesIO, buffer_callback: BufferCallback | None) -> None:
        super().__init__(file, buffer_callback)
        self.classes: list[type] = []
        self.modules: set[str] = set()
        self._files: dict[int, MappedFile | None] = {}

    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), np.ndarray):
            mapped = reduce_mapped(obj, self._files)
            if mapped is not None:
                return mapped
        reduced = super().reducer_override(obj)
        if reduced is NotImplemented and _is_proxy(obj):
            return _reduce_proxy(obj)
        if issubclass(type(obj), _NAMED_TYPES) and reduced is NotImplemented:
            self.modules.add(str(obj.__module__))
        elif issubclass(type(obj), ModuleType):
            self.modules.add(obj.__name__)
        if not _is_class_by_value(obj, reduced):
            return reduced
        self.classes.append(obj)
        make, arguments, *rest = reduced
        return _register, (_key_for(obj), make, arguments), *rest


@final
class _ReplacingPickler(_PlanPickler):
    """Replaces long lists. A class of its own, as it calls a function for every object."""

    def __init__(
        self, file: io.BytesIO, buffer_callback: BufferCallback | None, replace_list: ReplaceList
    ) -> None:
        super().__init__(file, buffer_callback)
        self._replace_list = replace_list

    def persistent_id(self, obj: Any) -> object:
        if type(obj) is not list:
            return None
        items = cast("list[Any]", obj)
        return self._replace_list(items) if len(items) >= MIN_RECORDS else None


@final
class _PlanUnpickler(pickle.Unpickler):
    def persistent_load(self, pid: Any) -> Any:
        return pid  # what replaces a list is loaded as a list


class _ElementPickler(_Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), type):
            key = _KEYS.get(obj)
            if key in _PARENT_KEYS:
                return _class_of, (key,)
        return super().reducer_override(obj)


def _import_submodule_of(value: object) -> None:
    """Import the submodule in which a class or a function is defined, by its `__module__`.

    If that module is not loaded, cloudpickle takes the class for a dynamic one and sends it by
    value. But `np.recarray` names `numpy.rec`, which is rarely imported.
    """
    module = getattr(value, "__module__", None)
    if module in sys.modules or not isinstance(module, str):
        return
    package, is_inside, _ = module.partition(".")
    if is_inside and package in sys.modules:  # only submodules: others may be the user's script
        with suppress(Exception):
            importlib.import_module(module)


def _is_proxy(value: object) -> bool:
    """Return whether an object forwards attributes and is pickled by default.

    While it is loaded, pickle looks for `__setstate__`. `__getattr__` then asks for the attribute
    that holds the target, which is not set yet, and so for itself, without end. The lazy modules
    of Keras are an example.
    """
    kind = type(value)
    return (
        getattr(kind, "__getattr__", None) is not None
        and not issubclass(kind, type)
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind not in copyreg.dispatch_table
        and getattr(kind, "__setstate__", None) is None
    )


def _reduce_proxy(value: Any) -> Any:
    """Reduce an object so that loading it sets its state without looking for `__setstate__`."""
    make, arguments, *state = value.__reduce_ex__(_PROTOCOL)
    if not state or state[0] is None:
        return make, arguments
    return make, arguments, state[0], *(state[1:3] or (None, None)), _set_state


def _is_class_by_value(obj: object, reduced: Any) -> bool:
    """Return whether a class is sent by value: it has a state then. `NoneType` has none."""
    return issubclass(type(obj), type) and reduced is not NotImplemented and len(reduced) > 2


def _with_slots(kind: type, reduced: Reduction) -> Reduction:
    """Create the copy of a class with its slots, which cloudpickle (3.1) only sets afterwards.

    Without them, instances of the copy have a `__dict__`, and a state that the original refuses.
    """
    own = vars(kind)
    if "__slots__" not in own or issubclass(kind, tuple):  # a tuple has only empty slots
        return reduced
    make, arguments, *rest = reduced
    slots = {"__slots__": own["__slots__"]}

    def with_slots(argument: Any) -> Any:
        if type(argument) is not dict or "__module__" not in argument:
            return cast(Any, argument)
        return {**cast("dict[str, Any]", argument), **slots}  # the namespace of the class

    return make, tuple(map(with_slots, arguments)), *rest


def _key_for(kind: type) -> str:
    with _LOCK:
        key = _KEYS.get(kind)
        if key is None:
            key = _KEYS[kind] = uuid.uuid4().hex
            _CLASSES[key] = kind
        return key


# Functions that pickles refer to by name


def _register(key: str, make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """Create the copy of a class, and register it under the key of the parent."""
    kind = make(*arguments)
    with _LOCK:
        _KEYS[kind] = key
        _CLASSES[key] = kind
        _PARENT_KEYS.add(key)
    return kind


def _class_of(key: str) -> type:
    return _CLASSES[key]


def _set_state(value: object, state: Any) -> None:
    """Set the attributes of an object: a dict, or a pair of dicts of which one has the slots."""
    parts = cast("tuple[dict[str, Any] | None, ...]", state if type(state) is tuple else (state,))
    for attributes in parts:
        for name, attribute in (attributes or {}).items():
            object.__setattr__(value, name, attribute)
