"""Write records as Parquet or npy files, and find the writer of each format.

A target derives the types of all records from the first ones. It then writes one shard at a time,
and reports the first record that does not fit.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast, final

import numpy as np

from gristmill._base.extras import load_extra
from gristmill._data.sources.tables.arrow_values import ArrowArray, ArrowTable, ArrowType
from gristmill._data.writers.column_names import check_file_names
from gristmill._data.writers.example_targets import ArrayRecordTarget, TFRecordTarget
from gristmill._data.writers.records import RECORD_COLUMN, column_parser
from gristmill._data.writers.table_records import TableRecords
from gristmill._data.writers.tar_target import TarTarget
from gristmill._data.writers.target import Blocks, Target, mismatch
from gristmill.errors import BatchError
from gristmill.types import AnyArray, AnyDType, Element

_ROW_GROUP_BYTES = 32 * 10**6


@final
class ParquetTarget(Target):
    """Writes a table with one column for each item of a record."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._arrow = load_extra("pyarrow", extra="parquet", wanted_by="Writing Parquet files")
        self._parquet = load_extra(
            "pyarrow.parquet", extra="parquet", wanted_by="Writing Parquet files"
        )
        self._parse = column_parser(sample)
        if isinstance(sample, TableRecords):
            self._schema = sample.table.schema
            return
        values = _transpose([self._parse(record) for record in sample])
        fields = [(name, self._infer_type(name, column)) for name, column in values.items()]
        self._schema = self._arrow.schema(fields)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        path = folder / f"{name}.parquet"
        with self._parquet.ParquetWriter(path, self._schema, compression="zstd") as writer:
            tables: list[ArrowTable] = []
            for first, records in blocks:
                tables.append(self._make_table(records, first))
                if sum(table.nbytes for table in tables) > _ROW_GROUP_BYTES:
                    writer.write_table(self._arrow.concat_tables(tables))
                    tables = []
            if tables or not count:
                empty = self._schema.empty_table()
                writer.write_table(self._arrow.concat_tables(tables or [empty]))

    def reading_code(self, folder: str) -> str:
        return f"gristmill.sources.ParquetSource({folder + '/*.parquet'!r})"

    def _make_table(self, records: Sequence[Element], first: int) -> ArrowTable:
        if isinstance(records, TableRecords) and records.table.schema == self._schema:
            return records.table
        rows = [self._parse(record) for record in records]
        for index, row in enumerate(rows, start=first):
            added = sorted(row.keys() - set(self._schema.names))
            if added:
                raise mismatch(f"it has the additional columns {added}", index)
        arrays: list[ArrowArray] = []
        for column in self._schema:
            values = [row.get(column.name) for row in rows]
            try:
                arrays.append(self._make_array(values, column.type))
            except (self._arrow.ArrowException, ValueError, TypeError) as error:
                index = first + self._find_mismatch(values, column.type)
                raise mismatch(f"{column.name!r} is not {column.type}: {error}", index) from error
        return self._arrow.Table.from_arrays(arrays, schema=self._schema)

    def _find_mismatch(self, values: list[Element], arrow_type: ArrowType) -> int:
        for number, value in enumerate(values):
            try:
                self._make_array([value], arrow_type)
            except (self._arrow.ArrowException, ValueError, TypeError):
                return number
        return 0

    def _make_array(self, values: list[Element], arrow_type: ArrowType) -> ArrowArray:
        """Return an Arrow array; NumPy arrays of one shape are converted without a Python loop."""
        if isinstance(arrow_type, self._arrow.FixedShapeTensorType):
            stacked = np.stack(values)
            if list(stacked.shape[1:]) != arrow_type.shape:
                raise ValueError(f"its shape is {list(stacked.shape[1:])}")
            flat = self._arrow.array(stacked.reshape(-1), type=arrow_type.value_type, safe=True)
            size = math.prod(arrow_type.shape)
            storage = self._arrow.FixedSizeListArray.from_arrays(flat, size)
            return self._arrow.ExtensionArray.from_storage(arrow_type, storage)
        if self._arrow.types.is_date(arrow_type):
            values = [_as_date(value) for value in values]
        return self._arrow.array(values, type=arrow_type)

    def _infer_type(self, name: str, values: list[Element]) -> ArrowType:
        arrays: list[AnyArray] = [value for value in values if isinstance(value, np.ndarray)]
        if not arrays or len(arrays) < len(values):
            try:
                found = self._arrow.array([_as_date(value) for value in values]).type
            except (self._arrow.ArrowException, ValueError, TypeError) as error:
                raise BatchError(
                    f"{name!r} has values of several types, which a Parquet column cannot store "
                    f"({error}). Convert them to one type before."
                ) from error
            return self._arrow.string() if self._arrow.types.is_null(found) else found
        item = self._arrow.from_numpy_dtype(arrays[0].dtype)
        if len({array.shape for array in arrays}) == 1 and arrays[0].ndim:
            return self._arrow.fixed_shape_tensor(item, arrays[0].shape)
        if all(array.ndim == 1 for array in arrays):
            return self._arrow.list_(item)
        raise BatchError(
            f"{name!r} holds arrays of several shapes, which a Parquet column cannot store. Write "
            "ArrayRecord files (`format='array_record'`)."
        )


