"""Parse CSV records with fixed column types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

from gristmill._data.sources.file_head import UTF8_BOM
from gristmill._data.sources.tables.arrow_values import (
    ArrowTable,
    ArrowType,
    load_pyarrow,
)
from gristmill.errors import CorruptFileError, FileError, FormatError

_WANTED_BY = "`CsvSource`"
_NULLS = ["", "NA", "N/A", "#N/A", "NULL", "null"]
"""Fields that are null in a column of another type than string. Not `NaN`, which is a number."""
_WIDER_TYPES = ("float64", "timestamp[ns]", "string", "binary")
"""Types to suggest for a value that does not fit: the first that does."""


@final
@dataclass(frozen=True, kw_only=True)
class CsvParser:
    """Parses records of files that have the same columns."""

    delimiter: str
    names: Sequence[str]
    """The names of all fields."""
    types: Mapping[str, ArrowType]
    """The types of the selected columns, in their order."""

    def parse_table(self, data: bytes, count: int) -> ArrowTable:
        """Return the records in `data`, or raise `ValueError` unless there are `count` of them."""
        table = self._parse(data, self.types)
        if len(table) != count:
            raise ValueError(f"Expected {count} records, got {len(table)}")
        return table

    def explain_error(self, line: bytes, error: ValueError) -> FileError:
        """Return an error that explains why a record could not be parsed."""
        binary = load_pyarrow(_WANTED_BY).binary()
        try:
            fields = self._parse(line, dict.fromkeys(self.types, binary)).to_pylist()[0]
        except (ValueError, IndexError):
            return CorruptFileError(
                f"The record does not have {len(self.names)} fields: {_excerpt(line)}. Correct "
                "it, or skip such records with `SkipErrors`."
            )
        for name, arrow_type in self.types.items():
            if not self._fits(line, name, arrow_type):
                wider = next(wider for wider in _WIDER_TYPES if self._fits(line, name, wider))
                return FormatError(
                    f"Column {name!r} is {arrow_type}, but {_excerpt(fields[name])} is not. "
                    "Correct it, or set the type of the column to one that fits all its values, "
                    f"such as `types={{{name!r}: {wider!r}}}`."
                )
        return CorruptFileError(f"The record cannot be read: {error}.")

    def _fits(self, line: bytes, name: str, arrow_type: ArrowType) -> bool:
        try:
            return len(self._parse(line, {name: arrow_type})) == 1
        except ValueError:
            return False

    def _parse(self, data: bytes, types: Mapping[str, ArrowType]) -> ArrowTable:
        return parse(data, self.delimiter, self.names, types)


def infer_types(sample: bytes, delimiter: str, names: Sequence[str]) -> dict[str, ArrowType]:
    """Return the types of the columns in a sample; `string` for a column without values.

    >>> {name: str(kind) for name, kind in infer_types(b"1,a,", ",", ["x", "y", "z"]).items()}
    {'x': 'int64', 'y': 'string', 'z': 'string'}
    """
    pa = load_pyarrow(_WANTED_BY)
    if not sample:
        return dict.fromkeys(names, pa.string())
    schema = parse(sample, delimiter, names, {}, skip_invalid=True).schema
    return {
        name: pa.string() if pa.types.is_null(arrow_type) else arrow_type
        for name, arrow_type in zip(names, schema.types, strict=True)
    }


def parse(
    data: bytes,
    delimiter: str,
    names: Sequence[str] | None,
    types: Mapping[str, ArrowType],
    *,
    skip_invalid: bool = False,
) -> ArrowTable:
    """Parse CSV as a pyarrow table.

    Args:
        data: The records.
        delimiter: The character between two fields.
        names: The names of the fields. If `None`, the first record contains them.
        types: The types of the columns to return. If empty, all columns, with inferred types.
        skip_invalid: Whether to skip records with another number of fields instead of raising.
    """
    pa, csv = load_pyarrow(_WANTED_BY), load_pyarrow(_WANTED_BY, "pyarrow.csv")
    if names is not None and data.startswith(UTF8_BOM):
        data = UTF8_BOM + data  # pyarrow drops one, which here is a character of the first record
    return csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(
            column_names=names,
            use_threads=False,  # a block of records is too small to parse in parallel
            block_size=len(data) + 1,
        ),
        csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=_skip if skip_invalid else None,
        ),
        csv.ConvertOptions(
            column_types=dict(types), include_columns=list(types), null_values=_NULLS
        ),
    )


def _skip(_: object) -> str:
    return "skip"


def _excerpt(data: bytes) -> str:
    shown = data[:40].decode("utf-8", "replace")
    return f"{shown!r}{'...' if len(data) > 40 else ''}"
