import pickle
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gristmill._data.sources.sqlite.source import SqliteSource

Create = Callable[..., Path]
"""Runs statements in a database, and returns its path."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gristmill" / "queries"


@pytest.fixture
def create(tmp_path: Path) -> Create:
    def create(*statements: str, name: str = "a.db") -> Path:
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            for statement in statements:
                database.execute(statement)
        return tmp_path / name

    return create


@pytest.fixture
def numbers(create: Create) -> Path:
    """Create a database with a table of 100 rows, whose ids have gaps."""
    return create(
        "CREATE TABLE numbers (id INTEGER PRIMARY KEY, square INTEGER, name TEXT)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150) "
        "INSERT INTO numbers SELECT i, i * i, 'n' || i FROM n",
        "DELETE FROM numbers WHERE id % 3 = 0",
    )


def records_of(source: SqliteSource) -> list[dict[str, Any]]:
    return [source[index] for index in range(len(source))]


def run_program(program: str, source: SqliteSource) -> str:
    """Run a program with a pickled source as its input, and return its output."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    return done.stdout.decode()
