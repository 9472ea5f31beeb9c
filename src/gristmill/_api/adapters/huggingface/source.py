"""Random access sources over the rows of Hugging Face datasets."""

import operator
import zlib
from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex, final

import numpy as np

from gristmill._api.adapters.huggingface.arrow_table import (
    ArrowColumn,
    RowSelection,
    has_nulls,
    make_columns,
    read_integers,
)
from gristmill._api.adapters.huggingface.formats import ColumnSpec, HfDataset, shorten_names
from gristmill._api.adapters.huggingface.tables import (
    ArrowTable,
    Fragments,
    HfTable,
    join_fragments,
    split_table,
    to_storage_types,
)
from gristmill._api.adapters.huggingface.values import (
    CastArray,
    StoredImage,
    Value,
    decode_images,
    to_numpy,
)
from gristmill._base.indices import as_indices, check_indices
from gristmill._base.trees.columns import Columns
from gristmill.errors import SourceError
from gristmill.types import AnyArray, AnyDType, Element, Indices, Span

MAX_JOINED_BYTES = 128 * 2**20
"""Tables of many chunks are joined into one array up to this size, which doubles the speed."""

_NUM_DESCRIBED_ROWS = 1000
"""Number of row indices whose checksum describes the order of the rows."""


@final
class DatasetSource:
    """Reads the rows of a dataset from its Arrow tables, as dicts or as columns.

    In a worker it opens the same files, and imports `datasets` only for delegated columns.

    Args:
        dataset: A `datasets.Dataset`.
        specs: How to read each column.
    """

    def __init__(self, dataset: HfDataset, specs: Sequence[ColumnSpec]) -> None:
        self._specs = specs
        self._dataset = dataset
        self._length = len(dataset)
        data, order = dataset.data, get_order_table(dataset)
        self._open(to_storage_types(data.table), None if order is None else order.table)
        self._needs_datasets = any(
            spec.kind == "delegated"
            or (not spec.nulls_are_none and any(map(has_nulls, data.column(spec.name).chunks)))
            for spec in specs
        )
        self._description = _describe(dataset, specs, self._order)

    def _open(self, table: ArrowTable, order: ArrowTable | None) -> None:
        own = [spec for spec in self._specs if spec.kind != "delegated"]
        columns = make_columns(table, [spec.name for spec in own], [spec.shape for spec in own])
        self._columns: dict[str, ArrowColumn] = {
            spec.name: column for spec, column in zip(own, columns, strict=True)
        }
        self._order: Indices | None = None if order is None else read_integers(order.column(0))
        self._whole_columns: dict[str, AnyArray | CastArray] | None = None
        self._has_checked_whole_columns = False
        self._single_column_datasets: dict[str, HfDataset] = {}
        delegated = [spec.name for spec in self._specs if spec.kind == "delegated"]
        self._delegated: HfDataset = self._dataset.select_columns(delegated) if delegated else None

    @property
    def is_columnar(self) -> bool:
        """Whether blocks are read as columns, except for those that do not fit into columns."""
        return bool(self._specs) and all(
            spec.kind in ("numbers", "strings") for spec in self._specs
        )

    def read_columns(self, indices: Span) -> Columns | list[Element]:
        """Return many rows as columns, or as dicts if a value is null or lists differ in length."""
        rows = self._locate(indices)
        whole = self._find_whole_columns()
        if whole is not None:
            return Columns.of(whole, rows)
        selection = RowSelection(as_indices(rows))
        # Strings are read in order. Numbers are gathered by chunk, and put in order at the end:
        # for all columns at once, if all are numbers and have the same chunks.
        locators = {
            self._columns[spec.name].locator for spec in self._specs if spec.kind == "numbers"
        }
        has_one_order = len(locators) == 1 and all(spec.kind == "numbers" for spec in self._specs)
        columns: dict[str, AnyArray | CastArray] = {}
        for spec in self._specs:
            column = self._columns[spec.name]
            if spec.kind == "strings":
                columns[spec.name] = column.read_objects(selection)
                continue
            array = column.gather(selection)
            if array is None:
                return self._read_rows(indices, selection)
            order = range(0) if has_one_order else selection.order_by_chunk(column.locator)
            ordered = array if isinstance(order, range) else array[order]
            columns[spec.name] = _cast_lazily(ordered, spec.dtype)
        picks = range(len(selection.rows))
        return Columns.of(
            columns, selection.order_by_chunk(locators.pop()) if has_one_order else picks
        )

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int] | Span) -> list[Element]:
        numbers = as_indices(indices)
        check_indices(numbers, self._length)
        return self._read_rows(numbers, RowSelection(as_indices(self._locate(numbers))))

    def _locate(self, indices: Span) -> Span:
        """Return the rows of the table that `indices` refer to."""
        if self._order is None:
            return indices
        return self._order[as_indices(indices)]

    def _find_whole_columns(self) -> dict[str, AnyArray | CastArray] | None:
        """Return each column as one array of all rows, or None if a column is not one array."""
        if not self._has_checked_whole_columns:
            if all(spec.kind == "numbers" for spec in self._specs):
                max_bytes = MAX_JOINED_BYTES // max(1, len(self._specs))
                arrays = {
                    spec.name: self._columns[spec.name].read_all(max_bytes) for spec in self._specs
                }
                found = {name: array for name, array in arrays.items() if array is not None}
                if len(found) == len(arrays):
                    self._whole_columns = {
                        spec.name: _cast_lazily(found[spec.name], spec.dtype)
                        for spec in self._specs
                    }
            self._has_checked_whole_columns = True
        return self._whole_columns

    def _read_rows(self, indices: Span, selection: RowSelection) -> list[Element]:
        columns = [self._read_values(spec, indices, selection) for spec in self._specs]
        names = [spec.name for spec in self._specs]
        if not names:
            return [{} for _ in indices]
        return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]

    def _read_values(
        self, spec: ColumnSpec, indices: Span, selection: RowSelection
    ) -> Iterable[Value]:
        if spec.kind == "delegated":
            return [to_numpy(self._delegated[int(index)][spec.name]) for index in indices]
        column = self._columns[spec.name]
        if spec.kind == "strings":
            return column.read_objects(selection)
        values, irregular_rows = column.read_values(selection)
        if spec.kind == "images":
            return _decode(values, spec)
        if spec.dtype is not None:
            irregular = set(irregular_rows)
            values = [
                value if row in irregular else value.astype(spec.dtype, copy=False)
                for row, value in enumerate(values)
            ]
        if irregular_rows and not spec.nulls_are_none:
            dataset = self._get_single_column_dataset(spec)
            for row in irregular_rows:
                values[row] = to_numpy(dataset[int(indices[row])][spec.name])
        return values

    def _get_single_column_dataset(self, spec: ColumnSpec) -> HfDataset:
        """Return the dataset with one column, for values that are null or have another shape."""
        if not self._needs_datasets:  # there is no null, so workers do not have the dataset
            raise SourceError(
                f"A value of the column {spec.name!r} does not have the shape {spec.shape} that "
                "the features of the dataset declare. Cast the column to `List`, or fix the value."
            )
        if spec.name not in self._single_column_datasets:
            self._single_column_datasets[spec.name] = self._dataset.select_columns([spec.name])
        return self._single_column_datasets[spec.name]

    def __getstate__(self) -> dict[str, object]:
        names = ("_specs", "_length", "_needs_datasets", "_description")
        fragments = None if self._needs_datasets else self._split()
        return {
            **{name: vars(self)[name] for name in names},
            "dataset": self._dataset if fragments is None else None,
            "fragments": fragments,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._dataset: HfDataset = state.pop("dataset")
        self._fragments: tuple[Fragments, Fragments | None] | None = state.pop("fragments")
        vars(self).update(state)
        if self._fragments is not None:
            data, order = self._fragments
            self._open(join_fragments(data), None if order is None else join_fragments(order))
            return
        table = to_storage_types(self._dataset.data.table)
        order = get_order_table(self._dataset)
        self._open(table, None if order is None else order.table)

    def _split(self) -> tuple[Fragments, Fragments | None] | None:
        """Return the fragments of the table and of the order of its rows.

        Returns None if the dataset itself must be sent to workers.
        """
        if self._dataset is None:  # this source was unpickled from fragments
            return self._fragments
        names = [spec.name for spec in self._specs]
        data = split_table(self._dataset.data.select(names))
        order_table = get_order_table(self._dataset)
        if data is None:
            return None
        if order_table is None:
            return data, None
        order = split_table(order_table)
        return None if order is None else (data, order)

    def __repr__(self) -> str:  # goes into checkpoints
        return self._description


@final
class TransformedSource:
    """Reads the rows that a function of the user makes (`set_transform`).

    `datasets` reads blocks of rows and passes them to the function.
    """

    def __init__(self, dataset: HfDataset) -> None:
        self._dataset = dataset
        function = dataset.format["format_kwargs"].get("transform")
        name = getattr(function, "__qualname__", type(function).__qualname__)
        short_name = name.rpartition("<locals>.")[2][:80]
        self._description = f"HuggingFaceDataset(<{len(dataset)} rows>, transform={short_name})"

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: SupportsIndex) -> Element:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int] | Span) -> list[Element]:
        numbers = as_indices(indices)
        check_indices(numbers, len(self))
        rows: list[Value] = self._dataset.__getitems__(numbers.tolist()) if len(numbers) else []
        if len(rows) != len(numbers):
            raise SourceError(
                f"The transform of the dataset returned {len(rows)} rows for {len(numbers)}. It "
                "must return one row for each; use `flat_map` for more, and `filter` for fewer."
            )
        return [to_numpy(row) for row in rows]

    def __repr__(self) -> str:  # goes into checkpoints
        return self._description


