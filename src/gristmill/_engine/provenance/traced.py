"""An element together with the origins of its rows, as it passes through a traced plan."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, SupportsIndex, TypeAlias, final

from gristmill._data.sources.record_location import SupportsLocation
from gristmill._engine.provenance.origin import RecordOrigin
from gristmill.types import Element, RandomAccessDataSource

Row: TypeAlias = tuple[RecordOrigin, ...]
"""The records in one row, in order."""


@final
class Traced:
    """An element, and the records in each of its rows; one row if it is not a batch."""

    __slots__ = ("rows", "value")

    def __init__(self, value: Element, rows: tuple[Row, ...]) -> None:
        self.value = value
        self.rows = rows

    @property
    def row(self) -> Row:
        """The records of all rows, as those of one."""
        return self.rows[0] if len(self.rows) == 1 else tuple(chain.from_iterable(self.rows))

    def with_origins(self, change: Callable[[RecordOrigin], RecordOrigin]) -> "Traced":
        """Return the element with other origins."""
        return Traced(self.value, tuple(tuple(map(change, row)) for row in self.rows))


def value_of(element: Traced | None) -> Element:
    """Return an element without its origins. An absent element is not traced."""
    return None if element is None else element.value


def rows_of(element: Traced | None) -> tuple[Row, ...]:
    """Return the rows of an element: one without a record if it is absent."""
    return ((),) if element is None else element.rows


def row_of(element: Traced | None) -> Row:
    """Return the records of an element, as those of one row."""
    return () if element is None else element.row


def zipped(elements: Sequence[Traced | None]) -> Traced:
    """Return the tuple of some elements. Rows of batches of one size are joined one by one."""
    several = [rows_of(element) for element in elements]
    if len(set(map(len, several))) > 1:
        several = [(row_of(element),) for element in elements]
    rows = tuple(tuple(chain.from_iterable(row)) for row in zip(*several, strict=True))
    return Traced(tuple(map(value_of, elements)), rows)


@final
class TracedSource:
    """The records of a source with their origins. They are read only if their values are needed."""

    def __init__(
        self,
        source: RandomAccessDataSource[Element],
        *,
        label: str,
        number: int,
        needs_values: bool,
        has_absent: bool,
    ) -> None:
        """Trace a source.

        Args:
            source: The source.
            label: The source as states describe it.
            number: The number of the source in the plan.
            needs_values: Whether to read records.
            has_absent: Whether a record that is `None` is absent.
        """
        self._source = source
        self._label = label
        self._number = number
        self._needs_values = needs_values
        self._has_absent = has_absent

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: SupportsIndex) -> Traced | None:
        number = index.__index__()
        record = self._source[number] if self._needs_values else None
        if record is None and self._needs_values and self._has_absent:
            return None
        source: Any = self._source
        origin = RecordOrigin(
            source=self._label,
            source_number=self._number,
            index=number,
            epoch=None,
            position=None,
            location=source.location(number) if isinstance(source, SupportsLocation) else None,
        )
        return Traced(record, ((origin,),))


def at_position(element: Traced | None, position: int) -> Traced | None:
    """Return an element whose records have a position."""
    if element is None:
        return None
    return element.with_origins(lambda origin: replace(origin, position=position))
