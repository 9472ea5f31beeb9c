import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill.errors import FileError, PlanError
from tests.data.sources.sqlite.conftest import Create, records_of


def test_a_query_is_run_once_for_all_sources(numbers: Path, cache: Path):
    query = "SELECT id, random() AS r FROM numbers ORDER BY random()"
    first = SqliteSource(numbers, query=query)
    expected = records_of(first)
    assert len(expected) == 100
    assert records_of(SqliteSource(numbers, query=query)) == expected
    assert records_of(pickle.loads(pickle.dumps(first))) == expected
    (stored,) = cache.iterdir()
    assert stored.suffix == ".sqlite"


def test_threads_that_run_the_same_query_read_the_same_rows(numbers: Path):
    sources = [SqliteSource(numbers, query="SELECT random() AS r FROM numbers") for _ in range(8)]
    start = threading.Barrier(len(sources))
    read: list[Any] = []

    def work(source: SqliteSource) -> None:
        start.wait()
        read.append(source.__getitems__(range(100)))

    threads = [threading.Thread(target=work, args=(source,)) for source in sources]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read) == 8
    assert all(rows == read[0] for rows in read)


def test_a_query_is_run_again_when_the_database_has_changed(numbers: Path, create: Create):
    query = "SELECT count(*) AS n FROM numbers"
    assert SqliteSource(numbers, query=query)[0] == {"n": 100}
    create("DELETE FROM numbers WHERE id > 10")
    os.utime(numbers, ns=(1, 1))
    assert SqliteSource(numbers, query=query)[0] == {"n": 7}


def test_a_query_may_have_columns_of_any_names(create: Create):
    path = create("CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")
    query = 'SELECT x AS rowid, x AS A, x AS a, x + 1, x AS ["] FROM t'
    assert SqliteSource(path, query=query)[0] == {"rowid": 1, "A": 1, "a": 1, "x + 1": 2, '"': 1}


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT absent FROM numbers", "no such column: absent"),
        ("SELECT * FROM absent", "no such table: absent"),
        ("SELEC 1", 'near "SELEC": syntax error'),
        ("SELECT ?", "Incorrect number of bindings supplied"),
        ("SELECT 1; SELECT 2", "You can only execute one statement at a time"),
        ("INSERT INTO numbers VALUES (1, 1, 1)", "attempt to write a readonly database"),
        ("SELECT json('{') AS x", "malformed JSON"),
    ],
)
def test_a_query_that_cannot_be_run_is_an_error_with_the_reason(
    numbers: Path, cache: Path, query: str, reason: str
):
    source = SqliteSource(numbers, query=query)
    with pytest.raises(PlanError) as caught:
        len(source)
    assert str(caught.value).startswith(f"SQLite cannot run the query: {reason}")
    assert str(caught.value).endswith(". Correct the `query`.")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("query", ["", "-- nothing", "PRAGMA cache_size = 10"])
def test_a_statement_that_returns_no_rows_is_an_error(numbers: Path, query: str):
    message = rf"^`query` must be a `SELECT`, which returns rows, got {query!r}\.$"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, query=query))


def test_two_columns_of_the_same_name_are_an_error(numbers: Path):
    query = "SELECT a.id, b.id, a.name, b.name, a.square FROM numbers a, numbers b"
    message = r"^`query` returns more than one column named 'id', 'name'\. Rename the columns with"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, query=query))


def test_a_cache_folder_that_is_not_writable_is_an_error(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    message = (
        r"^The folder for the rows of queries cannot be written to \(Not a directory\)\. Choose "
        r"another cache folder with the environment variable `XDG_CACHE_HOME`\. \("
    )
    with pytest.raises(FileError, match=message):
        len(SqliteSource(numbers, query="SELECT 1"))
