"""Rows of a SQLite database."""

import os
import sqlite3
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, final

import numpy as np

from gristmill._check import as_kind
from gristmill._places import Places
from gristmill.errors import ChangedFileError, PlanError
from gristmill.files import FileRef, OpenFiles, find_file
from gristmill.options import StorageOptions
from gristmill.sources._sqlite_open import Database, quoted
from gristmill.sources._sqlite_query import keep_query
from gristmill.types import Indices, Span

_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_MOST_PARAMETERS = 500
"""Of one statement; SQLite takes 999 at least."""

_LEAST_RUN = 8
"""Rows that follow each other and are worth a statement of their own."""


@final
class SqliteSource:
    """Random access to the rows of a table, or to those that a query gives, as dicts.

    Rows of a table come in the order of their rowids, which are read at the first use. A query is
    run once, at the first use; what it gives is kept in the user's cache folder for as long as the
    database does not change, so that all processes and later runs see the same rows in the same
    order. Views and tables without rowids are read like queries.

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
        path: Of the database; one that is not on this machine is fetched as a whole.
        table: The table or view to read; not needed where there is only one.
        query: The `SELECT` to read instead.
        storage: How a file that is not on this machine is read.
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
            raise PlanError("Give either a `table` or a `query`, and not both.")
        for name, value in (("table", table), ("query", query)):
            if value is not None:
                as_kind(name, value, str, remedy="Pass text.")
        self._files = OpenFiles([find_file(path, storage)])
        self._table = table
        self._query = query
        self._rows: _Rows | None = None
        self._opened: Database | None = None
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._open()[0].rowids)

    def __getitem__(self, index: SupportsIndex) -> dict[str, Any]:
        places = Places([len(self)])
        return self.__getitems__([places.check(index)])[0]

    def __getitems__(self, indices: Span | Sequence[int]) -> list[dict[str, Any]]:
        rows, database = self._open()
        numbers = np.asarray(indices, dtype=np.int64)
        places = Places([len(rows.rowids)])
        for index in (numbers.min(), numbers.max()) if len(numbers) else ():
            places.check(index)
        self._check_unchanged()
        with database.connection() as connection:
            found = _select(connection, rows, np.unique(numbers))
        try:
            wanted = [found[rowid] for rowid in rows.rowids[numbers].tolist()]
        except KeyError as error:
            raise _changed(
                self._files.refs[0], f"There is no row {error.args[0]} any more"
            ) from None
        return [dict(zip(rows.names, row, strict=False)) for row in wanted]

    def __repr__(self) -> str:  # goes into checkpoints: without the folder, which may be another
        name = self._files.refs[0].name
        chosen = {"table": self._table, "query": self._query}
        told = [f", {key}={value!r}" for key, value in chosen.items() if value is not None]
        return f"SqliteSource({name!r}{''.join(told)})"

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def _open(self) -> "tuple[_Rows, Database]":
        with self._lock:
            if self._rows is None or self._opened is None:
                self._rows, self._opened = self._find_rows()
            return self._rows, self._opened

    def _check_unchanged(self) -> None:
        # By its path: a connection that is opened later would read what is there by then.
        ref = self._files.refs[0]
        if ref.is_local and find_file(ref.path, ref.storage) != ref:
            raise _changed(ref, "The database has changed since this source found it")

    def _find_rows(self) -> "tuple[_Rows, Database]":
        """Open the database that has the rows, and number them unless that is done."""
        ref = self._files.refs[0]
        timeout_s = ref.storage.timeout_s
        database = Database(self._files[0].local_path(), timeout_s=timeout_s)
        rows, table = self._rows, self._table
        if table is None and self._query is None:
            table = _only_table(database)
        if rows is None and table is not None:
            rows = _rows_of_table(database, table)
        if rows is not None and not rows.is_kept:
            return rows, database
        query = f"SELECT * FROM {quoted(table)}" if table else self._query or ""
        kept = Database(keep_query(database, query, ref), timeout_s=timeout_s)
        return rows or _rows_of_query(kept), kept


@final
@dataclass(frozen=True, kw_only=True)
class _Rows:
    """Which rows there are: their ids in a table, and the names of its columns."""

    table: str
    rowid: str
    names: tuple[str, ...]
    rowids: Indices
    is_kept: bool
    """Whether the table is where the rows of a query are kept, not in the database itself."""


def _kinds(connection: sqlite3.Connection) -> dict[str, str]:
    """Give the names of all tables and views, and which they are."""
    return dict(
        connection.execute(
            "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') "
            "AND name NOT LIKE 'sqlite!_%' ESCAPE '!' ORDER BY name"
        )
    )


def _only_table(database: Database) -> str:
    with database.connection() as connection:
        kinds = _kinds(connection)
    if len(kinds) != 1:
        told = ", ".join(map(repr, kinds)) or "no tables"
        raise PlanError(f"The database has {told}. Choose one with `table`, or give a `query`.")
    return next(iter(kinds))


def _rows_of_table(database: Database, table: str) -> _Rows | None:
    """Number the rows of a table; give `None` for one whose rows have no ids."""
    with database.connection() as connection:
        kinds = _kinds(connection)
        name = next((name for name in kinds if name.lower() == table.lower()), None)
        if name is None:
            told = ", ".join(map(repr, kinds)) or "no tables"
            raise PlanError(f"`table` must be one of the database's, got {table!r}: it has {told}.")
        columns = connection.execute(f"SELECT * FROM {quoted(name)} LIMIT 0").description
        names = tuple(str(column[0]) for column in columns)
        taken = {name.lower() for name in names}
        rowid = next((alias for alias in _ROWID_NAMES if alias not in taken), None)
        if kinds[name] == "view" or rowid is None or not _has(connection, quoted(name), rowid):
            return None
        found = connection.execute(f"SELECT {rowid} FROM {quoted(name)} ORDER BY {rowid}")
        rowids = np.fromiter((row[0] for row in found), dtype=np.int64)
    return _Rows(table=quoted(name), rowid=rowid, names=names, rowids=rowids, is_kept=False)


def _has(connection: sqlite3.Connection, table: str, column: str) -> bool:
    try:
        connection.execute(f"SELECT {column} FROM {table} LIMIT 0")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_ERROR:  # locked, damaged
            raise
        return False
    return True


def _rows_of_query(kept: Database) -> _Rows:
    with kept.connection() as connection:
        names = tuple(name for (name,) in connection.execute("SELECT name FROM names"))
        count: int = connection.execute("SELECT count(*) FROM records").fetchone()[0]
    rowids = np.arange(1, count + 1, dtype=np.int64)
    return _Rows(table="records", rowid="rowid", names=names, rowids=rowids, is_kept=True)


def _select(connection: sqlite3.Connection, rows: _Rows, numbers: Indices) -> dict[int, Any]:
    """Give rows by their id. `numbers` are sorted: those in a row are one range of ids."""
    select = f"SELECT *, {rows.rowid} FROM {rows.table} WHERE {rows.rowid}"
    found: dict[int, Any] = {}
    single: list[int] = []
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        ids: list[int] = rows.rowids[run].tolist()
        if len(ids) < _LEAST_RUN:
            single += ids
            continue
        part = connection.execute(f"{select} BETWEEN ? AND ?", (ids[0], ids[-1]))
        found.update((row[-1], row) for row in part)
    for first in range(0, len(single), _MOST_PARAMETERS):
        ids = single[first : first + _MOST_PARAMETERS]
        part = connection.execute(f"{select} IN ({','.join('?' * len(ids))})", ids)
        found.update((row[-1], row) for row in part)
    return found


def _changed(ref: FileRef, fact: str) -> ChangedFileError:
    return ChangedFileError(
        f"{fact}. Make the source anew to read what is there now; a stream over a database that "
        "changes cannot be repeated.",
        path=ref.path,
    )
