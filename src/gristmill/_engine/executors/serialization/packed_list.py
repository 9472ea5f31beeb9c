"""Lists inside the objects of a plan, which a worker reads from memory that all workers map."""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn, cast, final

from gristmill._engine.executors.serialization.packed_records import Packed

MIN_MAPPED_RECORDS = 100_000
"""Each worker loads shorter lists as plain lists: they take some 20 MB, and are fast to read."""


@final
class ListReference:
    """Stands in a pickled plan for a list, as which it is loaded."""

    def __init__(self, packed: Packed) -> None:
        self._packed = packed

    def __reduce__(self) -> tuple[Callable[[Packed], list[Any]], tuple[Packed]]:
        return load_list, (self._packed,)


def load_list(packed: Packed) -> list[Any]:
    """Return the list of packed records: a plain one, unless it is so long that memory matters."""
    return list(packed) if len(packed) < MIN_MAPPED_RECORDS else PackedList.of(packed)


@final
class _NotLoaded:
    """Fills the storage of a list whose items are not loaded. Python code never gets it.

    Some libraries read the storage of a list without calling its methods. Whatever they do with
    this, it is an error, never wrong data.
    """

    def _refuse(self, *args: object) -> NoReturn:
        raise TypeError(
            "A library reads the items of a list directly, but a worker process loads the items of "
            f"a list of {MIN_MAPPED_RECORDS:,} or more only when Python code accesses them. Pass "
            "`list(items)` to the library, or make it an array."
        )

    __bool__ = __int__ = __float__ = __complex__ = __index__ = __bytes__ = __reduce_ex__ = _refuse
    __len__ = __iter__ = __getitem__ = __contains__ = __call__ = _refuse
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = _refuse

    def __repr__(self) -> str:  # for the error message of that library
        return "<an item that is not loaded: pass `list(items)`, or an array>"


_NOT_LOADED = _NotLoaded()
_LOADING = threading.RLock()


def _after_loading(name: str) -> Any:
    """Return a method of `list` that first loads the items of all lists that it is called with."""
    method = getattr(list, name)

    @functools.wraps(method)
    def call(self: "PackedList", *args: Any, **options: Any) -> Any:
        for value in (self, *args):
            if type(value) is PackedList:
                value.load()
        return method(self, *args, **options)

    return call


@final
class PackedList(list[Any]):
    """A list whose items are in packed records, until a method needs all of them.

    Reading an item loads that item. Whatever changes, searches or compares the list loads all
    items first, and from then on it is a list like any other. Items cannot be changed themselves
    (strings, numbers, tuples of them), so that it does not matter how often one is loaded.

    >>> from gristmill._engine.executors.serialization.packed_records import pack_records
    >>> items = PackedList.of(pack_records([("a", 1), ("b", 2)] * 500))
    >>> items[1], items[-2:], len(items), isinstance(items, list)
    (('b', 2), [('a', 1), ('b', 2)], 1000, True)
    """

    __slots__ = ("_packed",)
    _packed: Packed | None

    def __new__(cls, items: Iterable[Any] = ()) -> Any:
        """Return a plain list: libraries call the type of a list to make another one."""
        return list(items)

    @staticmethod
    def of(packed: Packed) -> "PackedList":
        """Return a list of packed records."""
        made: PackedList = list.__new__(PackedList)
        made._fill(packed)
        return made

    def _fill(self, packed: Packed) -> None:
        super().append(_NOT_LOADED)
        super().__imul__(len(packed))
        self._packed = packed

    def load(self) -> None:
        """Load all items."""
        with _LOADING:
            packed = self._packed
            if packed is not None:  # else another thread may already have changed them
                super().__setitem__(slice(None), list(packed))
                self._packed = None

    def __getitem__(self, index: Any) -> Any:
        packed = self._packed
        stored = super().__getitem__(index)  # or its error
        if packed is None:
            return stored
        where = cast("int | range", range(len(packed))[index])
        return packed[where] if isinstance(where, int) else [packed[number] for number in where]

    def __iter__(self) -> Iterator[Any]:
        packed = self._packed
        return super().__iter__() if packed is None else self._iterate(packed)

    def _iterate(self, packed: Packed) -> Iterator[Any]:
        position = 0
        for item in packed:
            if self._packed is None:  # it is being changed
                break
            yield item
            position += 1
        while position < len(self):
            yield self[position]
            position += 1

    def copy(self) -> list[Any]:
        return list(self)

    def __reduce_ex__(self, protocol: object) -> Any:
        return list, (), None, iter(self)

    def __radd__(self, other: Any) -> Any:
        """Load the items: the other list will read them from the storage of this one."""
        self.load()
        return NotImplemented

    append = _after_loading("append")
    clear = _after_loading("clear")
    count = _after_loading("count")
    extend = _after_loading("extend")
    index = _after_loading("index")
    insert = _after_loading("insert")
    pop = _after_loading("pop")
    remove = _after_loading("remove")
    reverse = _after_loading("reverse")
    sort = _after_loading("sort")
    __add__ = _after_loading("__add__")
    __contains__ = _after_loading("__contains__")
    __delitem__ = _after_loading("__delitem__")
    __eq__ = _after_loading("__eq__")
    __ge__ = _after_loading("__ge__")
    __gt__ = _after_loading("__gt__")
    __iadd__ = _after_loading("__iadd__")
    __imul__ = _after_loading("__imul__")
    __le__ = _after_loading("__le__")
    __lt__ = _after_loading("__lt__")
    __mul__ = _after_loading("__mul__")
    __ne__ = _after_loading("__ne__")
    __repr__ = _after_loading("__repr__")
    __reversed__ = _after_loading("__reversed__")
    __rmul__ = _after_loading("__rmul__")
    __setitem__ = _after_loading("__setitem__")
