"""Records of a Python list in shared memory, of which a worker loads only those that it reads.

A list of a million strings or dicts takes seconds to pickle and load as a whole, and every worker
would hold all of it. Packed, a few records at a time are pickled. That takes less time than one
pickle of the whole list, and all workers map the same memory.
"""

import io
import pickle
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._engine.executors.ipc.arrays import MappedFile, reduce_mapped
from gristmill.types import Element

MIN_RECORDS = 1000
"""Shorter lists are sent as they are."""

RECORDS_PER_CHUNK = 8
"""Loading a chunk costs 1 to 2 us for strings and dicts; smaller ones take longer to pickle."""

MAX_ARRAY_BYTES = 65_536
"""Lists of larger arrays are sent as they are: the arrays go to shared memory without a copy."""

_TAKEN = object()
"""Stands for a record of a loaded chunk that was returned: a transformation may change it."""


@final
class PackedRecords:
    """Random access to the records of a list, on memory that workers share.

    >>> packed = pack_records([{"name": "a"}] * 1000)
    >>> len(packed), packed[999]
    (1000, {'name': 'a'})
    """

    def __init__(self, kind: str, length: int, data: NDArray[np.uint8], ends: NDArray[np.int64]):
        self._kind = kind
        self._length = length
        self._data = data
        self._ends = ends
        self._loaded: tuple[int, list[Element]] = (-1, [])

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Element:
        number, offset = divmod(index, RECORDS_PER_CHUNK)
        loaded, records = self._loaded
        if loaded != number or records[offset] is _TAKEN:
            records = self._load(number)
            self._loaded = number, records
        record, records[offset] = records[offset], _TAKEN
        return record

    def _load(self, number: int) -> list[Element]:
        start = int(self._ends[number - 1]) if number else 0
        return pickle.loads(self._data[start : int(self._ends[number])].data)

    def __reduce__(self) -> tuple[Callable[..., "PackedRecords"], tuple[object, ...]]:
        return PackedRecords, (self._kind, self._length, self._data, self._ends)

    def __repr__(self) -> str:  # of the list, as errors in a worker name it
        return f"{self._kind}(<{self._length} records>)"


def pack_records(source: object) -> PackedRecords | None:
    """Pack the records of a list or tuple.

    Args:
        source: Any source.

    Returns:
        The packed records; `None` if the source is not a long list of plain data. Records whose
        classes may differ in a worker (those of a script, for example) are not plain data.
    """
    if type(source) not in (list, tuple):
        return None
    records = cast("list[Any] | tuple[Any, ...]", source)
    if len(records) < MIN_RECORDS:
        return None
    file = io.BytesIO()
    ends: list[int] = []
    try:
        for start in range(0, len(records), RECORDS_PER_CHUNK):
            _PlainPickler(file, 5).dump(list(records[start : start + RECORDS_PER_CHUNK]))
            ends.append(file.tell())  # words: a method of `io`
    except Exception:  # the general pickler sends it, or explains why it cannot be sent
        return None
    data = np.frombuffer(file.getbuffer(), dtype=np.uint8)
    kind = type(records).__name__
    return PackedRecords(kind, len(records), data, np.array(ends, dtype=np.int64))


@final
class _NotPlainError(Exception):
    """A record has to be pickled with more care."""


@final
class _PlainPickler(pickle.Pickler):
    """Pickles built-in types, those of the standard library, and arrays in memory."""

    def reducer_override(self, obj: Any) -> Any:
        is_definition = isinstance(obj, type | FunctionType | BuiltinFunctionType)
        home = str(obj.__module__ if is_definition else type(obj).__module__)
        if home.partition(".")[0] not in _PLAIN_PACKAGES:
            raise _NotPlainError
        if isinstance(obj, np.ndarray):
            array = cast("NDArray[Any]", obj)
            files: dict[int, MappedFile | None] = {}
            if array.nbytes > MAX_ARRAY_BYTES or reduce_mapped(array, files) is not None:
                raise _NotPlainError
        return NotImplemented


_PLAIN_PACKAGES = (sys.stdlib_module_names | {"numpy"}) - {"__main__", "io", "_io", "tempfile"}
