"""Rows of Parquet files."""

import threading
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, final

from gristmill._check import as_int
from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File, FileRef, Paths, as_stream, find_files
from gristmill.options import StorageOptions
from gristmill.sources._arrow import dense_of, join, load_pyarrow, told_as_ours
from gristmill.sources._fields import check_same, select
from gristmill.sources._table import Layout, Part, TableFiles, TableSource

_ME = "`ParquetSource`"
_PART_BYTES = 8 * 2**20
"""Row groups smaller than this are read together with their neighbours."""
_MOST_IDLE = 16


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
        files = _ParquetFiles(find_files(paths, storage), columns)
        super().__init__(files, cache_bytes=as_int("cache_bytes", cache_bytes))


class _Footer(NamedTuple):
    schema: Any
    counts: list[int]
    sizes: list[int]
    may_be_null: bool


@final
class _ParquetFiles(TableFiles):
    def __init__(self, refs: Sequence[FileRef], columns: Sequence[str] | None) -> None:
        super().__init__(refs, columns)
        self._open_anew()

    def _open_anew(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[tuple[int, Any]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"files": self.files, "columns": self.columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.files, self.columns = state["files"], state["columns"]
        self._open_anew()

    def survey(self) -> Layout:
        refs = self.files.refs
        with ThreadPoolExecutor(min(len(refs), refs[0].storage.num_parallel)) as threads:
            footers = list(threads.map(self._footer, range(len(refs))))
        first = footers[0].schema
        parts: list[Part] = []
        for number, (ref, footer) in enumerate(zip(refs, footers, strict=True)):
            check_same(first, footer.schema, refs[0], ref)
            parts += together(number, footer.counts, footer.sizes, limit=_PART_BYTES)
        return Layout(first, parts, has_nulls=any(footer.may_be_null for footer in footers))

    def read(self, layout: Layout, part: Part) -> list[Any]:
        ...
