"""Store the rows of a query, so that all processes read the same rows in the same order.

names     name                 the columns of the query
records   rowid, c0, c1, ...   its rows, numbered from 1
"""

import fcntl
import hashlib
import os
import re
import shutil
import sqlite3
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

from gristmill._data.sources.sqlite.connection import Database
from gristmill._io.file import FileRef
from gristmill._io.folders.cache import cache_folder
from gristmill._io.folders.file_lock import lock_exclusively
from gristmill._io.folders.safe_files import open_regular_file
from gristmill.errors import FileError, PlanError

_NAME = re.compile(r"[0-9a-f]{32}\.(sqlite|part)")
"""The only files that are ever deleted."""

_BLOCK_ROWS = 1024
_MIN_LIMIT_BYTES = 2**30
_MAX_GROWTH = 64
"""The rows of a query may take a gigabyte plus this many times the size of their database."""


def store_query(database: Database, query: str, ref: FileRef) -> Path:
    """Return the path of a database with the rows of a query.

    The query is run unless its rows are stored already, for this query and the same version of the
    database. One process runs it, and the others wait. The least recently used databases are
    deleted once all together have more bytes than the cache may have.

    Args:
        database: The database to query.
        query: A `SELECT` statement.
        ref: The file of the database, which identifies its version.
    """
    folder = cache_folder() / "queries"
    location = os.path.abspath(ref.path) if ref.is_local else ref.path
    identity = f"{location}\n{ref.size}\n{ref.version}\n{query}"
    name = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:32]
    path = folder / f"{name}.sqlite"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f"{name}.lock"):
            if not path.exists():
                part = path.with_suffix(".part")
                part.unlink(missing_ok=True)  # of a process that was killed
                try:
                    _run(database, query, part, _max_bytes(folder, ref))
                    os.replace(part, path)
                finally:
                    part.unlink(missing_ok=True)
                _clean(folder, path, ref.storage.cache_bytes)
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))  # recently used
    except OSError as error:
        raise error if isinstance(error, FileError) else _not_writable(folder, error) from None
    return path


@contextmanager
def _lock(path: Path) -> Generator[None]:
    """Hold an exclusive lock of a query, which shows that its process is alive."""
    with open(open_regular_file(path, os.O_RDWR | os.O_CREAT), "r+b") as lock:
        lock_exclusively(lock, path)
        yield


def _clean(folder: Path, new: Path, max_bytes: int) -> None:
    """Delete what killed processes left, and the least recently used of too many databases."""
    stored: list[tuple[float, int, Path]] = []
    for path in folder.iterdir():
        if _NAME.fullmatch(path.name):
            with suppress(OSError):  # another process may delete it at the same time
                if path.suffix == ".part":
                    _delete_if_left(path)
                elif path != new:
                    found = path.lstat()
                    stored.append((found.st_atime, found.st_size, path))
    num_bytes = new.stat().st_size + sum(size for _, size, _ in stored)
    for _, size, path in sorted(stored):
        if num_bytes <= max_bytes:
            break
        path.unlink(missing_ok=True)
        num_bytes -= size


def _delete_if_left(part: Path) -> None:
    """Delete an unfinished database unless a process that runs its query holds the lock."""
    lock = part.with_suffix(".lock")
    with open(open_regular_file(lock, os.O_RDWR | os.O_CREAT), "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        part.unlink()


def _max_bytes(folder: Path, ref: FileRef) -> int:
    """Return how much disk space the rows of a query may take.

    A view can have any number of rows, however small the database is.
    """
    free = shutil.disk_usage(folder).free
    return min(free // 2, ref.storage.cache_bytes, _MIN_LIMIT_BYTES + _MAX_GROWTH * ref.size)


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
                # Rows are taken one by one, as each may be large; and not all of them in one call,
                # which would not react to Ctrl-C.
                while stored.executemany(insert, islice(cursor, _BLOCK_ROWS)).rowcount > 0:
                    pass
                stored.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_FULL:
                    raise
                raise FileError(
                    f"The rows of the query take more than {max_bytes:,} bytes, or the disk of the "
                    "cache folder is full. Limit the rows with a `query`, raise `cache_bytes` in "
                    "`StorageOptions`, or choose another cache folder with the environment "
                    "variable `XDG_CACHE_HOME`.",
                    path=str(database.path),
                ) from error


def _not_writable(folder: Path, error: OSError) -> FileError:
    return FileError(
        f"The folder for the rows of queries cannot be written to ({error.strerror}). Choose "
        "another cache folder with the environment variable `XDG_CACHE_HOME`.",
        path=str(folder),
    )
