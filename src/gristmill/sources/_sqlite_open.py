"""Connections to a SQLite database that is only read."""

import os
import sqlite3
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from gristmill.errors import CorruptFileError, FileError, FormatError, PlanError


@final
class Database:
    """A database file, and as many connections to it as there are threads that read at a time.

    They are closed with this object. A fork leaves those of its parent alone, as SQLite asks for.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._idle: dict[int, list[sqlite3.Connection]] = {}
        weakref.finalize(self, _close, self._idle)

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Lend a connection; an error of SQLite's becomes one of ours."""
        idle = self._idle.setdefault(os.getpid(), [])
        try:
            try:
                connection = idle.pop()
            except IndexError:
                connection = self._connect()
            try:
                yield connection
            finally:
                idle.append(connection)
        except (sqlite3.Error, sqlite3.Warning) as error:
            raise explain(error, str(self.path)) from error

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,  # one thread after the other
        )


def _close(idle: dict[int, list[sqlite3.Connection]]) -> None:
    for connection in idle.pop(os.getpid(), []):
        connection.close()


def quoted(name: str) -> str:
    """Write a name of a table or a column in SQL.

    >>> quoted('the "best" pets')
    '"the ""best"" pets"'
    """
    return '"' + name.replace('"', '""') + '"'


_LEFT_OVER = (
    sqlite3.SQLITE_READONLY_ROLLBACK,
    sqlite3.SQLITE_READONLY_RECOVERY,
    sqlite3.SQLITE_READONLY_CANTINIT,
)


def explain(error: Exception, path: str) -> FileError | PlanError:
    """Give the error that says what to do about one of SQLite's."""
    words = str(error).rstrip(".")
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    match code & 0xFF:  # the rest are details
        case sqlite3.SQLITE_NOTADB:
            return FormatError(
                f"It is no SQLite database that can be read ({words}). Check the path, and that "
                "the database is not encrypted.",
                path=path,
            )
        case sqlite3.SQLITE_CORRUPT:
            return CorruptFileError(
                f"The database is damaged ({words}). Copy it anew, or save what there is with "
                "`.recover` of the `sqlite3` program.",
                path=path,
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return FileError(
                f"Another program is writing to the database ({words}). Wait until it is done, "
                "or read a copy.",
                path=path,
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_FULL:
            return FileError(
                f"SQLite cannot read the database ({words}). Check that it is whole and on a disk "
                "with room; one in WAL mode must be in a folder that can be written to.",
                path=path,
            )
        case sqlite3.SQLITE_READONLY if code in _LEFT_OVER:
            return FileError(
                f"A program that wrote to the database did not end properly ({words}). Open it "
                "once with a program that may write, such as `sqlite3`.",
                path=path,
            )
        case sqlite3.SQLITE_OK if "decode" in words:  # Python's own
            return CorruptFileError(
                f"There is text that is not UTF-8 ({words}). Read such a column with "
                "`CAST(column AS BLOB)` in a `query`.",
                path=path,
            )
        case _:
            return PlanError(f"SQLite cannot run this: {words}. Correct the `query`.")
