"""Sources of plans that are long lists: each is packed once, for all nodes, workers and iterators.

Whether a list has changed since the last iterator is found out by packing it again. That takes a
tenth of a second for a million strings, so where it is possible, the list is compared instead.
"""

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast, final

from numpy.typing import NDArray

from gristmill._engine.executors.serialization.packed_records import (
    PackedRecords,
    PackedStrings,
    pack_records,
)

MoveArray: TypeAlias = Callable[[NDArray[Any]], NDArray[Any]]
"""Returns an array with the same content in other memory."""

_IMMUTABLE: set[type] = {str, bytes, int, float, complex, bool, type(None)}


@final
@dataclass(frozen=True)
class PackedSource:
    """A source whose records cannot change, as it was when it was packed."""

    source: Sequence[Any]
    """The source, to which records may have been added since, or of which some were replaced."""
    records: tuple[Any, ...]
    packed: PackedRecords | PackedStrings

    @property
    def is_current(self) -> bool:
        """Whether the source has the same records, the very same objects."""
        return len(self.source) == len(self.records) and all(
            map(operator.is_, self.source, self.records)
        )

    def moved(self, move: MoveArray) -> "PackedSource":
        """Return this with the packed records in other memory."""
        return replace(self, packed=self.packed.on_arrays(*map(move, self.packed.arrays)))


@final
class PackedSources:
    """Packs sources, each once.

    Args:
        earlier: What was packed for earlier iterators, and is used again where it is current.
    """

    def __init__(self, earlier: Iterable[PackedSource] = ()) -> None:
        self._earlier = {id(one.source): one for one in earlier}
        self._packed: dict[int, PackedRecords | PackedStrings | None] = {}
        self.unchangeable: list[PackedSource] = []
        """The sources whose records cannot change."""

    def pack(self, source: object) -> PackedRecords | PackedStrings | None:
        """Return the packed records of a source; `None` if it is sent as it is."""
        key = id(source)
        if key not in self._packed:
            self._packed[key] = self._pack(source)
        return self._packed[key]

    def _pack(self, source: object) -> PackedRecords | PackedStrings | None:
        earlier = self._earlier.get(id(source))
        if earlier is not None and earlier.is_current:
            self.unchangeable.append(earlier)
            return earlier.packed
        packed = pack_records(source)
        if packed is not None:
            given = cast("Sequence[Any]", source)
            records = tuple(given)
            if isinstance(packed, PackedStrings) or _are_immutable(records):
                self.unchangeable.append(PackedSource(given, records, packed))
        return packed


def _are_immutable(records: tuple[Any, ...]) -> bool:
    """Return whether all records are numbers and strings, or flat tuples of those."""
    kinds: set[type] = {*map(type, records)}
    if tuple in kinds:
        tuples = cast("Iterable[tuple[Any, ...]]", filter(_is_tuple, records))
        kinds = (kinds - {tuple}) | {*map(type, itertools.chain.from_iterable(tuples))}
    return kinds <= _IMMUTABLE


def _is_tuple(record: object) -> bool:
    return type(record) is tuple
