"""Long lists of plans: each is packed once, for all nodes, workers and iterators.

Whether a list has changed since the last iterator is found out by packing it again. That takes a
tenth of a second for a million strings, so where it is possible, the list is compared instead.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._engine.executors.serialization.array_snapshot import (
    AnyArray,
    ArraySnapshot,
    snapshot,
)
from gristmill._engine.executors.serialization.packed_list import ListReference
from gristmill._engine.executors.serialization.packed_records import (
    MIN_RECORDS,
    Packed,
    pack_records,
)

MoveArray: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""Returns an array with the same content in other memory."""

_IMMUTABLE: frozenset[type] = frozenset(
    {str, bytes, int, float, complex, bool, type(None)}
    | {PosixPath, WindowsPath, PurePosixPath, PureWindowsPath}
    | ({*np.sctypeDict.values()} - {np.object_, np.void})
)

_MAX_DEPTH = 4
"""How deep tuples of tuples are searched for what can change."""


@final
@dataclass(frozen=True)
class PackedSource:
    """A source or list as it was when it was packed, with which it can be compared quickly.

    Its records cannot change, except for the content of arrays in them.
    """

    source: Sequence[Any]
    """The source, to which records may have been added since, or of which some were replaced."""
    records: tuple[Any, ...]
    packed: Packed
    arrays: ArraySnapshot | None = None
    """The arrays in the records, if there are any."""

    @property
    def is_current(self) -> bool:
        """Whether the source has the same records, the very same objects, with the same arrays."""
        return (
            len(self.source) == len(self.records)
            and all(map(operator.is_, self.source, self.records))
            and (self.arrays is None or self.arrays.is_current)
        )

    def moved(self, move: MoveArray) -> "PackedSource":
        """Return this with the packed records in other memory."""
        return replace(self, packed=self.packed.on_arrays(*map(move, self.packed.arrays)))


@final
class PackedSources:
    """Packs sources and lists in the objects of a plan, each once.

    Args:
        earlier: What was packed for earlier iterators, and is used again where it is current;
            `None` if there were none.
    """

    def __init__(self, earlier: Iterable[PackedSource] | None = None) -> None:
        self._earlier = {id(one.source): one for one in earlier or ()}
        self._packed: dict[int, Packed | None] = {}
        self._found: dict[int, tuple[object, PackedSource | None]] = {}
        """By id, with the object, whose id is not used again as long as it is alive."""
        self._references: dict[int, ListReference] = {}
        self.finds_lists = earlier is None or bool(self._earlier)
        """Whether to look for lists in objects: not if there were none before.

        To look for them takes a third longer, and the plan is probably the same again.
        """
        self.comparable: list[PackedSource] = []
        """What the next iterator compares, instead of packing it again."""

    def pack(self, source: object) -> Packed | None:
        """Return the packed records of a source; `None` if it is sent as it is."""
        key = id(source)
        if key not in self._packed:
            found = self._find(source, may_have_arrays=True)
            self._packed[key] = pack_records(source) if found is None else found.packed
        return self._packed[key]

    def refer(self, items: list[Any]) -> ListReference | None:
        """Return what is pickled in place of a list in an object; `None` for the list itself.

        Only lists whose items cannot change are packed: a worker has copies of them.
        """
        found = self._find(items, may_have_arrays=False)
        if found is None or found.arrays is not None:
            return None
        return self._references.setdefault(id(items), ListReference(found.packed))

    def _find(self, source: object, *, may_have_arrays: bool) -> PackedSource | None:
        """Return what is packed of a source that can be compared; `None` for others."""
        key = id(source)
        if key not in self._found:
            found = self._earlier.get(key)
            if found is None or not found.is_current:
                found = _pack_comparable(source, may_have_arrays=may_have_arrays)
            if found is not None:
                self.comparable.append(found)
            self._found[key] = source, found
        return self._found[key][1]


def _pack_comparable(source: object, *, may_have_arrays: bool) -> PackedSource | None:
    if type(source) not in (list, tuple):
        return None
    given = cast("Sequence[Any]", source)
    if len(given) < MIN_RECORDS or _find_arrays(given[:1]) is None:
        return None
    records = tuple(given)
    arrays = _find_arrays(records)
    if arrays is None or (arrays and not may_have_arrays):
        return None
    content = snapshot(arrays) if arrays else None
    if arrays and content is None:
        return None
    packed = pack_records(records, kind=type(given).__name__)
    return None if packed is None else PackedSource(given, records, packed, content)


def _find_arrays(records: Sequence[Any]) -> list[AnyArray] | None:
    """Return the arrays in records; `None` if anything else in them can change.

    Numbers, strings, paths and the like cannot change, nor can tuples of those.
    """
    arrays: list[AnyArray] = []
    for _ in range(_MAX_DEPTH):
        kinds: set[type] = {*map(type, records)}
        if not kinds <= _IMMUTABLE | {tuple, np.ndarray}:
            return None
        if np.ndarray in kinds:
            arrays += filter(_is_array, records)
        if tuple not in kinds:
            return arrays
        tuples = records if len(kinds) == 1 else filter(_is_tuple, records)
        records = [*itertools.chain.from_iterable(tuples)]
    return None


def _is_array(record: object) -> bool:
    return type(record) is np.ndarray


def _is_tuple(record: object) -> bool:
    return type(record) is tuple
