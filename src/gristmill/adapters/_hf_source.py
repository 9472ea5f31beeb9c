"""The rows of a dataset of Hugging Face, read from its Arrow tables by us."""

import operator
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import Columns
from gristmill._span import as_indices
from gristmill.adapters._arrow_table import ArrowColumn, Picked, columns_of, has_nulls, integers_of
from gristmill.adapters._hf_cast import CastArray
from gristmill.adapters._hf_formats import Reading
from gristmill.adapters._hf_table import as_stored, blocks_of, table_of
from gristmill.adapters._hf_values import decode_pictures, to_numpy
from gristmill.errors import SourceError
from gristmill.types import Element, Indices, Span

JOINED_BYTES = 128 * 2**20
"""Tables up to this size are joined where they are in many chunks, which doubles the speed."""

_LONGEST = 120
"""Characters of a `repr` for the names of columns."""

_TOLD_ROWS = 1000


@final
class DatasetSource:
    """Random access to the rows of a dataset, as dicts; blocks of them as columns.

    In a worker it opens the same files, and needs `datasets` only for what HF reads itself.
    """

    def __init__(self, dataset: Any, readings: Sequence[Reading]) -> None:
        self._readings = readings
        self._dataset = dataset
        self._length = len(dataset)
        data, order = dataset.data, order_of(dataset)
        self._open(as_stored(data.table), None if order is None else order.table)
        self._is_read_by_hf = any(
            reading.how == "theirs"
            or (not reading.keeps_nulls and any(map(has_nulls, data.column(reading.name).chunks)))
            for reading in readings
        )
        self._told = _tell(dataset, readings, self._order)

    def _open(self, table: Any, order: Any) -> None:
        ours = [reading for reading in self._readings if reading.how != "theirs"]
        columns = columns_of(table, [one.name for one in ours], [one.shape for one in ours])
        self._columns: dict[str, ArrowColumn] = {
            one.name: column for one, column in zip(ours, columns, strict=True)
        }
        self._order: Indices | None = None if order is None else integers_of(order.column(0))
        self._whole: dict[str, Any] | None = None
        self._knows_whole = False
        self._singles: dict[str, Any] = {}
        theirs = [reading.name for reading in self._readings if reading.how == "theirs"]
        self._theirs: Any = self._dataset.select_columns(theirs) if theirs else None

    @property
    def is_columnar(self) -> bool:
        """Whether blocks are read as columns, those that do not fit into columns excepted."""
        return bool(self._readings) and all(
            reading.how in ("numbers", "texts") for reading in self._readings
        )

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Give many rows as columns; one by one, if a list among them is shorter or one is null."""
        rows = self._rows(indices)
        whole = self._find_whole()
        if whole is not None:
            return Columns.of(whole, rows)
        picked = Picked(as_indices(rows))
        # Texts are in order; of numbers those of a chunk are together, and put in order at last.
        homes = {self._columns[one.name].places for one in self._readings if one.how == "numbers"}
        has_one_order = len(homes) == 1 and all(one.how == "numbers" for one in self._readings)
        made: dict[str, Any] = {}
        for reading in self._readings:
            column = self._columns[reading.name]
            if reading.how == "texts":
                made[reading.name] = column.objects(picked)
                continue
            array = column.gather(picked)
            if array is None:
                return self._read(indices, picked)
            places = range(0) if has_one_order else picked.places_of(column.places)
            ordered = array if isinstance(places, range) else array[places]
            made[reading.name] = _cast_later(ordered, reading.dtype)
        count = range(len(picked.rows))
        return Columns.of(made, picked.places_of(homes.pop()) if has_one_order else count)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int] | Span) -> list[Element]:
        numbers = as_indices(indices)
        for bound in (numbers.min(), numbers.max()) if len(numbers) else ():
            if not 0 <= bound < self._length:
                raise IndexError(f"`index` must be in [0, {self._length}), got {bound}.")
        return self._read(numbers, Picked(as_indices(self._rows(numbers))))

    def _rows(self, indices: Span) -> Span:
        """Give where rows are in the table."""
        if self._order is None:
            return indices
        return self._order[as_indices(indices)]

    def _find_whole(self) -> dict[str, Any] | None:
        """Give views of all rows of all columns, if there are such."""
        if not self._knows_whole:
            if all(one.how == "numbers" for one in self._readings):
                most = JOINED_BYTES // max(1, len(self._readings))
                views = {one.name: self._columns[one.name].whole(most) for one in self._readings}
                if all(view is not None for view in views.values()):
                    self._whole = {
                        one.name: _cast_later(views[one.name], one.dtype) for one in self._readings
                    }
            self._knows_whole = True
        return self._whole

    def _read(self, indices: Span, picked: Picked) -> list[Element]:
        columns = [self._values(reading, indices, picked) for reading in self._readings]
        names = [reading.name for reading in self._readings]
        if not names:
            return [{} for _ in indices]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _values(self, reading: Reading, indices: Span, picked: Picked) -> Iterable[Any]:
        if reading.how == "theirs":
            return [to_numpy(self._theirs[int(index)][reading.name]) for index in indices]
        column = self._columns[reading.name]
        if reading.how == "texts":
            return column.objects(picked)
        values, holes = column.values(picked)
        if reading.how == "pictures":
            return _decode(values, reading)
        if reading.dtype is not None:
            whole = set(holes)
            values = [
                value if row in whole else _cast(value, reading.dtype)
                for row, value in enumerate(values)
            ]
        if holes and not reading.keeps_nulls:
            theirs = self._read_by_hf(reading)
            for row in holes:
                values[row] = to_numpy(theirs[int(indices[row])][reading.name])
        return values

    def _read_by_hf(self, reading: Reading) -> Any:
        """Give the dataset, with one column, for values that are null or have another shape."""
        if not self._is_read_by_hf:  # as there is no null, and workers do without the dataset
            raise SourceError(
                f"A value of the column {reading.name!r} does not have the shape {reading.shape} "
                "that the features of the dataset declare. Cast the column to `List`, or mend it."
            )
        if reading.name not in self._singles:
            self._singles[reading.name] = self._dataset.select_columns([reading.name])
        return self._singles[reading.name]

    def __getstate__(self) -> dict[str, Any]:
        state = {
            name: vars(self)[name] for name in ("_readings", "_length", "_is_read_by_hf", "_told")
        }
        blocks = None if self._is_read_by_hf else self._blocks()
        return {**state, "dataset": self._dataset if blocks is None else None, "blocks": blocks}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._dataset, self._sent = state.pop("dataset"), state.pop("blocks")
        vars(self).update(state)
        if self._sent is not None:
            data, order = self._sent
            self._open(table_of(data), None if order is None else table_of(order))
            return
        order = order_of(self._dataset)
        self._open(as_stored(self._dataset.data.table), None if order is None else order.table)

    def _blocks(self) -> Any:
        if self._dataset is None:
            return self._sent
        names = [reading.name for reading in self._readings]
        data, order = blocks_of(self._dataset.data.select(names)), order_of(self._dataset)
        if data is None or order is None:
            return data and (data, None)
        blocks = blocks_of(order)
        return blocks and (data, blocks)

    def __repr__(self) -> str:  # goes into checkpoints
        return self._told


def order_of(dataset: Any) -> Any:
    """Give the table of which row comes when, after `shuffle` or `select`; None if all in order."""
    return dataset._indices  # noqa: SLF001  (nothing public tells it without reading rows)


def _cast_later(array: Any, dtype: np.dtype[Any] | None) -> Any:
    return array if dtype is None else CastArray(array, dtype)


def _cast(values: Any, dtype: np.dtype[Any]) -> Any:
    return values.astype(dtype, copy=False)


def _decode(values: Sequence[Any], reading: Reading) -> Iterable[Any]:
    pictures = decode_pictures(values, reading.mode)
    return map(_planar, pictures) if reading.is_planar else pictures


def _planar(picture: NDArray[Any] | None) -> NDArray[Any] | None:
    if picture is None:
        return None
    return np.ascontiguousarray(np.atleast_3d(picture).transpose(2, 0, 1))


def _tell(dataset: Any, readings: Sequence[Reading], order: Indices | None) -> str:
    """Say what the dataset is: its name, its columns, and how its rows begin to be ordered."""
    names = [reading.name for reading in readings]
    told = ", ".join(names)
    if len(told) > _LONGEST:
        told = f"{len(names)} from {names[0][:40]!r} to {names[-1][:40]!r}"
    parts = [f"<{len(dataset)} rows>", f"columns=[{told}]"]
    if dataset.format["type"] is not None:
        parts.append(f"format={dataset.format['type']!r}")
    if order is not None:
        first = order[:_TOLD_ROWS].astype("<i8").tobytes()
        parts.append(f"order={zlib.crc32(first):08x}")
    return f"HuggingFaceDataset({', '.join(parts)})"
