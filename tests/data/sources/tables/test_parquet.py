import pickle
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DataLoader, SequentialSampler
from gristmill._data.sources.tables import parquet as _parquet
from gristmill._data.sources.tables.parquet import ParquetSource
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FormatError,
    MissingFileError,
    PlanError,
)
from tests.data.sources.tables.small_tables import check_rows, same, some_indices, tables


def numbers(count: int = 100, first: int = 0) -> pa.Table:
    x = np.arange(first * 4, (first + count) * 4, dtype=np.float32)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "x": pa.FixedSizeListArray.from_arrays(pa.array(x), 4),
        }
    )


def write(path: Path, table: Any, **options: Any) -> str:
    pq.write_table(table, path, **options)
    return str(path)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each row group by itself, however small it is."""
    monkeypatch.setattr(_parquet, "_CHUNK_BYTES", 0)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), is_dense=st.booleans(), chunk_bytes=st.sampled_from([0, 2**20]))
def test_rows_equal_those_that_pyarrow_reads(data: st.DataObject, is_dense: bool, chunk_bytes: int):
    first = data.draw(tables(is_dense=is_dense))
    rest = data.draw(st.integers(0, len(first)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_parquet, "_CHUNK_BYTES", chunk_bytes)
        size = data.draw(st.integers(1, 12))
        paths = [
            write(Path(folder, "a.parquet"), first, row_group_size=size),
            write(Path(folder, "b.parquet"), first.slice(rest), row_group_size=size),
        ]
        expected = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
        cache_bytes = data.draw(st.sampled_from([0, 2**30]))
        source = ParquetSource(paths, cache_bytes=cache_bytes)
        assert source.is_columnar or not is_dense or not expected
        check_rows(source, expected, some_indices(data.draw, len(expected)))
        check_rows(source, expected, range(len(expected)))


def test_a_source_with_a_null_in_a_number_is_not_columnar(tmp_path: Path):
    table = pa.table({"a": pa.array([1, 2, None, 4], pa.int32()), "b": [1, 2, 3, 4]})
    path = write(tmp_path / "a.parquet", table, row_group_size=2)
    assert not ParquetSource(path).is_columnar
    assert ParquetSource(path, columns=["b"]).is_columnar
    assert ParquetSource(path).__getitems__([0, 2]) == [{"a": 1, "b": 1}, {"a": None, "b": 3}]
    assert type(ParquetSource(path)[0]["a"]) is np.int32


def test_a_source_without_statistics_is_not_columnar_but_reads_the_same_rows(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(5), write_statistics=False)
    source = ParquetSource(path)
    assert not source.is_columnar
    assert same(source[2], {"id": np.int64(2), "x": np.arange(8, 12, dtype=np.float32)})


def test_columns_are_in_the_selected_order(tmp_path: Path):
    path = write(tmp_path / "a.parquet", pa.table({"a": [1], "b": ["x"], "c.d": [2], "c": [3]}))
    assert list(ParquetSource(path)[0]) == ["a", "b", "c.d", "c"]
    assert list(ParquetSource(path, columns=["c", "a"])[0].items()) == [("c", 3), ("a", 1)]


def test_small_row_groups_are_read_together_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(tmp_path / "a.parquet", pa.table({"t": list("abcdefgh")}), row_group_size=1)
    size = pq.read_metadata(path).row_group(0).total_byte_size
    monkeypatch.setattr(_parquet, "_CHUNK_BYTES", 3 * size)
    reads: list[tuple[int, ...]] = []
    read_chunk = _parquet._ParquetFiles.read_chunk

    def record(files: Any, layout: Any, chunk: Any) -> Any:
        reads.append((chunk.first, chunk.stop))
        return read_chunk(files, layout, chunk)

    monkeypatch.setattr(_parquet._ParquetFiles, "read_chunk", record)
    source = ParquetSource(path)
    assert "".join(row["t"] for row in source.__getitems__([7, 0, 7, 3, 1])) == "hahdb"
    assert "".join(row["t"] for row in source.__getitems__(range(8))) == "abcdefgh"
    assert sorted(reads) == [(0, 3), (3, 6), (6, 8)]


PROGRAM = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
print(len(source), source[2]["id"], source.__getitems__([5, 0])[0]["id"], repr(source))
"""


