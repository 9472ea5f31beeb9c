"""Write records as ArrayRecord, Parquet or npy files.

A target derives the types of all records from the first ones. It then writes one shard at a time,
and reports the first record that does not fit.
"""

import contextlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias, final

import numpy as np

from gristmill._base.extras import load_extra
from gristmill._cli.column_names import check_file_names
from gristmill._cli.records import RECORD_COLUMN, as_columns, column_parser
from gristmill._data.example_proto.serialize import format_example
from gristmill._data.sources.tables.arrow_values import ArrowArray, ArrowTable, ArrowType
from gristmill.errors import BatchError, FileError, GristmillError
from gristmill.types import AnyArray, AnyDType, Element, JsonObject

Blocks: TypeAlias = Iterable[tuple[int, list[Element]]]
"""Blocks of records, each after the index of its first record."""

_ROW_GROUP_BYTES = 32 * 10**6


class Target(ABC):
    """A writer of one format, for records like those of the sample that it was created with."""

    @abstractmethod
    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        """Write a shard.

        Args:
            folder: The folder for the files of the shard.
            name: The name of the shard, without a suffix.
            count: The number of records in the shard.
            blocks: The records.
        """

    @abstractmethod
    def reading_code(self, folder: str) -> str:
        """Return the Python expression that reads the shards in a folder."""

    def finish(self, folder: Path) -> None:
        """Write the files that belong to all shards together."""
        del folder