def _as_date(value: Element) -> Element:
    """Return a NumPy date as one of Python: pyarrow takes no others, unlike times."""
    if not isinstance(value, np.datetime64):
        return value
    time = cast("np.datetime64[Any]", value)
    return time.item() if np.datetime_data(time.dtype)[0] == "D" else time


@final
class NpyTarget(Target):
    """Writes one array for each item of a record. Its first axis is the records."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._parse = column_parser(sample)
        self._first = {name: np.asarray(value) for name, value in self._parse(sample[0]).items()}
        check_file_names(self._first)
        for name, array in self._first.items():
            if array.dtype.kind not in "biufcmM":
                raise BatchError(
                    f"{name!r} is {array.dtype}, and `.npy` files can only hold numbers. Write "
                    "Parquet or ArrayRecord files (`format='parquet'`, `format='array_record'`)."
                )

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        number = name.partition("-")[2]
        # Not memory-mapped: on a full disk, writing to a map kills the process.
        with contextlib.ExitStack() as stack:
            outputs: dict[str, BinaryIO] = {}
            for key, first in self._first.items():
                path = folder / f"{key}-{number}.npy"
                outputs[key] = stack.enter_context(open(path, "xb"))
                _write_header(outputs[key], first.dtype, (count, *first.shape))
            num_written = 0
            for first, records in blocks:
                rows = [self._parse(record) for record in records]
                num_written += len(rows)
                for key, output in outputs.items():
                    filled = self._fill(key, rows, first)
                    output.write(filled.reshape(-1).view(np.uint8).data)
            if num_written != count:  # a filter removed some; headers leave room for the length
                for key, output in outputs.items():
                    output.seek(0)
                    first_array = self._first[key]
                    _write_header(output, first_array.dtype, (num_written, *first_array.shape))

    def reading_code(self, folder: str) -> str:
        if list(self._first) == [RECORD_COLUMN]:
            return f"gristmill.sources.NumpySource({f'{folder}/{RECORD_COLUMN}-*.npy'!r})"
        files = {key: f"{folder}/{key}-*.npy" for key in self._first}
        return f"gristmill.sources.NumpySource({files!r})"

    def _fill(self, key: str, rows: list[dict[str, Element]], first: int) -> AnyArray:
        """Return the values of a column in some records, as one array."""
        expected = self._first[key]
        out: AnyArray = np.empty((len(rows), *expected.shape), expected.dtype)
        for number, row in enumerate(rows):
            array = np.asarray(row.get(key))
            can_cast = np.can_cast(array.dtype, expected.dtype, "same_kind")
            if array.shape != expected.shape or not can_cast:
                difference = (
                    f"{key!r} is {array.dtype}{list(array.shape)}, "
                    f"not {expected.dtype}{list(expected.shape)}"
                )
                raise mismatch(difference, first + number)
            out[number] = array
        return out


def _write_header(output: BinaryIO, dtype: AnyDType, shape: tuple[int, ...]) -> None:
    np.lib.format.write_array_header_1_0(
        output,
        {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": shape,
        },
    )


def _transpose(rows: Sequence[dict[str, Element]]) -> dict[str, list[Element]]:
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


TARGETS: dict[str, Callable[[Sequence[Element]], Target]] = {
    "array_record": ArrayRecordTarget,
    "npy": NpyTarget,
    "parquet": ParquetTarget,
    "tar": TarTarget,
    "tfrecord": TFRecordTarget,
}
