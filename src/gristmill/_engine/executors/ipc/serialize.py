"""Pickles between the parent and its workers, in which classes keep their identity.

What is defined in a script, a notebook or a function cannot be imported in a worker, so it goes
there by value, and the worker has a copy of each such class. Left alone, what the worker sends back
would be of that copy, or would write the copy over the original. So each class goes with a key:

    parent    class Box  ── key, by value ──▶  worker: a copy of Box, noted as `key`
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
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pickle import PickleBuffer
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final
from weakref import WeakKeyDictionary, WeakValueDictionary

import cloudpickle  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from gristmill._engine.executors.ipc.arrays import (
    MappedFile,
    Reduction,
    reduce_array,
    reduce_mapped,
    reduce_memoryview,
    reduce_plain_subclass,
)
from gristmill._engine.executors.ipc.unpicklable import find_unpicklable
from gristmill.errors import UnsendableError

if TYPE_CHECKING:
    CloudPickler = pickle.Pickler  # which it is; it has no types of its own
else:
    CloudPickler = cloudpickle.Pickler

BufferCallback: TypeAlias = Callable[[PickleBuffer], object]
"""Takes the memory of an array; what is true means: no, keep it in the pickle."""

PLAN_IN_BAND_BYTES = 1024
"""Smaller arrays stay in the pickle: copying them costs less than accounting for a buffer."""

IN_BAND_BYTES = 65_536
"""Smaller arrays of an element get memory of their own: who keeps only the labels of every batch
must not thereby keep the images, which are on the same shared memory. The copy takes microseconds.
"""

_PROTOCOL = 5

_KEYS: WeakKeyDictionary[type, str] = WeakKeyDictionary()
_CLASSES: WeakValueDictionary[str, type] = WeakValueDictionary()
_ADOPTED: set[str] = set()
"""The keys that the parent of this process knows."""
_LOCK = threading.Lock()


@final
class PlanBytes(bytes):
    """A pickled plan, which keeps the classes in it alive for what comes back from the workers."""

    classes: tuple[type, ...] = ()


def dump_plan(*things: Any, buffer_callback: BufferCallback | None = None) -> PlanBytes:
    """Pickle what a parent sends to its workers. Hold on to the result while they run.

    Several things share what they have in common, such as the globals of the script, also where
    they are loaded one by one. Arrays on memory-mapped files go as the names of those files.

    >>> load(dump_plan(lambda x: x + 1))(1)
    2
    """
    file = io.BytesIO()
    pickler = _PlanPickler(file, buffer_callback)
    for thing in things:
        pickler.dump(thing)
    payload = PlanBytes(file.getvalue())
    payload.classes = tuple(pickler.classes)
    return payload


def dump(thing: Any) -> bytes:
    """Pickle what a worker sends to its parent, in one piece.

    >>> load(dump({"x": np.arange(3)}))
    {'x': array([0, 1, 2])}
    """
    try:
        return _dump_fast(thing, None)
    except Exception:  # whatever it is: the other way says it better, or does without
        return _dump_carefully(thing, None)


@final
class Sender:
    """What a worker sends elements with.

    >>> payload, buffers = Sender().dump({"x": np.zeros(10_000), "y": "small"})
    >>> len(buffers), load(payload, buffers)["x"].shape
    (1, (10000,))
    """

    def __init__(self) -> None:
        self._is_careful = False

    def dump(self, thing: Any, *, name: str = "element") -> tuple[bytes, list[PickleBuffer]]:
        """Pickle a thing, and give the memory of its larger arrays separately.

        Raises:
            UnsendableError: which part of it, seen from `name`, cannot be sent.
        """
        if not self._is_careful:
            buffers: list[PickleBuffer] = []
            try:
                return _dump_fast(thing, _from_elements(buffers)), buffers
            except Exception:  # mostly a class of the script; then that will come again
                pass
        buffers = []
        try:
            payload = _dump_carefully(thing, _from_elements(buffers))
        except Exception as error:
            raise _unsendable(name, thing, error) from None  # it says all that pickle said
        self._is_careful = True
        return payload, buffers


def load(payload: bytes | memoryview | NDArray[np.uint8], buffers: Iterable[Any] = ()) -> Any:
    """Give what was pickled. A buffer for an array that was writeable must be so, too."""
    return pickle.loads(cast(Any, payload), buffers=buffers)


def load_each(payload: NDArray[np.uint8], buffers: Iterable[Any]) -> Iterator[Any]:
    """Load one after the other what was pickled together."""
    file = io.BytesIO(payload.data)
    unpickler = pickle.Unpickler(file, buffers=iter(buffers))
    while file.tell() < len(payload):
        yield unpickler.load()


def keys_of(kinds: Iterable[type]) -> list[str]:
    """Give what the workers know classes by that were sent to them by value."""
    return [_key_for(kind) for kind in kinds]


def classes_of(keys: Iterable[str]) -> list[type]:
    """Give, in a worker, its copies of the classes that the parent sent under these keys."""
    return [_CLASSES[key] for key in keys]


def out_of_band(buffers: list[PickleBuffer], *, smallest: int) -> BufferCallback:
    """Give a callback that collects the memory of arrays from so many bytes on."""

    def collect(buffer: PickleBuffer) -> bool:
        if buffer.raw().nbytes < smallest:
            return True
        buffers.append(buffer)
        return False

    return collect


def _from_elements(buffers: list[PickleBuffer]) -> BufferCallback:
    return out_of_band(buffers, smallest=IN_BAND_BYTES)


def _dump_fast(thing: Any, buffer_callback: BufferCallback | None) -> bytes:
    file = io.BytesIO()
    pickler = pickle.Pickler(file, _PROTOCOL, buffer_callback=buffer_callback)
    pickler.dispatch_table = {**copyreg.dispatch_table, **_REDUCERS}
    pickler.dump(thing)
    return file.getvalue()


def _dump_carefully(thing: Any, buffer_callback: BufferCallback | None) -> bytes:
    file = io.BytesIO()
    _ElementPickler(file, buffer_callback).dump(thing)
    return file.getvalue()


def _unsendable(name: str, thing: Any, error: Exception) -> UnsendableError:
    def failure(part: Any) -> Exception | None:
        try:
            _dump_carefully(part, _discard)
        except Exception as error:
            return error
        return None

    culprit = find_unpicklable(name, thing, error, failure)
    return UnsendableError(
        f"A worker cannot send what it made: {culprit.tell()}. "
        "Give arrays, numbers, text or what can be pickled, or use `worker_count=0`."
    )


def _discard(_: PickleBuffer) -> None:
    """Take the memory out of a pickle that nobody will load."""


def _refuse_file(file: Any) -> Reduction:
    """Refuse an open file, which cloudpickle would copy, all of it, without a word.

    Its place in the file is a state that the workers would not share.
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
        if obj is sys.stdout or obj is sys.stderr:  # of whatever kind: a notebook has its own
            return getattr, (sys, "stdout" if obj is sys.stdout else "stderr")
        if issubclass(type(obj), type | FunctionType):
            _load_home(obj)
        reduced: Any = super().reducer_override(obj)
        return _with_slots(obj, reduced) if _is_by_value(obj, reduced) else reduced


