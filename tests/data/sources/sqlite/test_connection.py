import gc
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill.errors import CorruptFileError, FileError, FormatError, PlanError
from gristmill.options import StorageOptions
from tests.data.sources.sqlite.conftest import Create, records_of, run_program

READINGS: Sequence[dict[str, Any]] = [{"table": "numbers"}, {"query": "SELECT * FROM numbers"}]


FORKING = """
import os, pickle, sys

source = pickle.load(sys.stdin.buffer)
assert source[0]["id"] == 1
(parents,) = source._database._idle[os.getpid()]
pid = os.fork()
if pid == 0:
    is_right = source[1]["id"] == 2
    (own,) = source._database._idle[os.getpid()]
    os._exit(0 if is_right and own is not parents else 1)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(status, source[2]["id"])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_opens_its_own_connection(numbers: Path):
    assert run_program(FORKING, SqliteSource(numbers, table="numbers")) == "0 4\n"


def test_connections_are_closed_with_the_source(numbers: Path):
    source = SqliteSource(numbers, table="numbers")
    records_of(source)
    (connection,) = source._database._idle[os.getpid()]  # pyright: ignore[reportOptionalMemberAccess]
    assert connection.execute("SELECT 1").fetchone() == (1,)
    del source
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
        connection.execute("SELECT 1")


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_file_that_is_not_a_database_is_an_error(tmp_path: Path, reading: dict[str, Any]):
    (tmp_path / "a.db").write_bytes(b"not a database" * 1000)
    message = r"^The file is not a readable SQLite database \(file is not a database\)\. Check the "
    with pytest.raises(FormatError, match=message) as caught:
        len(SqliteSource(tmp_path / "a.db", **reading))
    assert caught.value.path == str(tmp_path / "a.db")


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_damaged_database_is_an_error(numbers: Path, reading: dict[str, Any]):
    data = bytearray(numbers.read_bytes())
    data[4096:] = bytes([7]) * (len(data) - 4096)
    numbers.write_bytes(data)
    message = r"^The database is damaged \(.*malformed\)\. Copy it again, or recover its content "
    with pytest.raises(CorruptFileError, match=message):
        len(SqliteSource(numbers, **reading))


@pytest.mark.parametrize("reading", READINGS, ids=str)
def test_a_locked_database_is_an_error(numbers: Path, reading: dict[str, Any]):
    source = SqliteSource(numbers, **reading, storage=StorageOptions(timeout_s=0.01))
    with closing(sqlite3.connect(numbers, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        message = (
            r"^Another program is writing to the database \(database is locked\)\. Wait until it "
            r"has finished, or read a copy\. \("
        )
        with pytest.raises(FileError, match=message):
            len(source)
        other.execute("ROLLBACK")
    assert len(source) == 100


def test_a_database_that_cannot_be_opened_is_an_error(numbers: Path):
    with closing(sqlite3.connect(numbers)) as other:
        other.execute("PRAGMA journal_mode = WAL")
    wal = Path(f"{numbers}-wal")
    wal.mkdir()
    source = SqliteSource(numbers, table="numbers")
    message = (
        r"^SQLite cannot read the database \(.*\)\. Check that it is complete and that its disk "
    )
    with pytest.raises(FileError, match=message):
        len(source)


def test_a_database_with_an_interrupted_transaction_is_an_error(create: Create, tmp_path: Path):
    path = create("CREATE TABLE t (x)", "INSERT INTO t VALUES (zeroblob(100000))")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA cache_size = 1")
        writer.execute("BEGIN")
        writer.execute("UPDATE t SET x = randomblob(100000)")
        interrupted = tmp_path / "interrupted.db"
        interrupted.write_bytes(path.read_bytes())
        Path(f"{interrupted}-journal").write_bytes(Path(f"{path}-journal").read_bytes())
        writer.execute("ROLLBACK")
    message = r"^A program was interrupted while writing to the database \(.*\)\. Open it once "
    with pytest.raises(FileError, match=message):
        len(SqliteSource(interrupted, table="t"))


def test_a_string_that_is_not_utf_8_is_an_error(create: Create):
    path = create("CREATE TABLE t (x)", "INSERT INTO t VALUES (CAST(x'ff' AS TEXT))")
    message = (
        r"^A string is not UTF-8 \(Could not decode to UTF-8 column 'x' .*\)\. Read such "
        r"a column with `CAST\(column AS BLOB\)` in a `query`\."
    )
    readings: Sequence[dict[str, Any]] = [{"table": "t"}, {"query": "SELECT * FROM t"}]
    for reading in readings:
        with pytest.raises(CorruptFileError, match=message):
            SqliteSource(path, **reading)[0]
    assert SqliteSource(path, query="SELECT CAST(x AS BLOB) AS x FROM t")[0] == {"x": b"\xff"}


def test_the_database_is_not_written_to(numbers: Path):
    before = numbers.read_bytes()
    numbers.chmod(0o444)
    records_of(SqliteSource(numbers, table="numbers"))
    with pytest.raises(PlanError, match=r"readonly database"):
        len(SqliteSource(numbers, query="DELETE FROM numbers"))
    assert numbers.read_bytes() == before


def test_a_large_value_in_a_write_ahead_log_is_read(tmp_path: Path):
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA wal_autocheckpoint = 0")
        database.execute("CREATE TABLE t (x BLOB)")
        database.execute("INSERT INTO t VALUES (zeroblob(9000000))")
        assert (tmp_path / "a.db").stat().st_size < 10**6
        assert len(SqliteSource(tmp_path / "a.db")[0]["x"]) == 9_000_000
