"""What the columns of a table are, from some of its records or from all of them."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import final

from gristmill._base.trees.columns import Columns
from gristmill._data.statistics.column_summary import ColumnSummary, summarize_column
from gristmill._data.statistics.leaves import columns_of, columns_of_arrays
from gristmill.types import Element


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TableSummary:
    """What the columns of some records are, as a value that can be merged.

    >>> table = summarize_table([{"x": 1, "y": "a"}, {"x": 2}])
    >>> table.num_records, list(table.columns), table.num_missing("y")
    (2, ['x', 'y'], 1)
    """

    num_records: int
    columns: Mapping[str, ColumnSummary]
    num_nested: Mapping[str, int]
    """How many values are trees with columns of their own, such as dicts, by path."""

    def num_expected(self, name: str) -> int:
        """Return how many values a column has if none is missing.

        That is one for each record, or the number of the items in lists.
        """
        if "[*]" in name:
            return self.columns[name].num_values + self.num_nested.get(name, 0)
        return self.num_records

    def num_missing(self, name: str) -> int:
        """Return how many values of a column are left out, null or, if they are numbers, NaN."""
        column = self.columns[name]
        num_nan = 0 if column.has_axes or column.numbers is None else column.numbers.num_nan
        num_present = column.num_values - column.num_null + self.num_nested.get(name, 0)
        return self.num_expected(name) - num_present + num_nan

    def num_missing_inside(self, name: str) -> int:
        """Return how many numbers are NaN in the arrays of a column, which are not missing."""
        column = self.columns[name]
        return column.numbers.num_nan if column.has_axes and column.numbers is not None else 0

    def merge(self, other: "TableSummary") -> "TableSummary":
        """Return the summary of the records of both."""
        columns = dict(self.columns)
        for name, column in other.columns.items():
            columns[name] = columns[name].merge(column) if name in columns else column
        return TableSummary(
            num_records=self.num_records + other.num_records,
            columns=columns,
            num_nested=Counter(self.num_nested) + Counter(other.num_nested),
        )


def summarize_table(block: Columns | Iterable[Element]) -> TableSummary:
    """Return the summary of some records."""
    nested = Counter[str]()
    if isinstance(block, Columns):
        columns = columns_of_arrays(block)
        num_records = len(block)
    else:
        records = list(block)
        columns, num_records = columns_of(records, nested), len(records)
    return TableSummary(
        num_records=num_records,
        columns={name: summarize_column(column) for name, column in columns.items()},
        num_nested=nested,
    )
