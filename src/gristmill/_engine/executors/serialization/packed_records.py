"""Records of a Python list in shared memory, of which a worker loads only those that it reads.

A list of a million strings or dicts takes seconds to pickle and load as a whole, and every worker
would hold all of it. Packed, a few records at a time are pickled, and strings are joined. That
takes less time than one pickle of the whole list, and all workers map the same memory.
"""

import io
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._engine.executors.serialization.arrays import MappedFile, reduce_mapped
from gristmill.types import Element

MIN_RECORDS = 1000
"""Shorter lists are sent as they are."""

RECORDS_PER_CHUNK = 8
"""Loading a chunk costs 1 to 2 us for strings and dicts; smaller ones take longer to pickle."""

STRINGS_PER_CHUNK = 4096
"""Strings that are joined at a time: as many as fit a cache, half of the time of all at once."""

MAX_ARRAY_BYTES = 65_536
"""Lists of larger arrays are sent as they are: the arrays go to shared memory without a copy."""

_SAMPLE_SIZE = 256
"""How many records are examined for objects that they share."""

_MAX_COPIED_BYTES = 256
"""How much of a record may be an object that others refer to, such as the name of a class."""

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

    @property
    def arrays(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """The memory of the records, and where each chunk ends."""
        return self._data, self._ends

    def on_arrays(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> "PackedRecords":
        """Return the same records on other arrays, which have the same content."""
        return PackedRecords(self._kind, self._length, data, ends)

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

    def __iter__(self) -> Iterator[Element]:
        for number in range(len(self._ends)):
            yield from self._load(number)

    def _load(self, number: int) -> list[Element]:
        start = int(self._ends[number - 1]) if number else 0
        return pickle.loads(self._data[start : int(self._ends[number])].data)

    def __reduce__(self) -> tuple[Callable[..., "PackedRecords"], tuple[object, ...]]:
        return PackedRecords, (self._kind, self._length, self._data, self._ends)

    def __repr__(self) -> str:  # of the list, as errors in a worker name it
        return f"{self._kind}(<{self._length} records>)"


@final
class PackedStrings:
    """Random access to the strings or bytes of a list, on memory that workers share.

    >>> packed = pack_records(["a", "bc"] * 500)
    >>> len(packed), packed[999]
    (1000, 'bc')
    """

    def __init__(
        self, kind: str, data: NDArray[np.uint8], ends: NDArray[np.int64], *, is_text: bool
    ):
        self._kind = kind
        self.arrays = data, ends
        """The memory of the strings, and where each one ends."""
        self._data, self._ends = data.data, ends.data
        self._is_text = is_text

    def on_arrays(self, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> "PackedStrings":
        """Return the same strings on other arrays, which have the same content."""
        return PackedStrings(self._kind, data, ends, is_text=self._is_text)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str | bytes:
        ends = self._ends
        record = self._data[ends[index - 1] if index else 0 : ends[index]]
        return str(record, "utf-8", "surrogatepass") if self._is_text else bytes(record)

    def __iter__(self) -> Iterator[str | bytes]:
        start = 0
        for first in range(0, len(self), STRINGS_PER_CHUNK):
            ends = self._ends[first : first + STRINGS_PER_CHUNK].tolist()
            chunk = bytes(self._data[start : ends[-1]])
            if self._is_text and chunk.isascii():  # so that bytes and characters are the same
                text, origin = chunk.decode("ascii"), start
                for end in ends:
                    yield text[start - origin : end - origin]
                    start = end
            else:
                yield from map(self.__getitem__, range(first, first + len(ends)))
                start = ends[-1]

    def __reduce__(self) -> tuple[Callable[..., "PackedStrings"], tuple[object, ...]]:
        return _packed_strings, (self._kind, *self.arrays, self._is_text)

    def __repr__(self) -> str:  # of the list, as errors in a worker name it
        return f"{self._kind}(<{len(self)} records>)"


Packed: TypeAlias = PackedRecords | PackedStrings
"""The records of a list on memory that workers share."""


def _packed_strings(
    kind: str, data: NDArray[np.uint8], ends: NDArray[np.int64], is_text: bool
) -> PackedStrings:
    return PackedStrings(kind, data, ends, is_text=is_text)


def pack_records(source: object, *, kind: str | None = None) -> Packed | None:
    """Pack the records of a list or tuple.

    Args:
        source: Any source.
        kind: The name of its type in messages; `None` for that of `source`.

    Returns:
        The packed records; `None` if the source is not a long list of plain data. Records whose
        classes may differ in a worker (those of a script, for example) are not plain data. Nor are
        records packed that share large objects, which each of them would have a copy of.
    """
    if type(source) not in (list, tuple):
        return None
    records = cast("list[Any] | tuple[Any, ...]", source)
    if len(records) < MIN_RECORDS or _share_large_objects(records):
        return None
    kind = kind or type(records).__name__
    packed = _pack_strings(records, kind)
    return _pack_plain(records, kind) if packed is None else packed


def _share_large_objects(records: Sequence[Any]) -> bool:
    """Estimate from a sample whether the records are much larger one by one than together."""
    sample = records[:: len(records) // _SAMPLE_SIZE]
    try:
        together = _plain_size(sample)
        alone = sum(map(_plain_size, sample))
    except Exception:  # they are not plain data
        return False
    return alone > 4 * together + _MAX_COPIED_BYTES * len(sample)


def _plain_size(value: object) -> int:
    file = io.BytesIO()
    _PlainPickler(file, 5).dump(value)
    return file.tell()  # words: a method of `io`


def _pack_strings(records: Sequence[Any], kind: str) -> PackedStrings | None:
    """Pack the records of a list or tuple; return `None` if they are not all strings, or bytes."""
    first = {*map(type, records[:1])}
    is_text = first == {str}
    if not is_text and first != {bytes}:
        return None
    data = bytearray()
    sizes = np.empty(len(records), np.int64)
    for start in range(0, len(records), STRINGS_PER_CHUNK):
        chunk = records[start : start + STRINGS_PER_CHUNK]
        if {*map(type, chunk)} != first:
            return None
        if is_text:
            text = "".join(chunk)
            data += text.encode("utf-8", "surrogatepass")
            if not text.isascii():
                chunk = [record.encode("utf-8", "surrogatepass") for record in chunk]
        else:
            data += b"".join(chunk)
        sizes[start : start + len(chunk)] = [*map(len, chunk)]
    return PackedStrings(kind, np.frombuffer(data, np.uint8), np.cumsum(sizes), is_text=is_text)


def _pack_plain(records: Sequence[Any], kind: str) -> PackedRecords | None:
    """Pack the records of a list or tuple; return `None` if they are not plain data."""
    file = io.BytesIO()
    ends: list[int] = []
    pickler = _PlainPickler(file, 5)  # one for all chunks: a new one costs as much as a chunk
    try:
        for start in range(0, len(records), RECORDS_PER_CHUNK):
            pickler.dump(list(records[start : start + RECORDS_PER_CHUNK]))
            pickler.clear_memo()  # each chunk is loaded by itself
            ends.append(file.tell())  # words: a method of `io`
    except Exception:  # the general pickler sends it, or explains why it cannot be sent
        return None
    data = np.frombuffer(file.getbuffer(), dtype=np.uint8)
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
