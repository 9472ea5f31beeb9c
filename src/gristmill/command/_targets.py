"""The formats that records can be written in.

A target learns from the first records what all of them must be like; it then writes one shard at
a time, and says which record is not like that.
"""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._example import format_example
from gristmill._extras import load_extra
from gristmill.command._records import BARE, as_columns, columns_reader
from gristmill.errors import BatchError
from gristmill.types import Element

Blocks: TypeAlias = Iterable[tuple[int, list[Element]]]
"""Records a block at a time, and the number of the first of each block."""

_ROW_GROUP_BYTES = 32 * 10**6


class Target(ABC):
    """One format, for records like the ones it was shown."""

    @abstractmethod
    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        """Write a shard of `count` records into a folder."""

    @abstractmethod
    def reading(self, folder: str, name: str) -> str:
        """Give the line of Python that reads the shards."""

    def finish(self, folder: Path) -> None:
        """Add what belongs to all shards together."""
        del folder


@final
class ArrayRecordTarget(Target):
    """Records as they are if they are bytes, else as `tf.train.Example`."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._library = load_extra(
            "array_record.python.array_record_module",
            extra="array_record",
            wanted_by="Writing ArrayRecord files",
        )
        self._is_bytes = all(isinstance(record, bytes) for record in sample)
        self._features = {} if self._is_bytes else _features(sample)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        writer = self._library.ArrayRecordWriter(
            str(folder / f"{name}.array_record"), "group_size:1"
        )
        try:
            for first, records in blocks:
                for number, record in enumerate(records, start=first):
                    writer.write(self._encode(record, number))
        finally:
            writer.close()

    def finish(self, folder: Path) -> None:
        if self._features:
            text = json.dumps(self._features, indent=2)
            (folder / "features.json").write_text(text + "\n", encoding="utf-8")

    def reading(self, folder: str, name: str) -> str:
        source = f"grain.sources.ArrayRecordDataSource({folder + '/*.array_record'!r})"
        if self._is_bytes:
            return source
        parse = f"grain.transforms.ParseExample.read({folder + '/features.json'!r})"
        return f"grain.MapDataset.source({source}).map({parse})"

    def _encode(self, record: Element, number: int) -> bytes:
        if isinstance(record, bytes) and self._is_bytes:
            return record
        columns = as_columns(record)
        for key, value in columns.items():
            if value is None:
                raise BatchError(
                    f"{key!r} of record {number:,} is null, which a `tf.train.Example` cannot "
                    "hold. Write Parquet files (`--to parquet`), or leave the column out."
                )
        try:
            return format_example(columns)
        except (ValueError, TypeError) as error:
            error.add_note(f"In record {number:,}. Parquet (`--to parquet`) keeps more types.")
            raise


def _features(sample: Sequence[Element]) -> dict[str, Any]:
    """Tell the types and shapes that an Example does not keep."""
    told: dict[str, Any] = {}
    for record in sample:
        for name, value in as_columns(record).items():
            array = np.asarray(value)
            shape = list(array.shape)
            seen = told.setdefault(name, {"dtype": None, "shape": shape})
            if array.size or isinstance(value, np.ndarray):  # of an empty list nobody knows
                kinds = {"U": "str", "S": "bytes", "O": "bytes"}
                seen["dtype"] = kinds.get(array.dtype.kind, array.dtype.name)
            if seen["shape"] != shape:
                seen["shape"] = None  # differs from record to record
    return {name: {**one, "dtype": one["dtype"] or "bytes"} for name, one in told.items()}


@final
class ParquetTarget(Target):
    """A column for each item of a record."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._arrow = load_extra("pyarrow", extra="parquet", wanted_by="Writing Parquet files")
        self._parquet = load_extra(
            "pyarrow.parquet", extra="parquet", wanted_by="Writing Parquet files"
        )
        self._columns = columns_reader(sample)
        values = _transpose([self._columns(record) for record in sample])
        fields = [(name, self._type(name, column)) for name, column in values.items()]
        self._schema = self._arrow.schema(fields)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        path = folder / f"{name}.parquet"
        with self._parquet.ParquetWriter(path, self._schema, compression="zstd") as writer:
            tables: list[Any] = []
            for first, records in blocks:
                tables.append(self._table(records, first))
                if sum(table.nbytes for table in tables) > _ROW_GROUP_BYTES:
                    writer.write_table(self._arrow.concat_tables(tables))
                    tables = []
            if tables or not count:
                empty = self._schema.empty_table()
                writer.write_table(self._arrow.concat_tables(tables or [empty]))

    def reading(self, folder: str, name: str) -> str:
        return f"grain.sources.ParquetSource({folder + '/*.parquet'!r})"

    def _table(self, records: list[Element], first: int) -> Any:
        rows = [self._columns(record) for record in records]
        for number, row in enumerate(rows, start=first):
            if row.keys() - set(self._schema.names):
                raise _unlike(f"{sorted(row.keys() - set(self._schema.names))} are new", number)
        arrays: list[Any] = []
        for column in self._schema:
            values = [row.get(column.name) for row in rows]
            try:
                arrays.append(self._array(values, column.type))
            except (self._arrow.ArrowException, ValueError, TypeError) as error:
                number = first + self._first_bad(values, column.type)
                raise _unlike(f"{column.name!r} is not {column.type}: {error}", number) from error
        return self._arrow.Table.from_arrays(arrays, schema=self._schema)

    def _first_bad(self, values: list[Any], kind: Any) -> int:
        for number, value in enumerate(values):
            try:
                self._array([value], kind)
            except (self._arrow.ArrowException, ValueError, TypeError):
                return number
        return 0

    def _array(self, values: list[Any], kind: Any) -> Any:
        """Give a column; of arrays of one shape, without a step for each number."""
        if isinstance(kind, self._arrow.FixedShapeTensorType):
            stacked = np.stack(values)
            if list(stacked.shape[1:]) != kind.shape:
                raise ValueError(f"its shape is {list(stacked.shape[1:])}")
            checked = self._arrow.array(stacked.reshape(-1), type=kind.value_type, safe=True)
            size = math.prod(kind.shape)
            storage = self._arrow.FixedSizeListArray.from_arrays(checked, size)
            return self._arrow.ExtensionArray.from_storage(kind, storage)
        return self._arrow.array(values, type=kind)

    def _type(self, name: str, values: list[Any]) -> Any:
        """Find the type of a column."""
        arrays: list[NDArray[Any]] = [value for value in values if isinstance(value, np.ndarray)]
        if not arrays or len(arrays) < len(values):
            found = self._arrow.array(values).type
            return self._arrow.string() if self._arrow.types.is_null(found) else found
        item = self._arrow.from_numpy_dtype(arrays[0].dtype)
        if len({array.shape for array in arrays}) == 1 and arrays[0].ndim:
            return self._arrow.fixed_shape_tensor(item, arrays[0].shape)
        if all(array.ndim == 1 for array in arrays):
            return self._arrow.list_(item)
        raise BatchError(
            f"{name!r} holds arrays of several shapes, which no column can. Write ArrayRecord "
            "files."
        )


