import gc
import os
import pickle
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    FormatError,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from gristmill.options import StorageOptions
from gristmill.sources._sqlite import SqliteSource

Make = Callable[..., Path]

READINGS: Sequence[dict[str, Any]] = [{"table": "numbers"}, {"query": "SELECT * FROM numbers"}]
READINGS_OF_T: Sequence[dict[str, Any]] = [{"table": "t"}, {"query": "SELECT * FROM t"}]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gristmill" / "queries"


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def make(*statements: str, name: str = "a.db") -> Path:
        with closing(sqlite3.connect(tmp_path / name)) as database, database:
            for statement in statements:
                database.execute(statement)
        return tmp_path / name

    return make


@pytest.fixture
def numbers(make: Make) -> Path:
    """Give a database with a table of 100 rows, some of its ids left out."""
    return make(
        "CREATE TABLE numbers (id INTEGER PRIMARY KEY, square INTEGER, name TEXT)",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 150) "
        "INSERT INTO numbers SELECT i, i * i, 'n' || i FROM n",
        "DELETE FROM numbers WHERE id % 3 = 0",
    )


def by_sqlite(path: Path, query: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(query)]


def records_of(source: SqliteSource) -> list[dict[str, Any]]:
    return [source[index] for index in range(len(source))]


@pytest.mark.parametrize(
    "reading",
    [
        {"table": "numbers"},
        {"table": "NUMBERS"},
        {"query": "SELECT * FROM numbers ORDER BY id"},
    ],
    ids=str,
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(data=st.data())
def test_rows_are_those_of_sqlite(numbers: Path, reading: dict[str, Any], data: Any):
    expected = by_sqlite(numbers, "SELECT * FROM numbers ORDER BY id")
    source = SqliteSource(numbers, **reading)

    some = data.draw(
        st.lists(st.integers(0, 99), max_size=200)
        | st.tuples(st.integers(0, 99), st.integers(0, 100)).map(lambda ends: range(*ends))
    )
    assert len(source) == 100
    assert source.__getitems__(some) == [expected[index] for index in some]
    assert source.__getitems__(np.array(some, dtype=np.int64)) == [expected[i] for i in some]
    if len(some):
        assert source[some[0]] == expected[some[0]]
        assert list(source[some[0]]) == ["id", "square", "name"]


def test_many_rows_anywhere_are_read_at_once(make: Make):
    path = make(
        "CREATE TABLE t (x)",
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3999) "
        "INSERT INTO t SELECT i FROM n",
    )
    indices = np.random.default_rng(0).permutation(4000)[:3000]
    rows = SqliteSource(path, table="t").__getitems__(indices)
    assert [row["x"] for row in rows] == indices.tolist()


def test_values_are_those_of_sqlite(make: Make):
    path = make(
        "CREATE TABLE t (x)",
        "INSERT INTO t VALUES (NULL), (-9223372036854775808), (1.5), ('é'), (x'00ff'), ('12')",
    )
    expected = [None, -(2**63), 1.5, "é", b"\x00\xff", "12"]
    for reading in READINGS_OF_T:
        values = [row["x"] for row in records_of(SqliteSource(path, **reading))]
        assert values == expected
        assert [type(value) for value in values] == [type(value) for value in expected]


def test_a_row_that_is_asked_for_twice_is_given_twice(numbers: Path):
    first, second = SqliteSource(numbers, table="numbers").__getitems__([0, 0])
    first["id"] = 7
    assert second["id"] == 1


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE t (a TEXT PRIMARY KEY, b) WITHOUT ROWID",
        "CREATE TABLE t (rowid, _rowid_, oid)",
        "CREATE TABLE t (RowID, b)",
        'CREATE TABLE t ("a ""b""", "SELECT")',
        "CREATE TABLE t (a, b AS (a || 'x'))",
        "CREATE VIRTUAL TABLE t USING fts5(a, b)",
    ],
)
def test_tables_of_any_kind_are_read(make: Make, statement: str):
    insert = "INSERT INTO t (a) VALUES ('y'), ('x')"
    if "AS (" not in statement:
        width = statement.count(",") + 1
        rows = ", ".join("(" + ", ".join([letter] * width) + ")" for letter in ("'y'", "'x'"))
        insert = f"INSERT INTO t VALUES {rows}"
    path = make(statement, insert)
    assert records_of(SqliteSource(path, table="t")) == by_sqlite(path, "SELECT * FROM t")


