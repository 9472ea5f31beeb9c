import os
import pickle
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill.errors import (
    ChangedFileError,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from tests.data.sources.sqlite.conftest import Create, records_of, run_program

READINGS_OF_T: Sequence[dict[str, Any]] = [{"table": "t"}, {"query": "SELECT * FROM t"}]


def by_sqlite(path: Path, query: str) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute(query)]


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
def test_rows_equal_those_of_sqlite(numbers: Path, reading: dict[str, Any], data: Any):
    expected = by_sqlite(numbers, "SELECT * FROM numbers ORDER BY id")
    source = SqliteSource(numbers, **reading)

    indices = data.draw(
        st.lists(st.integers(0, 99), max_size=200)
        | st.tuples(st.integers(0, 99), st.integers(0, 100)).map(lambda ends: range(*ends))
    )
    assert len(source) == 100
    assert source.__getitems__(indices) == [expected[index] for index in indices]
    assert source.__getitems__(np.array(indices, dtype=np.int64)) == [expected[i] for i in indices]
    if len(indices):
        assert source[indices[0]] == expected[indices[0]]
        assert list(source[indices[0]]) == ["id", "square", "name"]


def test_many_rows_in_any_order_are_read_at_once(create: Create):
    path = create(
        "CREATE TABLE t (x)",
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3999) "
        "INSERT INTO t SELECT i FROM n",
    )
    indices = np.random.default_rng(0).permutation(4000)[:3000]
    rows = SqliteSource(path, table="t").__getitems__(indices)
    assert [row["x"] for row in rows] == indices.tolist()


def test_values_equal_those_of_sqlite(create: Create):
    path = create(
        "CREATE TABLE t (x)",
        "INSERT INTO t VALUES (NULL), (-9223372036854775808), (1.5), ('é'), (x'00ff'), ('12')",
    )
    expected = [None, -(2**63), 1.5, "é", b"\x00\xff", "12"]
    for reading in READINGS_OF_T:
        values = [row["x"] for row in records_of(SqliteSource(path, **reading))]
        assert values == expected
        assert [type(value) for value in values] == [type(value) for value in expected]


def test_a_row_that_is_requested_twice_is_not_shared(numbers: Path):
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
def test_tables_of_any_kind_are_read(create: Create, statement: str):
    insert = "INSERT INTO t (a) VALUES ('y'), ('x')"
    if "AS (" not in statement:
        width = statement.count(",") + 1
        rows = ", ".join("(" + ", ".join([letter] * width) + ")" for letter in ("'y'", "'x'"))
        insert = f"INSERT INTO t VALUES {rows}"
    path = create(statement, insert)
    assert records_of(SqliteSource(path, table="t")) == by_sqlite(path, "SELECT * FROM t")


def test_views_are_read_and_can_be_pickled(numbers: Path, create: Create):
    create("CREATE VIEW large AS SELECT id AS i FROM numbers WHERE id > 90 ORDER BY id DESC")
    source = SqliteSource(numbers, table="large")
    expected = by_sqlite(numbers, "SELECT * FROM large")
    assert records_of(source) == expected
    assert records_of(pickle.loads(pickle.dumps(source))) == expected


def test_names_that_need_quotes_are_supported(create: Create):
    path = create("""CREATE TABLE "a ""b"" c's" (x)""", """INSERT INTO "a ""b"" c's" VALUES (1)""")
    assert records_of(SqliteSource(path, table='a "b" c\'s')) == [{"x": 1}]


def test_paths_with_special_characters_of_urls_are_read(create: Create):
    path = create("CREATE TABLE t (x)", "INSERT INTO t VALUES (1)", name="a ?mode=rw#50%é.db")
    assert records_of(SqliteSource(path, table="t")) == [{"x": 1}]


def test_an_empty_table_has_no_records(create: Create):
    path = create("CREATE TABLE t (x)")
    for reading in READINGS_OF_T:
        source = SqliteSource(path, **reading)
        assert (len(source), source.__getitems__([])) == (0, [])


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