@final
class NpyTarget(Target):
    """An array for each item of a record, its first axis the records."""

    def __init__(self, sample: Sequence[Element]) -> None:
        self._columns = columns_reader(sample)
        self._like = {name: np.asarray(value) for name, value in self._columns(sample[0]).items()}
        for name, array in self._like.items():
            if array.dtype.kind not in "biufcmM":
                raise BatchError(
                    f"{name!r} is {array.dtype} and a `.npy` file holds numbers alone. Write "
                    "Parquet or ArrayRecord files."
                )

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        stem, _, number = name.partition("-")
        del stem
        made: dict[str, NDArray[Any]] = {
            key: np.lib.format.open_memmap(
                folder / f"{key}-{number}.npy",
                mode="w+",
                dtype=like.dtype,
                shape=(count, *like.shape),
            )
            for key, like in self._like.items()
        }
        row = 0
        for first, records in blocks:
            rows = [self._columns(record) for record in records]
            for key, out in made.items():
                self._fill(out[row : row + len(rows)], key, rows, first)
            row += len(rows)
        for out in made.values():
            cast(Any, out).flush()

    def reading(self, folder: str, name: str) -> str:
        if list(self._like) == [BARE]:
            return f"grain.sources.NumpySource({f'{folder}/{BARE}-*.npy'!r})"
        files = {key: f"{folder}/{key}-*.npy" for key in self._like}
        return f"grain.sources.NumpySource({files!r})"

    def _fill(self, out: NDArray[Any], key: str, rows: list[dict[str, Any]], first: int) -> None:
        like = self._like[key]
        for number, row in enumerate(rows):
            array = np.asarray(row.get(key))
            if array.shape != like.shape or not np.can_cast(array.dtype, like.dtype, "same_kind"):
                found = f"{array.dtype}{list(array.shape)}"
                wanted = f"{like.dtype}{list(like.shape)}"
                raise _unlike(f"{key!r} is {found}, not {wanted}", first + number)
            out[number] = array


def _unlike(told: str, record: int) -> BatchError:
    return BatchError(
        f"Record {record:,} is not like the first ones: {told}. Make them alike, or write "
        "ArrayRecord files, where each may differ."
    )


def _transpose(rows: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    names = {name: None for row in rows for name in row}
    return {name: [row.get(name) for row in rows] for name in names}


TARGETS: dict[str, Callable[[Sequence[Element]], Target]] = {
    "array_record": ArrayRecordTarget,
    "npy": NpyTarget,
    "parquet": ParquetTarget,
}
