"""Rows of Parquet files."""

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, final

from gristmill._arrow import dense_of, join, load_pyarrow, told_as_ours
from gristmill._check import as_int
from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File, Paths, as_stream, find_files, tell_files
from gristmill.options import StorageOptions
from gristmill.sources._fields import check_names, select
from gristmill.sources._parts import Layout, Part, TableFiles, together
from gristmill.sources._table import TableSource

_ME = "`ParquetSource`"
KIND = "Parquet file"
_READ = {"pre_buffer": True, "page_checksum_verification": True}

_PART_BYTES = 8 * 2**20
"""Row groups smaller than this are read together with their neighbours."""
_MOST_IDLE = 16
"""Readers that nobody uses at the moment, each with the footer of its file."""


@final
class ParquetSource(TableSource):
    """Random access to the rows of Parquet files, as dicts of their columns.

    A row group is decoded as a whole when a row of it is first wanted, and stays in memory: each
    process keeps up to `cache_bytes`, those used last. Shuffled reads of more than that decode
    again and again; give it room, or shuffle within a window. Numbers, and lists of one size of
    numbers, that are never null go to the batch as whole columns.

    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
    ...     pq.write_table(pa.table({"id": [1, 2, 3], "text": ["a", "b", None]}), file.name)
    ...     source = ParquetSource(file.name)
    ...     len(source), source[2]
    (3, {'id': np.int64(3), 'text': None})

    Args:
        paths: A file, or several with the same columns, or a pattern; local or in a store.
        columns: The names of those to read; all by default.
        storage: How files in a store are read.
        cache_bytes: How much decoded data to keep in memory.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        columns: Sequence[str] | None = None,
        storage: StorageOptions | None = None,
        cache_bytes: int = 2**30,
    ) -> None:
        load_pyarrow(_ME)
        refs = find_files(paths, storage)
        super().__init__(
            _ParquetFiles(refs, columns),
            told=tell_files(refs),
            cache_bytes=as_int("cache_bytes", cache_bytes),
        )


class _Footer(NamedTuple):
    schema: Any
    counts: list[int]
    sizes: list[int]
    nullable: set[str]
    """Columns of numbers in which there may be a null."""


@final
class _ParquetFiles(TableFiles):
    """Parquet files, of which each part is some row groups."""

    def forget(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[int, Any]] = []

    def survey(self) -> Layout:
        refs = self.files.refs
        with ThreadPoolExecutor(min(len(refs), refs[0].storage.num_parallel)) as threads:
            footers = list(threads.map(self._footer, range(len(refs))))
        schema = select([footer.schema for footer in footers], self.columns, refs)
        return Layout(
            schema,
            [
                part
                for number, footer in enumerate(footers)
                for part in together(number, footer.counts, footer.sizes, limit=_PART_BYTES)
            ],
            has_nulls=any(not footer.nullable.isdisjoint(schema.names) for footer in footers),
        )

    def read(self, layout: Layout, part: Part) -> list[Any]:
        names = layout.schema.names
        path = self.files.refs[part.file].path
        with self._reader(part.file) as reader, told_as_ours(path, KIND):
            table = reader.read_row_groups(range(part.first, part.stop), columns=names)
        return [join(table.column(name).chunks) for name in names]

    def _footer(self, number: int) -> _Footer:
        with self._reader(number) as reader, told_as_ours(self.files.refs[number].path, KIND):
            schema, metadata = reader.schema_arrow, reader.metadata
            check_names(schema.names, self.files.refs[number].path)
            groups = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
            return _Footer(
                schema,
                [group.num_rows for group in groups],
                [group.total_byte_size for group in groups],
                _nullable(schema, groups),
            )

    @contextmanager
    def _reader(self, number: int) -> Generator[Any]:
        """Lend an open reader to one thread: they cannot be shared."""
        with self._lock:
            place = next((p for p, (home, _) in enumerate(self._idle) if home == number), None)
            reader = None if place is None else self._idle.pop(place)[1]
        reader = reader or open_parquet(self.files[number], _ME, **_READ)
        yield reader
        with self._lock:  # not after an error
            self._idle = [*self._idle[1 - _MOST_IDLE :], (number, reader)]


def open_parquet(file: File, wanted_by: str, **options: Any) -> Any:
    """Open the library's reader, and say what a file is that it cannot read."""
    pa, pq = load_pyarrow(wanted_by), load_pyarrow(wanted_by, "pyarrow.parquet")
    try:
        with told_as_ours(file.ref.path, KIND):
            return pq.ParquetFile(pa.PythonFile(as_stream(file), mode="r"), **options)
    except CorruptFileError as error:
        magic = file.read_one(0, min(4, file.ref.size))
        if magic != b"PAR1":
            raise FormatError(
                f"It is not a Parquet file: it begins with {magic!r} instead of b'PAR1'.",
                path=file.ref.path,
            ) from error
        raise


def _nullable(schema: Any, groups: Sequence[Any]) -> set[str]:
    """Find the columns of numbers that hold a null, or may, as nobody counted."""
    found: set[str] = set()
    leaf = 0
    for field in schema:
        is_dense = dense_of(field.type) is not None  # and then one leaf
        if is_dense and not all(_has_no_null(group.column(leaf)) for group in groups):
            found.add(field.name)
        leaf += _num_leaves(field.type)
    return found


def _has_no_null(chunk: Any) -> bool:
    if not chunk.num_values:
        return True
    counts = chunk.statistics
    return counts is not None and counts.has_null_count and counts.null_count == 0


def _num_leaves(kind: Any) -> int:
    """Count the columns that Parquet stores for one of Arrow's."""
    pa = load_pyarrow(_ME)
    if isinstance(kind, pa.BaseExtensionType):
        return _num_leaves(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return 1
    return sum(_num_leaves(kind.field(n).type) for n in range(kind.num_fields)) or 1