def test_another_process_reads_the_same_rows(numbers: Path):
    source = SqliteSource(numbers, query="SELECT random() AS r FROM numbers")
    expected = source[99]["r"]
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer)[99]['r'])"
    assert int(run_program(program, source)) == expected


def test_a_database_in_a_store_is_read(numbers: Path):
    fsspec.filesystem("memory").pipe_file("/test_sqlite/a.db", numbers.read_bytes())
    source = SqliteSource("memory://test_sqlite/a.db", table="numbers")
    assert records_of(source) == by_sqlite(numbers, "SELECT * FROM numbers ORDER BY id")


@pytest.mark.parametrize("index", [-1, 100, 2**70])
def test_an_index_out_of_bounds_is_an_error(numbers: Path, index: int):
    source = SqliteSource(numbers, table="numbers")
    message = rf"^`index` must be in \[0, 100\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        source[index]
    if index < 2**63:
        with pytest.raises(IndexError, match=message):
            source.__getitems__([0, index])


def test_its_repr_contains_the_file_without_its_folder(numbers: Path):
    assert repr(SqliteSource(numbers, table="numbers")) == "SqliteSource('a.db', table='numbers')"
    assert repr(SqliteSource(numbers, query="SELECT 1")) == "SqliteSource('a.db', query='SELECT 1')"


def test_creating_the_source_reads_nothing(tmp_path: Path):
    (tmp_path / "a.db").write_bytes(b"not a database")
    SqliteSource(tmp_path / "a.db", table="t")
    with pytest.raises(MissingFileError):
        SqliteSource(tmp_path / "b.db", table="t")


def test_passing_a_table_and_a_query_is_an_error(numbers: Path):
    with pytest.raises(PlanError, match="either a `table` or a `query`, not both"):
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
def test_an_argument_that_is_not_a_string_is_an_error(numbers: Path, name: str):
    wrong: Any = {name: 5}
    with pytest.raises(PlanTypeError, match=rf"^`{name}` must be str, got 5\. Pass a string\.$"):
        SqliteSource(numbers, **wrong)


def test_a_missing_table_is_an_error_that_lists_the_tables(numbers: Path, create: Create):
    create("CREATE VIEW small AS SELECT 1")
    message = r"^`table` must be a table of the database, got 'x': it has 'numbers', 'small'\.$"
    with pytest.raises(PlanError, match=message):
        len(SqliteSource(numbers, table="x"))


def test_a_database_without_tables_is_an_error(tmp_path: Path):
    (tmp_path / "a.db").touch()
    with pytest.raises(PlanError, match=r"got 'x': it has no tables\.$"):
        len(SqliteSource(tmp_path / "a.db", table="x"))


def test_a_database_that_has_changed_is_an_error(numbers: Path, create: Create):
    source = SqliteSource(numbers, table="numbers")
    unused = SqliteSource(numbers, table="numbers")
    pickled = pickle.dumps(source)
    assert source[0]["id"] == 1
    create("DELETE FROM numbers WHERE id = 1")
    os.utime(numbers, ns=(1, 1))
    for read in (source, unused, pickle.loads(pickled)):
        with pytest.raises(ChangedFileError, match=r"has changed since"):
            read[0]


def test_a_database_that_was_replaced_is_an_error(numbers: Path, create: Create):
    source = SqliteSource(numbers, table="numbers")
    assert source[0]["id"] == 1
    os.replace(create("CREATE TABLE numbers (id)", name="b.db"), numbers)
    with pytest.raises(ChangedFileError, match=r"has changed since"):
        source[0]


def test_a_row_that_was_removed_is_an_error(numbers: Path, create: Create):
    source = SqliteSource(numbers, table="numbers")
    assert source[0]["id"] == 1
    found = os.stat(numbers)
    create("DELETE FROM numbers WHERE id = 1")
    os.utime(numbers, ns=(found.st_atime_ns, found.st_mtime_ns))  # as if it had not changed
    message = r"^Row 1 has been removed from the database\. Create the source again to read the "
    with pytest.raises(ChangedFileError, match=message):
        source[0]
