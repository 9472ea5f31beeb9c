"""A source over Parquet files."""

import threading
from collections.abc import Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol, final

from gristmill._base.checks import as_int
from gristmill._data.sources.tables.arrow_values import (
    ArrowArray,
    ArrowSchema,
    ArrowTable,
    ArrowType,
    concatenate,
    dense_of,
    load_pyarrow,
    translate_arrow_errors,
)
from gristmill._data.sources.tables.columns import check_names, select
from gristmill._data.sources.tables.parquet_footer import (
    PHYSICAL_TYPES,
    ColumnChunk,
    RowGroup,
    contradiction,
    read_row_groups,
    read_tail,
)
from gristmill._data.sources.tables.table import TableSource
from gristmill._data.sources.tables.table_files import (
    ChunkSpec,
    TableFiles,
    TableLayout,
    group_chunks,
)
from gristmill._io.file import File, describe_files
from gristmill._io.file_object import as_file_object
from gristmill._io.paths import Paths, find_files
from gristmill.errors import CorruptFileError, FormatError
from gristmill.options import StorageOptions

_WANTED_BY = "`ParquetSource`"
FORMAT_NAME = "Parquet file"
_READER_OPTIONS = {"pre_buffer": True, "page_checksum_verification": True}

_CHUNK_BYTES = 8 * 2**20
"""Row groups smaller than this are read together with their neighbours."""
_MAX_IDLE_READERS = 16
"""Open readers that no thread uses at the moment, each with the footer of its file."""


