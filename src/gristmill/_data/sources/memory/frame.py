"""A source over the frames of pandas and polars, and over the tables of pyarrow."""

import importlib
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex, TypeAlias, cast, final

import numpy as np

from gristmill._base.indices import as_indices, check_index, check_indices
from gristmill._base.trees.columns import Columns, as_numpy_index
from gristmill._data.sources.memory.series_column import SeriesColumn
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import AnyArray, Element, Span

_MAX_COLUMNS_IN_REPR = 3

_Column: TypeAlias = AnyArray | SeriesColumn


@final
class FrameSource:
    """Random access to the rows of a DataFrame or of an Arrow table, as dicts of its columns.

    A DataFrame of pandas or polars, and a `Table` or `RecordBatch` of pyarrow, can be passed
    wherever a source is expected; this class then reads it. Columns of numbers and times are not
    copied if the library itself holds them as one array, and if there are only such columns, the
    loader reads whole columns. In all other columns a null is `None`. The index of a pandas
    DataFrame is ignored; `frame.reset_index()` makes a column of it. The items of a Series, or of
    an Arrow array, are records themselves.

    >>> import pandas as pd
    >>> source = FrameSource(pd.DataFrame({"x": [1.5, 2.5], "name": ["a", None]}))
    >>> len(source), source[1]
    (2, {'x': np.float64(2.5), 'name': None})

    Args:
        frame: A DataFrame, a Series, or what holds the same in pyarrow. Later changes to it may or
            may not be seen, as its library decides.

    Raises:
        PlanTypeError: If `frame` is none of these.
        PlanError: If two columns have the same name.
    """

    def __init__(self, frame: object) -> None:
        kind = _kind_of(frame)
        if kind is None:
            raise PlanTypeError(
                "`frame` must be a DataFrame or a Series of pandas or polars, or a Table of "
                f"pyarrow, got {type(frame).__name__}."
            )
        library, self._is_series = kind
        table = cast("Any", frame)
        self._length = len(table)
        make = _MAKE_COLUMN[library]
        if self._is_series:
            self._columns = {"": make(table)}
        else:
            names = _as_names(table.column_names if library == "pyarrow" else table.columns)
            self._columns = dict(zip(names, map(make, _series_of(table, library)), strict=True))

    @property
    def is_columnar(self) -> bool:
        """Whether the loader reads whole columns (numbers and times) instead of records."""
        return all(isinstance(column, np.ndarray) for column in self._columns.values())

    def read_columns(self, indices: Span) -> Columns:
        """Return many records as columns that are not gathered yet, if `is_columnar`.

        Args:
            indices: The indices of the records.
        """
        columns: Any = self._columns
        return Columns.of(columns[""] if self._is_series else columns, indices)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        number = check_index(index, self._length)
        return self.__getitems__(np.array([number]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        span = as_indices(indices)
        check_indices(span, self._length)
        values = [_take(column, span) for column in self._columns.values()]
        if self._is_series:
            return values[0]
        if not values:
            return [{} for _ in range(len(span))]
        return [dict(zip(self._columns, row, strict=True)) for row in zip(*values, strict=True)]

    def __repr__(self) -> str:  # part of checkpoints: the types of the data, never the data
        kinds = [
            f"{name[:20]}: {str(column.dtype)[:20]}".removeprefix(": ")
            for name, column in list(self._columns.items())[:_MAX_COLUMNS_IN_REPR]
        ]
        if len(self._columns) > _MAX_COLUMNS_IN_REPR:
            kinds.append(f"<{len(self._columns)} columns>")
        return f"FrameSource({', '.join([f'<{self._length} records>', *kinds])})"


def is_frame(value: object) -> bool:
    """Return whether `FrameSource` reads a value."""
    return _kind_of(value) is not None


_KINDS = {
    "pandas": {"DataFrame": False, "Series": True},
    "polars": {"DataFrame": False, "Series": True},
    "pyarrow": {"Table": False, "RecordBatch": False, "ChunkedArray": True, "Array": True},
}
"""The classes of each library that are frames, and whether they are a single column."""


def _kind_of(value: object) -> tuple[str, bool] | None:
    """Return the library of a frame, and whether the frame is a single column."""
    for kind in type(value).__mro__:
        library = kind.__module__.partition(".")[0]
        is_series = _KINDS.get(library, {}).get(kind.__name__)
        if is_series is not None:
            return library, is_series
    return None


def groups_of(value: object) -> str | None:
    """Return a description of the groups of a frame, which are no source; `None` for others."""
    for kind in type(value).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in _KINDS and kind.__name__.endswith("GroupBy"):
            return f"a {type(value).__name__} of {library}"
    return None


def _series_of(table: Any, library: str) -> Sequence[Any]:
    if library == "pandas":
        return [table.iloc[:, number] for number in range(len(table.columns))]
    return table.get_columns() if library == "polars" else table.columns


def _as_names(labels: Any) -> list[str]:
    names = [str(label) for label in labels]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise PlanError(
            f"The frame has several columns named {sorted(twice)[0]!r}. Rename them, because a "
            "record is a dict."
        )
    return names


def _take(column: _Column, indices: Any) -> list[Element]:
    if isinstance(column, np.ndarray):
        taken: AnyArray = column[as_numpy_index(indices)]
        return list(taken.copy())
    return column.take(indices)


def _pandas_column(series: Any) -> _Column:
    dtype = series.dtype
    if isinstance(dtype, np.dtype) and dtype.kind in "biufcmM":
        return series.to_numpy()
    return SeriesColumn(series.array, _take_pandas, series.dtype)


def _take_pandas(array: Any, indices: Any) -> list[Element]:
    taken = array.take(np.asarray(indices, np.int64))
    values: Any = np.array(taken, dtype=object)
    values[np.asarray(taken.isna(), dtype=bool)] = None
    return values.tolist()


def _polars_column(series: Any) -> _Column:
    kind = series.dtype
    is_dense = (
        (kind.is_numeric() and not kind.is_decimal())
        or str(kind) in ("Boolean", "Date")
        or (kind.is_temporal() and str(kind).startswith(("Datetime", "Duration")))
    )
    if is_dense and getattr(kind, "time_zone", None) is None and not series.null_count():
        array: AnyArray = series.to_numpy()
        if array.dtype.kind in "biufcmM":
            return array
    return SeriesColumn(series, _take_polars, kind)


def _take_polars(series: Any, indices: Any) -> list[Element]:
    return series.gather(np.asarray(indices, np.int64)).to_list()


def _arrow_column(column: Any) -> _Column:
    # Imported only now: of the programs that use a list as a source, few have pyarrow.
    module: Any = importlib.import_module("gristmill._data.sources.memory.arrow_column")
    return module.make_column(column)


_MAKE_COLUMN: dict[str, Callable[[Any], _Column]] = {
    "pandas": _pandas_column,
    "polars": _polars_column,
    "pyarrow": _arrow_column,
}
