"""A source over the rows of a SQLite table or query."""

import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import SupportsIndex, final

import numpy as np

from gristmill._base.checks import as_kind
from gristmill._base.indices import check_index, check_indices
from gristmill._data.sources.sqlite.connection import Database, quote
from gristmill._data.sources.sqlite.query import store_query
from gristmill._io.file import FileRef
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill.errors import ChangedFileError, CorruptFileError, PlanError
from gristmill.options import StorageOptions
from gristmill.types import Element, Indices, Span

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_MAX_PARAMETERS = 500
"""Parameters of one statement; SQLite supports at least 999."""

_MIN_RUN = 8
"""Consecutive rows for which a statement of their own is worth its cost."""


@final
class SqliteSource:
    """Random access to the rows of a table or a query, as dicts.

    Rows of a table are in the order of their rowids, which are read on first use. A query is run
    once, on first use, and its rows are stored in the user's cache folder until the database
    changes. So all processes and later runs see the same rows in the same order. Views, and tables
    without rowids or with virtual columns, are read like queries.

    >>> import pathlib, sqlite3, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "pets.db")
    ...     database = sqlite3.connect(path)
    ...     _ = database.execute("CREATE TABLE pets (name TEXT, legs INTEGER)")
    ...     _ = database.execute("INSERT INTO pets VALUES ('cat', 4), ('hen', 2)")
    ...     database.commit(), database.close()
    ...     source = SqliteSource(path, table="pets")
    ...     len(source), source[1]
    (None, None)
    (2, {'name': 'hen', 'legs': 2})

    Args:
        path: The path or URL of the database. A database in a store is downloaded first.
        table: The table or view to read. Not needed if the database has only one.
        query: The `SELECT` statement to read instead of a table.
        storage: How a file in a store is fetched.

    Raises:
        MissingFileError: If there is no such file.
        PlanTypeError: If an argument has the wrong type.
        PlanError: If both `table` and `query` are passed, or neither and there are several tables.
        FormatError: When records are first read, if the file is not an SQLite database.
        CorruptFileError: When records are read, if the file is damaged.
        ChangedFileError: When records are read, if the database has changed since.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        table: str | None = None,
        query: str | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        if table is not None and query is not None:
            raise PlanError("Pass either a `table` or a `query`, not both.")
        for name, value in (("table", table), ("query", query)):
            if value is not None:
                as_kind(name, value, str, remedy="Pass a string.")
        self._files = OpenFiles([find_file(path, storage)])
        self._table = table
        self._query = query
        self._rows: _Rows | None = None
        self._database: Database | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open()[0].rowids)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Element]:
        return self.__getitems__([check_index(index, len(self))])[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Element]]:
        rows, database = self._open()
        numbers = np.asarray(indices, dtype=np.int64)
        check_indices(numbers, len(rows.rowids))
        self._check_unchanged()
        with database.connection() as connection:
            found = _select(connection, rows, np.unique(numbers))
        try:
            values = [found[rowid] for rowid in rows.rowids[numbers].tolist()]
        except KeyError as error:
            raise _changed(
                self._files.refs[0], f"Row {error.args[0]} has been removed from the database"
            ) from None
        return [dict(zip(rows.names, row, strict=False)) for row in values]

    def __repr__(self) -> str:  # part of checkpoints: without the folder, as data may move
        name = self._files.refs[0].name
        options = {"table": self._table, "query": self._query}
        listed = [f", {key}={value!r}" for key, value in options.items() if value is not None]
        return f"SqliteSource({name!r}{''.join(listed)})"

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "_database": None, "_lock": None}

    def __setstate__(self, state: dict[str, object]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _open(self) -> "tuple[_Rows, Database]":
        with self._lock:
            if self._rows is None or self._database is None:
                self._rows, self._database = self._find_rows()
            return self._rows, self._database

    def _check_unchanged(self) -> None:
        # By path, because a connection that is opened later would read another version.
        ref = self._files.refs[0]
        if ref.is_local and find_file(ref.path, ref.storage) != ref:
            raise _changed(ref, "The database has changed since this source was created")

    def _find_rows(self) -> "tuple[_Rows, Database]":
        """Open the database that contains the rows, and number them if that is not done yet."""
        ref = self._files.refs[0]
        timeout_s = ref.storage.timeout_s
        database = Database(self._files[0].local_path(), timeout_s=timeout_s)
        rows, table = self._rows, self._table
        if table is None and self._query is None:
            table = _only_table(database)
        if rows is None and table is not None:
            rows = _rows_of_table(database, table)
        if rows is not None and not rows.is_stored_query:
            return rows, database
        query = f"SELECT * FROM {quote(table)}" if table else self._query or ""
        stored = Database(store_query(database, query, ref), timeout_s=timeout_s)
        return rows or _rows_of_query(stored), stored


@final
@dataclass(frozen=True, kw_only=True)
class _Rows:
    """The rows of a source: their ids in a table, and the names of its columns."""

    table: str
    rowid: str
    """The name of the rowid column."""
    names: tuple[str, ...]
    rowids: Indices
    is_stored_query: bool
    """Whether the table is in the database with the stored rows of a query."""


def _tables_and_views(connection: sqlite3.Connection) -> dict[str, str]:
    """Return the names of all tables and views, each with 'table' or 'view'."""
    return dict(
        connection.execute(
            "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
        )
    )


def _only_table(database: Database) -> str:
    with database.connection() as connection:
        tables = _tables_and_views(connection)
    if len(tables) != 1:
        listed = ", ".join(map(repr, tables)) or "no tables"
        raise PlanError(f"The database has {listed}. Choose one with `table`, or pass a `query`.")
    return next(iter(tables))


def _rows_of_table(database: Database, table: str) -> _Rows | None:
    """Number the rows of a table; return `None` if it has no rowids."""
    with database.connection() as connection:
        tables = _tables_and_views(connection)
        name = next((name for name in tables if name.lower() == table.lower()), None)
        if name is None:
            listed = ", ".join(map(repr, tables)) or "no tables"
            raise PlanError(
                f"`table` must be a table of the database, got {table!r}: it has {listed}."
            )
        columns = connection.execute(f"SELECT * FROM {quote(name)} LIMIT 0").description
        names = tuple(str(column[0]) for column in columns)
        used = {name.lower() for name in names}
        rowid = next((alias for alias in _ROWID_NAMES if alias not in used), None)
        is_view = tables[name] == "view"
        if is_view or rowid is None or not _has_column(connection, quote(name), rowid):
            return None
        if _is_computed(connection, name):
            return None
        found = connection.execute(f"SELECT {rowid} FROM {quote(name)} ORDER BY {rowid}")
        rowids = np.fromiter((row[0] for row in found), dtype=np.int64)
    if (np.diff(rowids) <= 0).any():  # SQLite does not check the order of a damaged table
        raise CorruptFileError(
            f"The rows of table {name!r} are not in the order of their rowids: the database is "
            "damaged. Copy it again, or recover its content with `.recover` in the `sqlite3` "
            "program.",
            path=str(database.path),
        )
    return _Rows(table=quote(name), rowid=rowid, names=names, rowids=rowids, is_stored_query=False)


def _is_computed(connection: sqlite3.Connection, table: str) -> bool:
    """Return whether a table has columns that are computed when they are read, of any size."""
    select = "SELECT 1 FROM pragma_table_xinfo(?) WHERE hidden = 2"
    return connection.execute(select, (table,)).fetchone() is not None


def _has_column(connection: sqlite3.Connection, table: str, column: str) -> bool:
    try:
        connection.execute(f"SELECT {column} FROM {table} LIMIT 0")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # for example locked or damaged
            raise
        return False
    return True


def _rows_of_query(stored: Database) -> _Rows:
    with stored.connection() as connection:
        names = tuple(name for (name,) in connection.execute("SELECT name FROM names"))
        count: int = connection.execute("SELECT count(*) FROM records").fetchone()[0]
    rowids = np.arange(1, count + 1, dtype=np.int64)
    return _Rows(table="records", rowid="rowid", names=names, rowids=rowids, is_stored_query=True)


def _select(
    connection: sqlite3.Connection, rows: _Rows, numbers: Indices
) -> dict[int, tuple[Element, ...]]:
    """Return rows by their rowid.

    Args:
        connection: To the database that contains the rows.
        rows: All rows of the source.
        numbers: The indices of the rows to read, sorted. A run of them is one range of rowids.
    """
    select = f"SELECT *, {rows.rowid} FROM {rows.table} WHERE {rows.rowid}"
    found: dict[int, tuple[Element, ...]] = {}
    single: list[int] = []
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        ids: list[int] = rows.rowids[run].tolist()
        if len(ids) < _MIN_RUN:
            single += ids
            continue
        selected = connection.execute(f"{select} BETWEEN ? AND ?", (ids[0], ids[-1]))
        found.update((row[-1], row) for row in selected)
    for first in range(0, len(single), _MAX_PARAMETERS):
        ids = single[first : first + _MAX_PARAMETERS]
        selected = connection.execute(f"{select} IN ({','.join('?' * len(ids))})", ids)
        found.update((row[-1], row) for row in selected)
    return found


def _changed(ref: FileRef, fact: str) -> ChangedFileError:
    return ChangedFileError(
        f"{fact}. Create the source again to read the current rows. A stream over a database that "
        "changes is not reproducible.",
        path=ref.path,
    )
