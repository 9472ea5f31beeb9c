"""Text of CSV to records, by one set of column types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from gristmill._arrow import join, load_pyarrow, to_values
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.types import Element

_ME = "`CsvSource`"
_NULLS = ["", "NA", "N/A", "#N/A", "NULL", "null"]
"""What stands for no value where a column is not text. Not `NaN`, which is a number."""
_WIDER = ("float64", "timestamp[ns]", "string", "binary")
"""What to propose for a value that does not fit, the first that does."""


@final
@dataclass(frozen=True, kw_only=True)
class CsvParser:
    """How to read records: what the fields are named, which are wanted, and of what type."""

    delimiter: str
    names: Sequence[str]
    types: Mapping[str, Any]
    """Of pyarrow, for the wanted columns, in their order."""

    def records(self, data: bytes, count: int) -> list[Element]:
        """Give the records of a text that holds `count` of them, or raise `ValueError`."""
        table = self._table(data, self.types)
        if len(table) != count:
            raise ValueError(f"Expected {count} records, got {len(table)}")
        columns = [to_values(join(table.column(name).chunks)) for name in self.types]
        return [dict(zip(self.types, row, strict=True)) for row in zip(*columns, strict=True)]

    def explain(self, line: bytes, error: ValueError) -> FileError:
        """Say what is wrong with a record that could not be read."""
        text = load_pyarrow(_ME).binary()
        try:
            fields = self._table(line, dict.fromkeys(self.types, text)).to_pylist()[0]
        except (ValueError, IndexError):
            return CorruptFileError(
                f"The record does not have {len(self.names)} fields: {_shorten(line)}. Correct "
                "it, or leave such records out with `SkipErrors`."
            )
        for name, kind in self.types.items():
            if not self._fits(line, name, kind):
                wider = next(kind for kind in _WIDER if self._fits(line, name, kind))
                return FormatError(
                    f"Column {name!r} is {kind}, and {_shorten(fields[name])} is not. Correct it, "
                    f"or give the column a type that fits all its values, such as "
                    f"`types={{{name!r}: {wider!r}}}`."
                )
        return CorruptFileError(f"The record cannot be read: {error}.")

    def _fits(self, line: bytes, name: str, kind: Any) -> bool:
        try:
            return len(self._table(line, {name: kind})) == 1
        except ValueError:
            return False

    def _table(self, data: bytes, types: Mapping[str, Any]) -> Any:
        return parse(data, self.delimiter, self.names, types)


def infer(sample: bytes, delimiter: str, names: Sequence[str]) -> dict[str, Any]:
    """Give the types of the columns in a sample; where there are no values, text.

    >>> {name: str(kind) for name, kind in infer(b"1,a,", ",", ["x", "y", "z"]).items()}
    {'x': 'int64', 'y': 'string', 'z': 'string'}
    """
    pa = load_pyarrow(_ME)
    if not sample:
        return dict.fromkeys(names, pa.string())
    schema = parse(sample, delimiter, names, {}, skips_bad=True).schema
    return {
        name: pa.string() if pa.types.is_null(kind) else kind
        for name, kind in zip(names, schema.types, strict=True)
    }


def parse(
    data: bytes,
    delimiter: str,
    names: Sequence[str] | None,
    types: Mapping[str, Any],
    *,
    skips_bad: bool = False,
) -> Any:
    """Give a table; without `names` the first record has them, without `types` all columns."""
    pa, csv = load_pyarrow(_ME), load_pyarrow(_ME, "pyarrow.csv")
    return csv.read_csv(
        pa.BufferReader(data),
        csv.ReadOptions(
            column_names=names,
            use_threads=False,  # a block of records is too little to share out
            block_size=len(data) + 1,
        ),
        csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            invalid_row_handler=_skip if skips_bad else None,
        ),
        csv.ConvertOptions(
            column_types=dict(types), include_columns=list(types), null_values=_NULLS
        ),
    )


def _skip(_: Any) -> str:
    return "skip"


def _shorten(text: bytes) -> str:
    told = text[:40].decode("utf-8", "replace")
    return f"{told!r}{'...' if len(text) > 40 else ''}"
