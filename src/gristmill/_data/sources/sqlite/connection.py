"""Connect read-only to a SQLite database."""

import os
import sqlite3
import weakref
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import final

from gristmill.errors import CorruptFileError, FileError, FormatError, PlanError

_STEPS_PER_CHECK = 1_000_000
"""Instructions of SQLite's virtual machine, some tens of milliseconds, between two checks."""

_MIN_VALUE_BYTES = 2**20
_MAX_VALUE_GROWTH = 4
"""A value may have a megabyte plus this many times the size of the database."""


@final
class Database:
    """A database file with a pool of read-only connections. Threads may share it.

    There are as many connections as threads that read at the same time. They are closed with this
    object. SQLite does not allow using a connection after a fork, so a child process opens its own.

    Args:
        path: The database file.
        timeout_s: How long to wait while another program locks the database.
    """

    def __init__(self, path: Path, *, timeout_s: float) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._idle: dict[int, list[sqlite3.Connection]] = {}
        weakref.finalize(self, _close, self._idle)

    @contextmanager
    def connection(self) -> Generator[sqlite3.Connection]:
        """Provide a connection, and translate the errors of SQLite."""
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
            if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
                raise KeyboardInterrupt from error
            raise translate_error(error, str(self.path)) from error

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=self._timeout_s,
            isolation_level=None,
            check_same_thread=False,  # only one thread uses a connection at a time
        )
        # No file is created or written: neither by `ATTACH` nor by `VACUUM INTO`, which needs it.
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        # A view or an index of an untrusted database may call only functions without side effects.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")  # damage is an error, not a wrong row
        # A view or a generated column can make values of any size, a gigabyte by default. The pages
        # include those in a write-ahead log.
        num_pages, page_size = (
            int(connection.execute(f"PRAGMA {name}").fetchone()[0])
            for name in ("page_count", "page_size")
        )
        max_bytes = _MIN_VALUE_BYTES + _MAX_VALUE_GROWTH * num_pages * page_size
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(max_bytes, 2**31 - 1))
        # SQLite runs a query without returning to Python, which could not react to Ctrl-C. An
        # exception in the handler, such as `KeyboardInterrupt`, interrupts the query.
        connection.set_progress_handler(_keep_on, _STEPS_PER_CHECK)
        return connection


def _keep_on() -> int:
    """Do nothing: Python calls signal handlers before it calls this."""
    return 0


def _close(idle: dict[int, list[sqlite3.Connection]]) -> None:
    for connection in idle.pop(os.getpid(), []):
        connection.close()


def quote(name: str) -> str:
    """Return the name of a table or column as an SQL identifier.

    >>> quote('the "best" pets')
    '"the ""best"" pets"'
    """
    return '"' + name.replace('"', '""') + '"'


_RECOVERY_NEEDED = (
    sqlite3.SQLITE_READONLY_ROLLBACK,
    sqlite3.SQLITE_READONLY_RECOVERY,
    sqlite3.SQLITE_READONLY_CANTINIT,
)


def translate_error(error: Exception, path: str) -> FileError | PlanError:
    """Return an error that explains an error of SQLite and suggests a remedy."""
    reason = str(error).rstrip(".")
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK)
    match code & 0xFF:  # the primary code; the other bits are details
        case sqlite3.SQLITE_NOTADB:
            return FormatError(
                f"The file is not a readable SQLite database ({reason}). Check the path, and that "
                "the database is not encrypted.",
                path=path,
            )
        case sqlite3.SQLITE_CORRUPT:
            return CorruptFileError(
                f"The database is damaged ({reason}). Copy it again, or recover its content with "
                "`.recover` in the `sqlite3` program.",
                path=path,
            )
        case sqlite3.SQLITE_TOOBIG:
            return FileError(
                "A value is much larger than the database itself. Change the view, the generated "
                "column or the `query` that computes it.",
                path=path,
            )
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return FileError(
                f"Another program is writing to the database ({reason}). Wait until it has "
                "finished, or read a copy.",
                path=path,
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_FULL:
            return FileError(
                f"SQLite cannot read the database ({reason}). Check that it is complete and that "
                "its disk is not full. The folder of a database in WAL mode must be writable.",
                path=path,
            )
        case sqlite3.SQLITE_READONLY if code in _RECOVERY_NEEDED:
            return FileError(
                f"A program was interrupted while writing to the database ({reason}). Open it once "
                "with a program that may write to it, such as `sqlite3`.",
                path=path,
            )
        case sqlite3.SQLITE_OK if "decode" in reason:  # raised by Python's `sqlite3` module
            return CorruptFileError(
                f"A string is not UTF-8 ({reason}). Read such a column with "
                "`CAST(column AS BLOB)` in a `query`.",
                path=path,
            )
        case _:
            return PlanError(f"SQLite cannot run the query: {reason}. Correct the `query`.")
