"""Databases with views that never end."""

import os
import signal
import sqlite3
import subprocess
import sys
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


def test_an_endless_view_is_an_error_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(query, "_MIN_LIMIT_BYTES", 2**20)
    source = SqliteSource(make_database(tmp_path / "a.sqlite", ENDLESS))
    with pytest.raises(FileError, match="take more than"):
        len(source)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


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
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
