"""A source over CSV files."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, SupportsIndex, cast, final

import numpy as np

from gristmill._base.checks import as_bool
from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import gather
from gristmill._data.sources.records.indexed_files import IndexedFiles
from gristmill._data.sources.tables.arrow_values import (
    ArrowTable,
    ArrowType,
    as_system_error,
    load_pyarrow,
    to_rows,
    translate_arrow_errors,
)
from gristmill._data.sources.tables.columns import as_names, check_names, check_selected
from gristmill._data.sources.tables.csv_parser import CsvParser, infer_types, parse
from gristmill._data.sources.tables.csv_records import index_records
from gristmill._io.paths import Paths
from gristmill.errors import FormatError, PlanError, PlanTypeError
from gristmill.options import StorageOptions
from gristmill.types import Element, Indices, Span

_WANTED_BY = "`CsvSource`"
_SAMPLE_BYTES = 2**20
"""How much of the first file to read to infer the types of its columns."""


@final
class CsvSource:
    r"""Random access to the records of CSV files, as dicts of their columns.

    The types of the columns are inferred from the first megabyte, unless `types` sets them. They
    apply to all records; a value that does not fit is an error. An empty field is `None`, or the
    empty string in a column of strings. The first use of a file finds its records, and stores their
    locations in an index file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
    ...     _ = file.write(b'id,text\n1,a\n2,"b, c"\n'), file.flush()
    ...     source = CsvSource(file.name, types={"id": "int32"})
    ...     len(source), source[1]
    (2, {'id': np.int32(2), 'text': 'b, c'})

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them. All files must have the same
            columns.
        columns: The names of the columns to read, by default all.
        types: The types of some columns, by name: pyarrow types, or their names as strings.
        delimiter: The character between two fields.
        has_header: Whether the first record of each file contains the names of the columns. If
            not, the columns are named f0, f1, and so on.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        PlanError: If `delimiter` is not one ASCII character, or a type is not one of Arrow.
        MissingExtraError: If pyarrow is not installed.
        FormatError: When records are first read, if a file is not text in UTF-8, or its header does
            not fit.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        types: Mapping[str, Any] | None = None,
        delimiter: str = ",",
        has_header: bool = True,
        storage: StorageOptions | None = None,
    ) -> None:
        load_pyarrow(_WANTED_BY)
        self._columns = as_names(columns)
        self._types = _as_types(types)
        self._delimiter = _as_delimiter(delimiter)
        self._has_header = as_bool("has_header", has_header)
        kind = "csv" if self._has_header else "csv-bare"
        self._files = IndexedFiles(
            paths,
            storage,
            kind=kind if delimiter == "," else f"{kind}-{ord(delimiter)}",
            build=partial(index_records, delimiter=delimiter, has_header=self._has_header),
            count_by="starts",
        )
        self._loaded_parser: CsvParser | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        _ = self._parser  # raises if a selected column does not exist
        return len(self._files.locator)

    def __getitem__(self, index: SupportsIndex) -> Element:
        number, within = self._files.locator.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        return gather(self._files.locator, indices, self._read)

    def read_table(self, indices: Span, /) -> ArrowTable:
        """Return consecutive records as a table of pyarrow.

        Args:
            indices: The indices of the records, in increasing order.
        """
        selections = self._files.locator.split(indices)
        tables = [self._read_table(number, within) for number, within, _ in selections]
        return load_pyarrow(_WANTED_BY).concat_tables(tables)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        return self._files.location(index, "starts")

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        selected = "" if self._columns is None else f", columns={self._columns}"
        return f"CsvSource({self._files.describe()}{selected})"

    def _read(self, number: int, within: Indices) -> list[Element]:
        return to_rows(self._read_table(number, within))

    def _read_table(self, number: int, within: Indices) -> ArrowTable:
        parser = self._parser
        file, index = self._files.files[number], self._files.index(number)
        starts, stops = index["starts"][within], index["stops"][within]
        if (np.diff(within) == 1).all():  # consecutive: line ends and blank lines need no removal
            data = file.read_one(int(starts[0]), int(stops[-1]))
        else:
            data = b"\n".join(file.read(starts, stops))
        try:
            return parser.parse_table(data, len(within))
        except OSError as error:  # of the system, such as a thread that cannot be started
            raise as_system_error(error, file.ref.path) from error
        except ValueError:
            pass  # find the record that is wrong
        tables: list[ArrowTable] = []
        for record, start, line in zip(within, starts, file.read(starts, stops), strict=True):
            try:
                tables.append(parser.parse_table(line, 1))
            except ValueError as error:
                explained = parser.explain_error(line, error)
                explained.path, explained.offset = file.ref.path, int(start)
                explained.record = int(record)
                raise explained from None
        return load_pyarrow(_WANTED_BY).concat_tables(tables)

    @property
    def _parser(self) -> CsvParser:
        if self._loaded_parser is None:
            with self._lock:  # one thread reads the headers while the others wait
                if self._loaded_parser is None:
                    with translate_arrow_errors(self._files.files.refs[0].path, "CSV file"):
                        self._loaded_parser = self._make_parser()
        return self._loaded_parser

    def _make_parser(self) -> CsvParser:
        names = self._read_header() if self._has_header else None
        sample = self._read_sample()
        if names is None:
            names = _number_fields(sample, self._delimiter)
        path = self._files.files.refs[0].path
        check_selected("columns", self._columns or (), names, path)
        check_selected("types", self._types, names, path)
        types = infer_types(sample, self._delimiter, names) | self._types
        selected = names if self._columns is None else self._columns
        return CsvParser(
            delimiter=self._delimiter, names=names, types={name: types[name] for name in selected}
        )

    def _read_header(self) -> list[str]:
        """Return the names of the columns, and check that all files have the same."""
        first_names: list[str] = []
        for number, ref in enumerate(self._files.files.refs):
            starts = self._files.index(number)["starts"]
            file = self._files.files[number]
            head = file.read_one(0, int(starts[0]) if len(starts) else file.ref.size)
            if not head.strip():
                raise FormatError(
                    "The file has no header. Add one, or pass `has_header=False`.",
                    path=ref.path,
                )
            names: list[str] = parse(head + b"\n", self._delimiter, None, {}).column_names
            check_names(names, ref.path)
            if number and names != first_names:
                raise FormatError(
                    f"The columns are {names}, but those of the first file are {first_names}. All "
                    "files of a source must have the same columns in the same order.",
                    path=ref.path,
                )
            first_names = names
        return first_names

    def _read_sample(self) -> bytes:
        """Return the first records of the first file that has any."""
        for number in range(len(self._files.files)):
            index = self._files.index(number)
            starts, stops = index["starts"], index["stops"]
            if len(starts):
                first = int(starts[0])
                last = max(0, int(np.searchsorted(stops, first + _SAMPLE_BYTES)) - 1)
                return self._files.files[number].read_one(first, int(stops[last]))
        return b""