def test_views_are_read_and_can_be_pickled(numbers: Path, make: Make):
    make("CREATE VIEW large AS SELECT id AS i FROM numbers WHERE id > 90 ORDER BY id DESC")
    source = SqliteSource(numbers, table="large")
    expected = by_sqlite(numbers, "SELECT * FROM large")
    assert records_of(source) == expected
    assert records_of(pickle.loads(pickle.dumps(source))) == expected


def test_names_that_need_quotes_are_read(make: Make):
    path = make("""CREATE TABLE "a ""b"" c's" (x)""", """INSERT INTO "a ""b"" c's" VALUES (1)""")
    assert records_of(SqliteSource(path, table='a "b" c\'s')) == [{"x": 1}]


def test_paths_with_signs_of_addresses_are_read(make: Make):
    path = make("CREATE TABLE t (x)", "INSERT INTO t VALUES (1)", name="a ?mode=rw#50%é.db")
    assert records_of(SqliteSource(path, table="t")) == [{"x": 1}]


def test_an_empty_table_has_no_records(make: Make):
    path = make("CREATE TABLE t (x)")
    for reading in READINGS_OF_T:
        source = SqliteSource(path, **reading)
        assert (len(source), source.__getitems__([])) == (0, [])


def test_a_query_is_run_once_for_all(numbers: Path, cache: Path):
    query = "SELECT id, random() AS r FROM numbers ORDER BY random()"
    first = SqliteSource(numbers, query=query)
    expected = records_of(first)
    assert len(expected) == 100
    assert records_of(SqliteSource(numbers, query=query)) == expected
    assert records_of(pickle.loads(pickle.dumps(first))) == expected
    (kept,) = cache.iterdir()
    assert kept.suffix == ".sqlite"


def test_the_first_of_two_runs_of_a_query_counts_for_both(numbers: Path):
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


def test_a_query_is_run_again_when_the_database_has_changed(numbers: Path, make: Make):
    query = "SELECT count(*) AS n FROM numbers"
    assert SqliteSource(numbers, query=query)[0] == {"n": 100}
    make("DELETE FROM numbers WHERE id > 10")
    os.utime(numbers, ns=(1, 1))
    assert SqliteSource(numbers, query=query)[0] == {"n": 7}


def test_a_query_may_have_columns_of_any_names(make: Make):
    path = make("CREATE TABLE t (x)", "INSERT INTO t VALUES (1)")
    query = 'SELECT x AS rowid, x AS A, x AS a, x + 1, x AS ["] FROM t'
    assert SqliteSource(path, query=query)[0] == {"rowid": 1, "A": 1, "a": 1, "x + 1": 2, '"': 1}


def test_threads_may_share_it(numbers: Path):
    source = SqliteSource(numbers, table="numbers")
    start = threading.Barrier(8)
    read: list[Any] = []

    def work() -> None:
        start.wait()
        read.append([source.__getitems__(range(first, 100, 8)) for first in range(8)])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = by_sqlite(numbers, "SELECT * FROM numbers ORDER BY id")
    assert read == [[expected[first::8] for first in range(8)]] * 8


def test_it_can_be_pickled_at_any_time(numbers: Path):
    fresh, used = (SqliteSource(numbers, table="numbers") for _ in range(2))
    expected = records_of(used)
    for source in (fresh, used):
        assert records_of(pickle.loads(pickle.dumps(source))) == expected


def run(program: str, source: SqliteSource) -> str:
    """Run a program that is given a source, and give what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == b""
    return done.stdout.decode()


def test_another_process_reads_the_same(numbers: Path):
    source = SqliteSource(numbers, query="SELECT random() AS r FROM numbers")
    expected = source[99]["r"]
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[99]['r'])"
    assert int(run(program, source)) == expected


FORKING = """
import os, pickle, sys