class _PlanPickler(_Pickler):
    def __init__(self, file: io.BytesIO, buffer_callback: BufferCallback | None) -> None:
        super().__init__(file, buffer_callback)
        self.classes: list[type] = []
        self._files: dict[int, MappedFile | None] = {}

    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), np.ndarray):
            mapped = reduce_mapped(obj, self._files)
            if mapped is not None:
                return mapped
        reduced = super().reducer_override(obj)
        if not _is_by_value(obj, reduced):
            return reduced
        self.classes.append(obj)
        make, arguments, *rest = reduced
        return _adopt, (_key_for(obj), make, arguments), *rest


class _ElementPickler(_Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if issubclass(type(obj), type):
            key = _KEYS.get(obj)
            if key in _ADOPTED:
                return _class_of, (key,)
        return super().reducer_override(obj)


def _load_home(thing: Any) -> None:
    """Import the submodule that a class or a function says it is from.

    To cloudpickle what is from a module that is not loaded was made up, and goes by value. But
    `np.recarray` is from `numpy.rec`, which hardly anyone imports.
    """
    module: Any = getattr(thing, "__module__", None)
    if module in sys.modules or not isinstance(module, str):
        return
    package, is_inside, _ = module.partition(".")
    if is_inside and package in sys.modules:  # not any module: it may be the script under a name
        with suppress(Exception):
            importlib.import_module(module)


def _is_by_value(obj: Any, reduced: Any) -> bool:
    """Tell a class that goes by value: with a state. `NoneType` and its like go without."""
    return issubclass(type(obj), type) and reduced is not NotImplemented and len(reduced) > 2


def _with_slots(kind: type, reduced: Reduction) -> Reduction:
    """Have the copy of a class made with its slots, which cloudpickle (3.1) only sets afterwards.

    Without them the copy's instances have a `__dict__`, and do not fit the original.
    """
    own = vars(kind)
    if "__slots__" not in own or issubclass(kind, tuple):  # a tuple has none to speak of
        return reduced
    make, arguments, *rest = reduced
    slots = {"__slots__": own["__slots__"]}

    def with_slots(argument: Any) -> Any:
        if type(argument) is not dict or "__module__" not in argument:
            return cast(Any, argument)
        return {**cast("dict[str, Any]", argument), **slots}  # with which the class's body begins

    return make, tuple(map(with_slots, arguments)), *rest


def _key_for(kind: type) -> str:
    with _LOCK:
        key = _KEYS.get(kind)
        if key is None:
            key = _KEYS[kind] = uuid.uuid4().hex
            _CLASSES[key] = kind
        return key


# What the other side calls. These names are in the pickles.


def _adopt(key: str, make: Callable[..., type], arguments: tuple[Any, ...]) -> type:
    """Make the copy of a class, and note what the parent knows it by."""
    kind = make(*arguments)
    with _LOCK:
        _KEYS[kind] = key
        _CLASSES[key] = kind
        _ADOPTED.add(key)
    return kind


def _class_of(key: str) -> type:
    return _CLASSES[key]
