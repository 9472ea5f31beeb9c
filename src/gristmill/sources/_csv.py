"""Records of CSV files."""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, SupportsIndex, cast, final

import numpy as np

from gristmill._arrow import load_pyarrow, told_as_ours
from gristmill._check import as_bool
from gristmill._places import gather
from gristmill.errors import FormatError, PlanError, PlanTypeError
from gristmill.files import Paths
from gristmill.options import StorageOptions
from gristmill.sources._csv_parser import CsvParser, infer, parse
from gristmill.sources._csv_records import index_records
from gristmill.sources._fields import as_names, check_names, check_wanted
from gristmill.sources._indexed import IndexedFiles
from gristmill.types import Element, Indices, Span

_ME = "`CsvSource`"
_SAMPLE_BYTES = 2**20
"""How much of the first file tells the types of its columns."""


@final
class CsvSource:
    r"""Random access to the records of CSV files, as dicts of their columns.

    The types of the columns are those of the first megabyte, unless they are given, and then hold
    for all records; a value that does not fit raises. An empty field is None, or in a column of
    text the empty text. The first use of a file looks for its records, and keeps what it finds
    beside the file.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
    ...     _ = file.write(b'id,text\n1,a\n2,"b, c"\n'), file.flush()
    ...     source = CsvSource(file.name, types={"id": "int32"})
    ...     len(source), source[1]
    (2, {'id': np.int32(2), 'text': 'b, c'})

    Args:
        paths: A file, or several with the same columns, or a pattern; local or in a store.
        columns: The names of those to read; all by default.
        types: The types of some columns, by name: pyarrow's, or what pyarrow calls them.
        delimiter: What is between two fields.
        has_header: Whether the first record of each file names the columns. If not, they are
            named f0, f1, and so on.
        storage: How files in a store are read.
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
        load_pyarrow(_ME)
        self._columns = as_names(columns)
        self._types = _as_types(types)
        self._delimiter = _as_delimiter(delimiter)
        self._has_header = as_bool("has_header", has_header)
        named = "csv" if self._has_header else "csv-bare"
        self._shards = IndexedFiles(
            paths,
            storage,
            kind=named if delimiter == "," else f"{named}-{ord(delimiter)}",
            build=partial(index_records, delimiter=delimiter, has_header=self._has_header),
            counted_by="starts",
        )
        self._known: CsvParser | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        _ = self._parser  # which raises where the columns are not those that are wanted
        return len(self._shards.places)

    def __getitem__(self, index: SupportsIndex) -> Element:
        number, within = self._shards.places.locate(index)
        return self._read(number, np.array([within]))[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[Element]:
        return gather(self._shards.places, indices, self._read)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def __repr__(self) -> str:  # goes into checkpoints: without the folder, which may be another
        chosen = "" if self._columns is None else f", columns={self._columns}"
        return f"CsvSource({self._shards.tell()}{chosen})"

    def _read(self, number: int, within: Indices) -> list[Element]:
        parser = self._parser
        file, index = self._shards.files[number], self._shards.index(number)
        starts, stops = index["starts"][within], index["stops"][within]
        if (np.diff(within) == 1).all():  # side by side: line ends and blank lines may stay in
            data = file.read_one(int(starts[0]), int(stops[-1]))
        else:
            data = b"\n".join(file.read(starts, stops))
        try:
            return parser.records(data, len(within))
        except ValueError:
            pass
        records: list[Element] = []
        for record, start, line in zip(within, starts, file.read(starts, stops), strict=True):
            try:
                records += parser.records(line, 1)
            except ValueError as error:
                told = parser.explain(line, error)
                told.path, told.offset, told.record = file.ref.path, int(start), int(record)
                raise told from None
        return records

    @property
    def _parser(self) -> CsvParser:
        if self._known is None:
            with self._lock:  # one thread looks; the others wait for what it finds
                if self._known is None:
                    with told_as_ours(self._shards.files.refs[0].path, "CSV file"):
                        self._known = self._make_parser()
        return self._known

    def _make_parser(self) -> CsvParser:
        names = self._header() if self._has_header else None
        sample = self._sample()
        if names is None:
            names = _numbered(sample, self._delimiter)
        path = self._shards.files.refs[0].path
        check_wanted("columns", self._columns or (), names, path)
        check_wanted("types", self._types, names, path)
        types = infer(sample, self._delimiter, names) | self._types
        wanted = names if self._columns is None else self._columns
        return CsvParser(
            delimiter=self._delimiter, names=names, types={name: types[name] for name in wanted}
        )

    def _header(self) -> list[str]:
        """Give the names of the columns, the same in all files."""
        known: list[str] = []
        for number, ref in enumerate(self._shards.files.refs):
            starts = self._shards.index(number)["starts"]
            head = self._shards.files[number].read_one(
                0, int(starts[0]) if len(starts) else ref.size
            )
            if not head.strip():
                raise FormatError(
                    "The file has no header. Give it one, or pass `has_header=False`.",
                    path=ref.path,
                )
            names: list[str] = parse(head + b"\n", self._delimiter, None, {}).column_names
            check_names(names, ref.path)
            if number and names != known:
                raise FormatError(
                    f"The columns are {names}, and those of the first file {known}. All files of "
                    "a source must have the same, in the same order.",
                    path=ref.path,
                )
            known = names
        return known

    def _sample(self) -> bytes:
        """Give the first records, of the first file that has some."""
        for number in range(len(self._shards.files)):
            index = self._shards.index(number)
            starts, stops = index["starts"], index["stops"]
            if len(starts):
                first = int(starts[0])
                last = max(0, int(np.searchsorted(stops, first + _SAMPLE_BYTES)) - 1)
                return self._shards.files[number].read_one(first, int(stops[last]))
        return b""


def _numbered(sample: bytes, delimiter: str) -> list[str]:
    """Name the fields of the first record."""
    width = parse(sample, delimiter, None, {}, skips_bad=True).num_columns if sample else 0
    return [f"f{number}" for number in range(width)]


def _as_types(types: Any) -> dict[str, Any]:
    """Take the types of columns, by pyarrow's names or as its objects."""
    if types is None:
        return {}
    if not isinstance(types, Mapping):
        raise PlanTypeError(f"`types` must be a dict of names and types, got {types!r}.")
    given = cast("Mapping[str, Any]", types)
    return {name: _as_type(name, kind) for name, kind in given.items()}


def _as_type(name: str, kind: Any) -> Any:
    pa = load_pyarrow(_ME)
    remedy = "Use what pyarrow calls it, such as 'int64', 'float32', 'string', 'timestamp[ms]'."
    if isinstance(kind, str):
        try:
            kind = pa.type_for_alias(kind)
        except ValueError:
            raise PlanError(f"`types` gives {name!r} the type {kind!r}. {remedy}") from None
    if not isinstance(kind, pa.DataType):
        raise PlanTypeError(f"`types` must hold types, got {kind!r} for {name!r}. {remedy}")
    try:
        parse(b"x", ",", ["x"], {"x": kind})
    except pa.ArrowNotImplementedError:
        raise PlanError(f"`types` gives {name!r} the type {kind}, which no CSV has.") from None
    except ValueError:
        pass  # another text would be one
    return kind


def _as_delimiter(delimiter: Any) -> str:
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise PlanError(f"`delimiter` must be one character, and no quote, got {delimiter!r}.")
    if not delimiter.isascii():
        raise PlanError(f"`delimiter` must be an ASCII character, got {delimiter!r}.")
    return delimiter