@final
class ParquetSource(TableSource):
    """Random access to the rows of Parquet files, as dicts of their columns.

    A row group is decoded as a whole when one of its rows is first read. Each process caches up to
    `cache_bytes` of decoded row groups, the most recently used ones. Shuffled reads of a larger
    table decode the same row groups repeatedly: raise `cache_bytes`, or shuffle within a window.
    Numbers and fixed-size lists of numbers that are never null are read as whole columns.

    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pq.write_table(pa.table({"id": [1, 2, 3], "text": ["a", "b", None]}), file.name)
    ...     source = ParquetSource(file.name)
    ...     len(source), source[2]
    (3, {'id': np.int64(3), 'text': None})

    Args:
        paths: A path, a URL, a pattern with `*`, or a list of them. All files must have the same
            columns.
        columns: The names of the columns to read, by default all.
        storage: How files in a store are read.
        cache_bytes: The size of the cache of decoded row groups, in each process.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        PlanError: If `cache_bytes` is negative.
        MissingExtraError: If pyarrow is not installed.
        FormatError: When records are first read, if a file is not a Parquet file.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        storage: StorageOptions | None = None,
        cache_bytes: int = 2**30,
    ) -> None:
        load_pyarrow(_WANTED_BY)
        refs = find_files(paths, storage)
        super().__init__(
            _ParquetFiles(refs, columns),
            description=describe_files(refs),
            cache_bytes=as_int("cache_bytes", cache_bytes),
        )


class ParquetFile(Protocol):
    """What gristmill uses of `pyarrow.parquet.ParquetFile`."""

    metadata: Any
    """The `FileMetaData`. Its descriptions of column chunks are not safe: see `parquet_footer`."""
    num_row_groups: int
    schema_arrow: ArrowSchema

    def close(self) -> None:
        """Close the file."""

    def read_row_group(self, number: int, /) -> ArrowTable:
        """Read one row group."""

    def read_row_groups(self, numbers: Iterable[int], /, columns: Sequence[str]) -> ArrowTable:
        """Read some columns of several row groups."""


class _Footer(NamedTuple):
    """The metadata of a file."""

    schema: ArrowSchema
    counts: list[int]
    """Rows of each row group."""
    sizes: list[int]
    """Bytes of each row group."""
    nullable: set[str]
    """Dense columns that may contain a null."""


@final
class _ParquetFiles(TableFiles):
    """Parquet files, whose chunks are groups of row groups."""

    def reset(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[int, ParquetFile]] = []

    def read_layout(self) -> TableLayout:
        refs = self.files.refs
        with ThreadPoolExecutor(min(len(refs), refs[0].storage.num_parallel)) as threads:
            footers = list(threads.map(self._read_footer, range(len(refs))))
        schema = select([footer.schema for footer in footers], self.columns, refs)
        return TableLayout(
            schema,
            [
                chunk
                for number, footer in enumerate(footers)
                for chunk in group_chunks(
                    number, footer.counts, footer.sizes, max_bytes=_CHUNK_BYTES
                )
            ],
            has_nulls=any(not footer.nullable.isdisjoint(schema.names) for footer in footers),
        )

    def read_chunk(self, layout: TableLayout, chunk: ChunkSpec) -> list[ArrowArray]:
        names = layout.schema.names
        path = self.files.refs[chunk.file].path
        with self._reader(chunk.file) as reader, translate_arrow_errors(path, FORMAT_NAME):
            table = reader.read_row_groups(range(chunk.first, chunk.stop), columns=names)
        return [concatenate(table.column(name).chunks) for name in names]

    def _read_footer(self, number: int) -> _Footer:
        path = self.files.refs[number].path
        file = self.files[number]
        tail = read_tail(file)
        buffer = load_pyarrow(_WANTED_BY).BufferReader(tail)
        reader = _open(buffer, file, _WANTED_BY, {})
        with translate_arrow_errors(path, FORMAT_NAME):
            schema = reader.schema_arrow
        check_names(schema.names, path)
        num_rows, groups = read_row_groups(tail, path)
        _check_groups(reader.metadata.schema, num_rows, groups, path)
        return _Footer(
            schema,
            [group.num_rows for group in groups],
            [group.num_bytes for group in groups],
            _find_nullable(schema, groups),
        )

    @contextmanager
    def _reader(self, number: int) -> Generator[ParquetFile]:
        """Provide an open reader of a file. Threads cannot share a reader."""
        with self._lock:
            at = next((at for at, (file, _) in enumerate(self._idle) if file == number), None)
            reader = None if at is None else self._idle.pop(at)[1]
        reader = reader or open_parquet(self.files[number], _WANTED_BY, **_READER_OPTIONS)
        yield reader
        with self._lock:  # not reached after an error, so that a failed reader is not used again
            self._idle = [*self._idle[1 - _MAX_IDLE_READERS :], (number, reader)]


def open_parquet(file: File, wanted_by: str, **options: object) -> ParquetFile:
    """Open a `pyarrow.parquet.ParquetFile`, or raise if the file is not one.

    Args:
        file: The file.
        wanted_by: What needs pyarrow, for the error if it is missing.
        **options: Further arguments of `ParquetFile`.
    """
    stream = load_pyarrow(wanted_by).PythonFile(as_file_object(file), mode="r")
    return _open(stream, file, wanted_by, options)


def _open(stream: object, file: File, wanted_by: str, options: Mapping[str, object]) -> ParquetFile:
    """Open a Parquet file from a stream of it, or of its last bytes."""
    pq = load_pyarrow(wanted_by, "pyarrow.parquet")
    try:
        with translate_arrow_errors(file.ref.path, FORMAT_NAME):
            return pq.ParquetFile(stream, **options)
    except CorruptFileError as error:
        magic = file.read_one(0, min(4, file.ref.size))
        if magic != b"PAR1":
            raise FormatError(
                f"The file is not a Parquet file: it begins with {magic!r} instead of b'PAR1'.",
                path=file.ref.path,
            ) from error
        raise


def _check_groups(schema: Any, num_rows: int, groups: Sequence[RowGroup], path: str) -> None:
    """Raise if the row groups contradict the rest of the footer."""
    counts = [group.num_rows for group in groups]
    leaves = map(schema.column, range(len(schema)))
    types = [PHYSICAL_TYPES.index(leaf.physical_type) for leaf in leaves]
    is_valid = (
        min(counts, default=0) >= 0
        and sum(counts) == num_rows
        and all(group.num_bytes >= 0 for group in groups)
        and all([column.type_number for column in group.columns] == types for group in groups)
    )
    if not is_valid:
        raise contradiction(path)


def _find_nullable(schema: ArrowSchema, groups: Sequence[RowGroup]) -> set[str]:
    """Return the dense columns that contain a null, or may contain one as there is no count."""
    nullable: set[str] = set()
    leaf = 0
    for field in schema:
        is_dense = dense_of(field.type) is not None  # a dense column has one leaf
        if is_dense and not all(_has_no_null(group.columns[leaf]) for group in groups):
            nullable.add(field.name)
        leaf += _num_leaves(field.type)
    return nullable


def _has_no_null(column: ColumnChunk) -> bool:
    """Return whether a column of a row group is known to have no null."""
    return not column.num_values or column.num_nulls == 0


def _num_leaves(arrow_type: ArrowType) -> int:
    """Return the number of columns in which Parquet stores an Arrow column."""
    pa = load_pyarrow(_WANTED_BY)
    if isinstance(arrow_type, pa.BaseExtensionType):
        return _num_leaves(arrow_type.storage_type)
    if pa.types.is_dictionary(arrow_type):
        return 1
    return sum(_num_leaves(arrow_type.field(n).type) for n in range(arrow_type.num_fields)) or 1