@final
class ArrayRecordTarget(Target):
    """Writes records that are bytes unchanged, and others as `tf.train.Example`."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._library = load_extra(
            "array_record.python.array_record_module",
            extra="array_record",
            wanted_by="Writing ArrayRecord files",
        )
        self._is_bytes = all(isinstance(record, bytes) for record in sample)
        self._features = {} if self._is_bytes else _describe_features(sample)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        path = str(folder / f"{name}.array_record")
        try:
            writer = self._library.ArrayRecordWriter(path, "group_size:1")
            try:
                for first, records in blocks:
                    for index, record in enumerate(records, start=first):
                        writer.write(self._encode(record, index))
            finally:
                writer.close()
        except RuntimeError as error:  # of the library, for example if the disk is full
            if isinstance(error, GristmillError):
                raise
            reason = str(error).partition(";")[0]
            raise FileError(f"The shard cannot be written: {reason}.", path=path) from error

    def finish(self, folder: Path) -> None:
        if self._features:
            features = json.dumps(self._features, indent=2)
            path = folder / "features.json"
            path.unlink(missing_ok=True)  # of an earlier attempt; a link must not be followed
            with open(path, "x", encoding="utf-8") as file:
                file.write(features + "\n")

    def reading_code(self, folder: str) -> str:
        source = f"grain.sources.ArrayRecordDataSource({folder + '/*.array_record'!r})"
        if self._is_bytes:
            return source
        parse = f"grain.transforms.ParseExample.read({folder + '/features.json'!r})"
        return f"grain.MapDataset.source({source}).map({parse})"

    def _encode(self, record: Element, index: int) -> bytes:
        if isinstance(record, bytes) and self._is_bytes:
            return record
        columns = as_columns(record)
        for key, value in columns.items():
            if value is None:
                raise BatchError(
                    f"{key!r} of record {index:,} is null, which a `tf.train.Example` cannot "
                    "hold. Write Parquet files (`--to parquet`), or leave the column out."
                )
        try:
            return format_example(columns)
        except (ValueError, TypeError) as error:
            error.add_note(f"In record {index:,}. Parquet (`--to parquet`) supports more types.")
            raise


def _describe_features(sample: Sequence[Element]) -> dict[str, JsonObject]:
    """Return the dtype and the shape of each feature, which an Example does not store."""
    features: dict[str, JsonObject] = {}
    for record in sample:
        for name, value in as_columns(record).items():
            array = np.asarray(value)
            shape = list(array.shape)
            feature = features.setdefault(name, {"dtype": None, "shape": shape})
            if array.size or isinstance(value, np.ndarray):  # the type of an empty list is unknown
                kinds = {"U": "str", "S": "bytes", "O": "bytes"}
                feature["dtype"] = kinds.get(array.dtype.kind, array.dtype.name)
            if feature["shape"] != shape:
                feature["shape"] = None  # differs between records
    return {
        name: {**feature, "dtype": feature["dtype"] or "bytes"}
        for name, feature in features.items()
    }


@final
class ParquetTarget(Target):
    """Writes a table with one column for each item of a record."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._arrow = load_extra("pyarrow", extra="parquet", wanted_by="Writing Parquet files")
        self._parquet = load_extra(
            "pyarrow.parquet", extra="parquet", wanted_by="Writing Parquet files"
        )
        self._parse = column_parser(sample)
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
        return f"grain.sources.ParquetSource({folder + '/*.parquet'!r})"

    def _make_table(self, records: list[Element], first: int) -> ArrowTable:
        rows = [self._parse(record) for record in records]
        for index, row in enumerate(rows, start=first):
            added = sorted(row.keys() - set(self._schema.names))
            if added:
                raise _mismatch(f"it has the additional columns {added}", index)
        arrays: list[ArrowArray] = []
        for column in self._schema:
            values = [row.get(column.name) for row in rows]
            try:
                arrays.append(self._make_array(values, column.type))
            except (self._arrow.ArrowException, ValueError, TypeError) as error:
                index = first + self._find_mismatch(values, column.type)
                raise _mismatch(f"{column.name!r} is not {column.type}: {error}", index) from error
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
        return self._arrow.array(values, type=arrow_type)

    def _infer_type(self, name: str, values: list[Element]) -> ArrowType:
        arrays: list[AnyArray] = [value for value in values if isinstance(value, np.ndarray)]
        if not arrays or len(arrays) < len(values):
            found = self._arrow.array(values).type
            return self._arrow.string() if self._arrow.types.is_null(found) else found
        item = self._arrow.from_numpy_dtype(arrays[0].dtype)
        if len({array.shape for array in arrays}) == 1 and arrays[0].ndim:
            return self._arrow.fixed_shape_tensor(item, arrays[0].shape)
        if all(array.ndim == 1 for array in arrays):
            return self._arrow.list_(item)
        raise BatchError(
            f"{name!r} holds arrays of several shapes, which a Parquet column cannot store. Write "
            "ArrayRecord files (`--to array_record`)."
        )


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
                    "Parquet or ArrayRecord files (`--to parquet`, `--to array_record`)."
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
            for first, records in blocks:
                rows = [self._parse(record) for record in records]
                for key, output in outputs.items():
                    filled = self._fill(key, rows, first)
                    output.write(filled.reshape(-1).view(np.uint8).data)

    def reading_code(self, folder: str) -> str:
        if list(self._first) == [RECORD_COLUMN]:
            return f"grain.sources.NumpySource({f'{folder}/{RECORD_COLUMN}-*.npy'!r})"
        files = {key: f"{folder}/{key}-*.npy" for key in self._first}
        return f"grain.sources.NumpySource({files!r})"

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
                raise _mismatch(difference, first + number)
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


def _mismatch(difference: str, index: int) -> BatchError:
    """Return the error for a record whose types differ from those of the sample."""
    return BatchError(
        f"Record {index:,} differs from the first records: {difference}. Make the records uniform, "
        "or write ArrayRecord files (`--to array_record`), whose records may differ."
    )


def _transpose(rows: Sequence[dict[str, Element]]) -> dict[str, list[Element]]:
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


TARGETS: dict[str, Callable[[Sequence[Element]], Target]] = {
    "array_record": ArrayRecordTarget,
    "npy": NpyTarget,
    "parquet": ParquetTarget,
}
