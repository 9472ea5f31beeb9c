import fcntl
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill.errors import FileError, PlanError
from gristmill.options import StorageOptions
from tests.data.sources.sqlite.conftest import Create, records_of


def test_a_query_is_run_once_for_all_sources(numbers: Path, cache: Path):
    query = "SELECT id, random() AS r FROM numbers ORDER BY random()"
    first = SqliteSource(numbers, query=query)
    expected = records_of(first)
    assert len(expected) == 100
    assert records_of(SqliteSource(numbers, query=query)) == expected
    assert records_of(pickle.loads(pickle.dumps(first))) == expected
    assert sorted(path.suffix for path in cache.iterdir()) == [".lock", ".sqlite"]


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
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


@pytest.mark.parametrize("query", ["", "-- nothing", "PRAGMA cache_size = 10"])
def test_a_statement_that_returns_no_rows_is_an_error(numbers: Path, query: str):
    message = rf"^`query` must be a `SELECT`, which returns rows, got {query!r}\.$"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, query=query))


@pytest.mark.parametrize("statement", ["ATTACH '{}' AS e", "VACUUM INTO '{}'"])
def test_a_query_creates_no_file(numbers: Path, tmp_path: Path, statement: str):
    with pytest.raises(PlanError, match="SQLite cannot run the query"):
        len(SqliteSource(numbers, query=statement.format(tmp_path / "evil.db")))
    assert not (tmp_path / "evil.db").exists()


def rows_of(numbers: Path, count: int, cache_bytes: int = 2**30) -> SqliteSource:
    query = f"SELECT id, randomblob(100000) AS data FROM numbers LIMIT {count}"
    source = SqliteSource(numbers, query=query, storage=StorageOptions(cache_bytes=cache_bytes))
    assert len(source) == count
    return source


def test_the_least_recently_used_rows_are_deleted_beyond_the_limit(numbers: Path, cache: Path):
    rows_of(numbers, 4)
    (first,) = cache.glob("*.sqlite")
    rows_of(numbers, 5)
    (second,) = set(cache.glob("*.sqlite")) - {first}
    os.utime(first, ns=(10, first.stat().st_mtime_ns))
    os.utime(second, ns=(5, second.stat().st_mtime_ns))
    (cache / "notes.txt").write_text("mine")
    source = rows_of(numbers, 6, cache_bytes=1_200_000)
    assert set(cache.glob("*.sqlite")) - {first} != {second}
    assert first.exists()
    assert not second.exists()
    assert (cache / "notes.txt").exists()
    assert source[5]["id"] == 8


def test_rows_beyond_the_limit_of_the_cache_are_an_error(numbers: Path, cache: Path):
    with pytest.raises(FileError, match=r"take more than 300,000 bytes.*raise `cache_bytes`"):
        rows_of(numbers, 50, cache_bytes=300_000)
    assert list(cache.glob("*.sqlite")) == list(cache.glob("*.part")) == []


def test_what_a_killed_process_left_is_deleted(numbers: Path, cache: Path):
    cache.mkdir(parents=True)
    left, held = (cache / f"{digit * 32}.part" for digit in "ab")
    left.write_bytes(b"rows")
    held.write_bytes(b"rows")
    with held.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        rows_of(numbers, 3)
        assert not left.exists()
        assert held.exists()
    rows_of(numbers, 4)
    assert not held.exists()


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
