"""Databases with views that never end."""

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gristmill._data.sources.sqlite import query
from gristmill.errors import FileError
from gristmill.sources import SqliteSource

ENDLESS = """
CREATE VIEW endless AS
WITH RECURSIVE numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers)
SELECT x, hex(x) AS y FROM numbers
"""

SILENT = ENDLESS + " WHERE x < 0"


def make_database(path: Path, view: str) -> Path:
    connection = sqlite3.connect(path)
    connection.execute(view)
    connection.commit()
    connection.close()
    return path


def files_in(folder: Path) -> list[Path]:
    """Return the files of more than the empty ones that are locked."""
    return [path for path in folder.rglob("*") if path.is_file() and path.stat().st_size]


LARGE = """
CREATE VIEW large AS
WITH RECURSIVE numbers(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM numbers)
SELECT {} AS y FROM numbers
"""

LIMITED = """
import resource, sys
from gristmill.errors import FileError
from gristmill.sources import SqliteSource
resource.setrlimit(resource.RLIMIT_DATA, (600 * 2**20,) * 2)
try:
    SqliteSource(sys.argv[1])[0]
except FileError as error:
    print(error)
"""


def run_limited(path: Path, cache: Path) -> str:
    """Read the first record in 600 MB of memory, and return the error."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    command = [sys.executable, "-c", LIMITED, str(path)]
    ended = subprocess.run(command, env=environment, timeout=60, capture_output=True, check=True)
    return ended.stdout.decode()


@pytest.mark.parametrize("value", ["zeroblob(20000000)", "hex(zeroblob(9000000))"])
def test_a_value_that_is_much_larger_than_the_database_is_an_error(value: str, tmp_path: Path):
    path = make_database(tmp_path / "a.sqlite", LARGE.format(value))
    assert "much larger than the database" in run_limited(path, tmp_path / "cache")
    assert files_in(tmp_path / "cache") == []


def test_large_values_of_an_endless_view_do_not_fill_the_memory(tmp_path: Path):
    path = make_database(tmp_path / "a.sqlite", LARGE.format("zeroblob(1000000)"))
    assert "The rows of the query take more than" in run_limited(path, tmp_path / "cache")
    assert files_in(tmp_path / "cache") == []


def test_a_table_with_virtual_columns_is_read_like_a_view(tmp_path: Path):
    table = "CREATE TABLE t (x INTEGER PRIMARY KEY, y AS (hex(x)))"
    path = make_database(tmp_path / "a.sqlite", table)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany("INSERT INTO t VALUES (?)", [(number,) for number in (5, 7)])
    source = SqliteSource(path)
    assert source.__getitems__([1, 0]) == [{"x": 7, "y": "37"}, {"x": 5, "y": "35"}]
    table = "CREATE TABLE t (x INTEGER PRIMARY KEY, y AS (zeroblob(20000000)))"
    large = make_database(tmp_path / "b.sqlite", table)
    with closing(sqlite3.connect(large)) as connection, connection:
        connection.execute("INSERT INTO t VALUES (1)")
    assert "much larger than the database" in run_limited(large, tmp_path / "cache")


def test_an_endless_view_is_an_error_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(query, "_MIN_LIMIT_BYTES", 2**20)
    source = SqliteSource(make_database(tmp_path / "a.sqlite", ENDLESS))
    with pytest.raises(FileError, match="take more than"):
        len(source)
    assert files_in(tmp_path / "cache") == []


PROGRAM = """
import signal, sys, threading, os
from gristmill.sources import SqliteSource
source = SqliteSource(sys.argv[1])
signal.signal(signal.SIGUSR1, lambda *_: None)
threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    len(source)
except KeyboardInterrupt:
    sys.exit(7)
"""


@pytest.mark.parametrize("view", [ENDLESS, SILENT])
def test_ctrl_c_ends_an_endless_query(view: str, tmp_path: Path) -> None:
    path = make_database(tmp_path / "a.sqlite", view)
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, path],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        timeout=60,
        check=False,
    )
    assert ended.returncode in (7, -signal.SIGINT)
    assert files_in(tmp_path / "cache") == []