@pytest.mark.parametrize("is_used", [False, True])
def test_a_pickled_source_reads_in_another_process(tmp_path: Path, is_used: bool):
    source = ParquetSource(write(tmp_path / "a.parquet", numbers(6), row_group_size=2))
    if is_used:
        source.__getitems__(range(6))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"6 2 5 ParquetSource('a.parquet')\n", b"")


@pytest.mark.parametrize("table", [numbers(0), pa.table({"t": pa.array([], pa.string())})])
def test_a_table_may_have_no_rows(tmp_path: Path, table: Any):
    source = ParquetSource(write(tmp_path / "a.parquet", table))
    assert (len(source), source.__getitems__([]), source.__getitems__(range(0))) == (0, [], [])
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


def test_files_in_a_store_are_read(tmp_path: Path):
    write(tmp_path / "a.parquet", numbers(50), row_group_size=10)
    with fsspec.open("memory://tables/a.parquet", "wb") as file:
        file.write((tmp_path / "a.parquet").read_bytes())  # pyright: ignore
    source = ParquetSource("memory://tables/*.parquet")
    assert [row["id"] for row in source.__getitems__([49, 3])] == [49, 3]


def test_the_loader_reads_all_rows_in_order(tmp_path: Path):
    path = write(tmp_path / "a.parquet", pa.table({"n": range(10), "t": list("abcdefghij")}))
    loader = DataLoader(data_source=ParquetSource(path), sampler=SequentialSampler(10))
    assert "".join(row["t"] for row in loader) == "abcdefghij"


def test_columns_that_are_not_selected_may_differ_between_files(tmp_path: Path):
    other = pa.table({"y": ["t"], "id": [7]})
    paths = [write(tmp_path / "a.parquet", numbers(1)), write(tmp_path / "b.parquet", other)]
    assert ParquetSource(paths, columns=["id"]).__getitems__([1, 0]) == [{"id": 7}, {"id": 0}]


@pytest.mark.parametrize("content", [b"", b"id,x\n1,2\n", b"A" * 100])
def test_a_file_of_another_format_is_an_error_with_its_first_bytes(tmp_path: Path, content: bytes):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    message = f"The file is not a Parquet file: it begins with {content[:4]!r} instead of b'PAR1'."
    with pytest.raises(FormatError, match=re.escape(message)) as caught:
        len(ParquetSource(path))
    assert caught.value.path == str(path)


def test_a_truncated_file_is_corrupt(tmp_path: Path):
    path = tmp_path / "a.parquet"
    write(path, numbers(1000))
    for size in (5, 100, path.stat().st_size - 1):
        truncated = tmp_path / f"{size}.parquet"
        truncated.write_bytes(path.read_bytes()[:size])
        with pytest.raises(CorruptFileError, match=r"The Parquet file is damaged or truncated: "):
            len(ParquetSource(truncated))


def test_a_damaged_page_is_an_error_by_its_checksum(tmp_path: Path):
    path = tmp_path / "a.parquet"
    write(path, numbers(1000), write_page_checksum=True, compression="none")
    data = bytearray(path.read_bytes())
    data[3000] ^= 1
    path.write_bytes(data)
    source = ParquetSource(path)
    assert len(source) == 1000
    with pytest.raises(CorruptFileError, match=r"The Parquet file is damaged .*CRC") as caught:
        source[0]
    assert caught.value.path == str(path)


def test_a_file_that_has_changed_is_an_error(tmp_path: Path):
    path = tmp_path / "a.parquet"
    source = ParquetSource(write(path, numbers(10)))
    assert len(source) == 10
    write(path, numbers(11))
    with pytest.raises(ChangedFileError):
        source[0]


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        ParquetSource(tmp_path / "a.parquet")


def test_cache_bytes_must_not_be_negative(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(1))
    with pytest.raises(PlanError, match=r"`cache_bytes` must be at least 0, got -1."):
        ParquetSource(path, cache_bytes=-1)
