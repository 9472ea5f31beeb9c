"""Columns of Arrow tables: arrays where that takes no copy, or else values."""

from typing import Any

import numpy as np

from gristmill._data.sources.memory.series_column import SeriesColumn
from gristmill._data.sources.tables.arrow_values import (
    ArrowArray,
    concatenate,
    dense_of,
    load_pyarrow,
    null_rows,
    take,
    to_dense,
    to_values,
)
from gristmill.types import AnyArray, Element


def make_column(column: Any) -> AnyArray | SeriesColumn:
    """Return a column of an Arrow table, or an Arrow array, in a form that a frame reads."""
    array = _as_one_array(column)
    if dense_of(array.type) is not None and null_rows(array) is None:
        return to_dense(array)
    return SeriesColumn(array, _take_arrow, array.type)


def _as_one_array(column: Any) -> ArrowArray:
    """Return a column as an Arrow array, which is a copy if the column is in several chunks."""
    pa = load_pyarrow("an Arrow table")
    if not isinstance(column, pa.ChunkedArray):
        return column
    chunks: list[ArrowArray] = column.chunks
    return concatenate(chunks) if chunks else pa.nulls(0, column.type)


def _take_arrow(array: ArrowArray, indices: Any) -> list[Element]:
    return to_values(take(array, np.asarray(indices, np.int64)))
