"""Store the rows of a query, so that all processes read the same rows in the same order.

names     name                 the columns of the query
records   rowid, c0, c1, ...   its rows, numbered from 1
"""

import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

from gristmill._data.sources.sqlite.connection import Database
from gristmill._io.file import FileRef
from gristmill._io.folders.cache import cache_folder
from gristmill.errors import FileError, PlanError

_BLOCK_ROWS = 1024
_MIN_LIMIT_BYTES = 2**30
_MAX_GROWTH = 64
"""The rows of a query may take a gigabyte plus this many times the size of their database."""


def store_query(database: Database, query: str, ref: FileRef) -> Path:
    """Return the path of a database with the rows of a query.

    The query is run unless its rows are stored already, for this query and the same version of the
    database.

    Args:
        database: The database to query.
        query: A `SELECT` statement.
        ref: The file of the database, which identifies its version.
    """
    folder = cache_folder() / "queries"
    location = os.path.abspath(ref.path) if ref.is_local else ref.path
    identity = f"{location}\n{ref.size}\n{ref.version}\n{query}"
    path = (
        folder
        / f"{hashlib.sha256(identity.encode(errors='surrogateescape')).hexdigest()[:32]}.sqlite"
    )
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".part-")
            os.close(descriptor)
        except OSError as error:
            raise _not_writable(folder, error) from None
        try:
            _run(database, query, Path(temporary), _max_bytes(folder, ref.size))
            # The first process wins: a query need not return the same rows twice.
            with suppress(FileExistsError):
                os.link(temporary, path)
        except OSError as error:
            raise error if isinstance(error, FileError) else _not_writable(folder, error) from None
        finally:
            os.unlink(temporary)
    return path


def _max_bytes(folder: Path, size: int) -> int:
    """Return how much disk space the rows of a query may take.

    A view can have any number of rows, however small the database is.
    """
    return min(shutil.disk_usage(folder).free // 2, _MIN_LIMIT_BYTES + _MAX_GROWTH * size)


def _run(database: Database, query: str, path: Path, max_bytes: int) -> None:
    """Run a query and write its rows to a new database."""
    with database.connection() as source:
        cursor = source.execute(query)
        if cursor.description is None:
            raise PlanError(f"`query` must be a `SELECT`, which returns rows, got {query!r}.")
        names = [str(column[0]) for column in cursor.description]
        duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
        if duplicates:
            raise PlanError(
                f"`query` returns more than one column named {', '.join(map(repr, duplicates))}. "
                "Rename the columns with `AS`."
            )
        with closing(sqlite3.connect(path, isolation_level=None)) as stored:
            try:
                # No journal: other processes see the file only when it is complete.
                stored.execute("PRAGMA journal_mode = OFF")
                page_size: int = stored.execute("PRAGMA page_size").fetchone()[0]
                stored.execute(f"PRAGMA max_page_count = {max_bytes // page_size + 1}")
                stored.execute("BEGIN")
                stored.execute("CREATE TABLE names (name)")
                stored.executemany("INSERT INTO names VALUES (?)", [(name,) for name in names])
                columns = ", ".join(f"c{number}" for number in range(len(names)))
                stored.execute(f"CREATE TABLE records ({columns})")
                placeholders = ", ".join("?" for _ in names)
                insert = f"INSERT INTO records VALUES ({placeholders})"
                # Not all rows in one call, which would not react to Ctrl-C.
                while rows := cursor.fetchmany(_BLOCK_ROWS):
                    stored.executemany(insert, rows)
                stored.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_FULL:
                    raise
                raise FileError(
                    f"The rows of the query take more than {max_bytes:,} bytes, or the disk of the "
                    "cache folder is full. Limit the rows with a `query`, or choose another cache "
                    "folder with the environment variable `XDG_CACHE_HOME`.",
                    path=str(database.path),
                ) from error


def _not_writable(folder: Path, error: OSError) -> FileError:
    return FileError(
        f"The folder for the rows of queries cannot be written to ({error.strerror}). Choose "
        "another cache folder with the environment variable `XDG_CACHE_HOME`.",
        path=str(folder),
    )