source = pickle.load(sys.stdin.buffer)
assert source[0]["id"] == 1
(parents,) = source._opened._idle[os.getpid()]
pid = os.fork()
if pid == 0:
    is_right = source[1]["id"] == 2
    (own,) = source._opened._idle[os.getpid()]
    os._exit(0 if is_right and own is not parents else 1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(status, source[2]["id"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_fork_opens_the_database_anew(numbers: Path):
    assert run(FORKING, SqliteSource(numbers, table="numbers")) == "0 4\n"


def test_connections_are_closed_with_the_source(numbers: Path):
    source = SqliteSource(numbers, table="numbers")
    records_of(source)
    (connection,) = source._opened._idle[os.getpid()]  # pyright: ignore[reportOptionalMemberAccess]
    assert connection.execute("SELECT 1").fetchone() == (1,)
    del source
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


def test_nothing_is_written_to_the_database(numbers: Path):
    before = numbers.read_bytes()
    numbers.chmod(0o444)
    records_of(SqliteSource(numbers, table="numbers"))
    with pytest.raises(PlanError, match=r"readonly database"):
        len(SqliteSource(numbers, query="DELETE FROM numbers"))
    assert numbers.read_bytes() == before


def test_a_database_in_a_store_is_read_alike(numbers: Path):
    fsspec.filesystem("memory").pipe_file("/test_sqlite/a.db", numbers.read_bytes())
    source = SqliteSource("memory://test_sqlite/a.db", table="numbers")
    assert records_of(source) == by_sqlite(numbers, "SELECT * FROM numbers ORDER BY id")


@pytest.mark.parametrize("index", [-1, 100, 2**70])
def test_an_index_out_of_bounds_is_refused(numbers: Path, index: int):
    source = SqliteSource(numbers, table="numbers")
    message = rf"^`index` must be in \[0, 100\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        source[index]
    if index < 2**63:
        with pytest.raises(IndexError, match=message):
            source.__getitems__([0, index])


def test_its_repr_names_the_file_without_its_folder(numbers: Path):
    assert repr(SqliteSource(numbers, table="numbers")) == "SqliteSource('a.db', table='numbers')"
    assert repr(SqliteSource(numbers, query="SELECT 1")) == "SqliteSource('a.db', query='SELECT 1')"


def test_nothing_is_read_before_it_is_used(tmp_path: Path):
    (tmp_path / "a.db").write_bytes(b"no database")
    SqliteSource(tmp_path / "a.db", table="t")
    with pytest.raises(MissingFileError):
        SqliteSource(tmp_path / "b.db", table="t")


def test_a_table_and_a_query_are_too_much(numbers: Path):
    with pytest.raises(PlanError, match="either a `table` or a `query`, and not both"):
        SqliteSource(numbers, table="a", query="b")


def test_the_only_table_need_not_be_named(tmp_path: Path):
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("CREATE TABLE pets (name TEXT)")
    connection.execute("INSERT INTO pets VALUES ('cat')")
    connection.commit()

    source = SqliteSource(tmp_path / "a.db")

    assert [source[0]] == [{"name": "cat"}]
    assert repr(source) == "SqliteSource('a.db')"
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.commit()
    connection.close()
    with pytest.raises(PlanError, match=r"has 'people', 'pets'\. Choose one with `table`"):
        len(SqliteSource(tmp_path / "a.db"))


@pytest.mark.parametrize("name", ["table", "query"])
def test_anything_but_text_is_refused(numbers: Path, name: str):
    wrong: Any = {name: 5}
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be str, got 5\. Pass text\.$"):
        SqliteSource(numbers, **wrong)


def test_a_table_that_is_not_there_is_told_with_those_that_are(numbers: Path, make: Make):
    make("CREATE VIEW small AS SELECT 1")
    message = r"^`table` must be one of the database's, got 'x': it has 'numbers', 'small'\.$"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, table="x"))


def test_a_database_without_tables_is_told(tmp_path: Path):
    (tmp_path / "a.db").touch()
    with pytest.raises(PlanError, match=r"got 'x': it has no tables\.$"):
        len(SqliteSource(tmp_path / "a.db", table="x"))


@pytest.mark.parametrize(
    ("query", "words"),
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
def test_a_query_that_cannot_run_is_told_in_sqlites_words(
    numbers: Path, cache: Path, query: str, words: str
):
    source = SqliteSource(numbers, query=query)
    with pytest.raises(PlanError) as caught:
        len(source)
    assert str(caught.value).startswith(f"SQLite cannot run this: {words}")
    assert str(caught.value).endswith(". Correct the `query`.")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("query", ["", "-- nothing", "PRAGMA cache_size = 10"])
def test_a_query_that_gives_no_rows_is_refused(numbers: Path, query: str):
    message = rf"^`query` must be a `SELECT`, which gives rows, got {query!r}\.$"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, query=query))


