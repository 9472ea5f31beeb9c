"""Records that are the rows of an Arrow table, which some formats store without reading each."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol, final, overload, runtime_checkable

from gristmill._data.sources.tables.arrow_values import ArrowTable, to_rows
from gristmill.types import Element, Span


@runtime_checkable
class SupportsReadTable(Protocol):
    """A source whose records are the rows of a table."""

    def read_table(self, indices: Span, /) -> Any:
        """Return consecutive records as a table of pyarrow."""
        ...


@final
class TableRecords(Sequence[Element]):
    """The rows of a table, as dicts that are created when the first of them is requested.

    >>> import pyarrow as pa
    >>> records = TableRecords(pa.table({"x": [1, 2]}))
    >>> len(records), records[1]
    (2, {'x': np.int64(2)})
    """

    def __init__(self, table: ArrowTable) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: int) -> Element: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Element]: ...
    def __getitem__(self, index: int | slice) -> Element:
        return self._rows[index]

    @cached_property
    def _rows(self) -> list[Element]:
        return to_rows(self.table)