def get_order_table(dataset: HfDataset) -> HfTable | None:
    """Return the table of row indices after `shuffle` or `select`, or None if rows are in order."""
    return dataset._indices  # noqa: SLF001  (nothing public returns it without reading rows)


def _cast_lazily(array: AnyArray, dtype: AnyDType | None) -> AnyArray | CastArray:
    return array if dtype is None else CastArray(array, dtype)


def _decode(stored: Sequence[StoredImage | None], spec: ColumnSpec) -> Iterable[Value]:
    images = decode_images(stored, spec.mode)
    return map(_move_channels_first, images) if spec.is_channels_first else images


def _move_channels_first(image: AnyArray | None) -> AnyArray | None:
    if image is None:
        return None
    return np.ascontiguousarray(np.atleast_3d(image).transpose(2, 0, 1))


def _describe(dataset: HfDataset, specs: Sequence[ColumnSpec], order: Indices | None) -> str:
    """Describe a dataset by its length, columns, format and the order of its first rows."""
    fields = [
        f"<{len(dataset)} rows>",
        f"columns=[{shorten_names([spec.name for spec in specs])}]",
    ]
    if dataset.format["type"] is not None:
        fields.append(f"format={dataset.format['type']!r}")
    if order is not None:
        first_rows = order[:_NUM_DESCRIBED_ROWS].astype("<i8").tobytes()
        fields.append(f"order={zlib.crc32(first_rows):08x}")
    return f"HuggingFaceDataset({', '.join(fields)})"