def test_two_columns_of_the_same_name_are_refused(numbers: Path):
    query = "SELECT a.id, b.id, a.name, b.name, a.square FROM numbers a, numbers b"
    message = r"^`query` gives more than one column named 'id', 'name'\. Name them apart with `AS`"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, query=query))


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_file_that_is_no_database_is_told(tmp_path: Path, reading: dict[str, Any]):
    (tmp_path / "a.db").write_bytes(b"no database" * 1000)
    message = r"^It is no SQLite database that can be read \(file is not a database\)\. Check the "
    with pytest.raises(FormatError, match=message) as caught:
        len(SqliteSource(tmp_path / "a.db", **reading))
    assert caught.value.path == str(tmp_path / "a.db")


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_damaged_database_is_told(numbers: Path, reading: dict[str, Any]):
    data = bytearray(numbers.read_bytes())
    data[4096:] = bytes([7]) * (len(data) - 4096)
    numbers.write_bytes(data)
    message = r"^The database is damaged \(.*malformed\)\. Copy it anew, or save what there is with"
    with pytest.raises(CorruptFileError, match=message):
        len(SqliteSource(numbers, **reading))


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_locked_database_is_told(numbers: Path, reading: dict[str, Any]):
    source = SqliteSource(numbers, **reading, storage=StorageOptions(timeout_s=0.01))
    with closing(sqlite3.connect(numbers, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        message = (
            r"^Another program is writing to the database \(database is locked\)\. Wait until it "
            r"is done, or read a copy\. \("
        )
        with pytest.raises(FileError, match=message):
            len(source)
        other.execute("ROLLBACK")
    assert len(source) == 100


def test_a_database_that_cannot_be_opened_is_told(numbers: Path):
    with closing(sqlite3.connect(numbers)) as other:
        other.execute("PRAGMA journal_mode = WAL")
    wal = Path(f"{numbers}-wal")
    wal.mkdir()
    source = SqliteSource(numbers, table="numbers")
    message = (
        r"^SQLite cannot read the database \(.*\)\. Check that it is whole and on a disk with "
    )
    with pytest.raises(FileError, match=message):
        len(source)


def test_a_database_that_its_writer_left_half_done_is_told(make: Make, tmp_path: Path):
    path = make("CREATE TABLE t (x)", "INSERT INTO t VALUES (zeroblob(100000))")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute("UPDATE t SET x = randomblob(100000)")
        left = tmp_path / "left.db"
        left.write_bytes(path.read_bytes())
        Path(f"{left}-journal").write_bytes(Path(f"{path}-journal").read_bytes())
        writer.execute("ROLLBACK")
    message = r"^A program that wrote to the database did not end properly \(.*\)\. Open it once "
    with pytest.raises(FileError, match=message):
        len(SqliteSource(left, table="t"))


def test_text_that_is_not_utf_8_is_told(make: Make):
    path = make("CREATE TABLE t (x)", "INSERT INTO t VALUES (CAST(x'ff' AS TEXT))")
    message = (
        r"^There is text that is not UTF-8 \(Could not decode to UTF-8 column 'x' .*\)\. Read such "
        r"a column with `CAST\(column AS BLOB\)` in a `query`\."
    )
    for reading in READINGS_OF_T:
        with pytest.raises(CorruptFileError, match=message):
            SqliteSource(path, **reading)[0]
    assert SqliteSource(path, query="SELECT CAST(x AS BLOB) AS x FROM t")[0] == {"x": b"\xff"}


def test_a_database_that_changes_meanwhile_is_told(numbers: Path, make: Make):
    source = SqliteSource(numbers, table="numbers")
    unused = SqliteSource(numbers, table="numbers")
    sent = pickle.dumps(source)
    assert source[0]["id"] == 1
    make("DELETE FROM numbers WHERE id = 1")
    os.utime(numbers, ns=(1, 1))
    for read in (source, unused, pickle.loads(sent)):
        with pytest.raises(ChangedFileError, match=r"has changed since this source found it\. "):
            read[0]


def test_another_database_in_its_place_is_told(numbers: Path, make: Make):
    source = SqliteSource(numbers, table="numbers")
    assert source[0]["id"] == 1
    os.replace(make("CREATE TABLE numbers (id)", name="b.db"), numbers)
    with pytest.raises(ChangedFileError, match=r"has changed since this source found it\. "):
        source[0]


def test_a_row_that_is_gone_is_told(numbers: Path, make: Make):
    source = SqliteSource(numbers, table="numbers")
    assert source[0]["id"] == 1
    found = os.stat(numbers)
    make("DELETE FROM numbers WHERE id = 1")
    os.utime(numbers, ns=(found.st_atime_ns, found.st_mtime_ns))  # as if it had not changed
    message = r"^There is no row 1 any more\. Make the source anew to read what is there now; "
    with pytest.raises(ChangedFileError, match=message):
        source[0]


def test_a_cache_folder_that_cannot_be_written_to_is_told(
    numbers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    message = (
        r"^The rows of a query are kept in a folder that cannot be written to \(Not a directory\)"
        r"\. Choose another with the environment variable `XDG_CACHE_HOME`\. \("
    )
    with pytest.raises(FileError, match=message):
        len(SqliteSource(numbers, query="SELECT 1"))