def _number_fields(sample: bytes, delimiter: str) -> list[str]:
    """Return names for the fields of the first record."""
    width = parse(sample, delimiter, None, {}, skip_invalid=True).num_columns if sample else 0
    return [f"f{number}" for number in range(width)]


def _as_types(types: object) -> dict[str, ArrowType]:
    if types is None:
        return {}
    if not isinstance(types, Mapping):
        raise PlanTypeError(f"`types` must be a dict of names and types, got {types!r}.")
    by_name = cast("Mapping[str, object]", types)
    return {name: _as_type(name, value) for name, value in by_name.items()}


def _as_type(name: str, value: object) -> ArrowType:
    """Return a pyarrow type that CSV files can contain, from itself or its name."""
    pa = load_pyarrow(_WANTED_BY)
    remedy = "Use a name of pyarrow, such as 'int64', 'float32', 'string', 'timestamp[ms]'."
    if isinstance(value, str):
        try:
            value = pa.type_for_alias(value)
        except ValueError:
            raise PlanError(f"`types` sets {name!r} to the type {value!r}. {remedy}") from None
    if not isinstance(value, pa.DataType):
        raise PlanTypeError(f"`types` must hold types, got {value!r} for {name!r}. {remedy}")
    try:
        parse(b"x", ",", ["x"], {"x": value})
    except pa.ArrowNotImplementedError:
        raise PlanError(
            f"`types` sets {name!r} to the type {value}, which cannot be read from CSV."
        ) from None
    except ValueError:
        pass  # "x" is not such a value, but another string may be
    return value


def _as_delimiter(delimiter: object) -> str:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise PlanError(f"`delimiter` must be one character, and not a quote, got {delimiter!r}.")
    if not delimiter.isascii():
        raise PlanError(f"`delimiter` must be an ASCII character, got {delimiter!r}.")
    return delimiter
