"""What a query gives, kept so that everybody reads the same rows in the same order.

names     name                 of each column, as the query has it
records   rowid, c0, c1, ...   the rows, numbered from 1
"""

import hashlib
import os
import sqlite3
import tempfile
from contextlib import closing, suppress
from pathlib import Path

from gristmill.errors import FileError, PlanError
from gristmill.files import FileRef, cache_folder
from gristmill.sources._sqlite_open import Database, explain


def keep_query(database: Database, query: str, ref: FileRef) -> Path:
    """Give the database with the rows of a query; run it, unless somebody has."""
    folder = cache_folder() / "queries"
    place = os.path.abspath(ref.path) if ref.is_local else ref.path
    words = f"{place}\n{ref.size}\n{ref.version}\n{query}"
    path = folder / f"{hashlib.sha256(words.encode()).hexdigest()[:32]}.sqlite"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, part = tempfile.mkstemp(dir=folder, prefix=".part-")
            os.close(descriptor)
        except OSError as error:
            raise _no_room(folder, error) from None
        try:
            _run(database, query, Path(part))
            # Whoever is first counts: a query need not give the same rows twice.
            with suppress(FileExistsError):
                os.link(part, path)
        except OSError as error:
            raise error if isinstance(error, FileError) else _no_room(folder, error) from None
        finally:
            os.unlink(part)
    return path


def _run(database: Database, query: str, path: Path) -> None:
    with database.connection() as source:
        cursor = source.execute(query)
        if cursor.description is None:
            raise PlanError(f"`query` must be a `SELECT`, which gives rows, got {query!r}.")
        names = [str(column[0]) for column in cursor.description]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise PlanError(
                f"`query` gives more than one column named {', '.join(map(repr, twice))}. Name "
                "them apart with `AS`."
            )
        with closing(sqlite3.connect(path, isolation_level=None)) as kept:
            try:
                kept.execute("PRAGMA journal_mode = OFF")  # nobody sees it before it is done
                kept.execute("BEGIN")
                kept.execute("CREATE TABLE names (name)")
                kept.executemany("INSERT INTO names VALUES (?)", [(name,) for name in names])
                columns = ", ".join(f"c{number}" for number in range(len(names)))
                kept.execute(f"CREATE TABLE records ({columns})")
                marks = ", ".join("?" for _ in names)
                kept.executemany(f"INSERT INTO records VALUES ({marks})", cursor)
                kept.execute("COMMIT")
            except sqlite3.OperationalError as error:
                if getattr(error, "sqlite_errorcode", 0) != sqlite3.SQLITE_FULL:
                    raise
                raise explain(error, str(path)) from error


def _no_room(folder: Path, error: OSError) -> FileError:
    return FileError(
        f"The rows of a query are kept in a folder that cannot be written to ({error.strerror}). "
        "Choose another with the environment variable `XDG_CACHE_HOME`.",
        path=str(folder),
    )
