"""Tables are read from Parquet files here, as one row group is one chunk."""

import pickle
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import Batch, DataLoader, IndexSampler, Map, load
from gristmill._data.sources.tables import parquet as _parquet
from gristmill._data.sources.tables.parquet import ParquetSource
from gristmill.errors import BatchError, CorruptFileError
from tests.data.sources.tables.small_tables import same


def numbers(count: int, first: int = 0) -> pa.Table:
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
    """Make each row group a chunk, however small it is."""
    monkeypatch.setattr(_parquet, "_CHUNK_BYTES", 0)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("cache_bytes", [0, 1000, 2**30])
@pytest.mark.parametrize("span", [range(90, 110), range(0, 200, 7), range(150, 20, -3)])
def test_reading_a_range_equals_reading_an_array_of_the_same_indices(
    tmp_path: Path, cache_bytes: int, span: range
):
    path = write(tmp_path / "a.parquet", numbers(200), row_group_size=100)
    source = ParquetSource(path, cache_bytes=cache_bytes)
    assert same(source.read_columns(span).rows(), source.__getitems__(list(span)))
    assert source.read_columns(span).gather()["id"].tolist() == list(span)


@pytest.mark.usefixtures("small_chunks")
def test_batches_of_columns_equal_batches_of_records(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(100), row_group_size=7)
    sampler = IndexSampler(100, shuffle=True, seed=1, num_epochs=1)
    source = ParquetSource(path)
    by_columns, by_rows = (
        list(DataLoader(data_source=data, sampler=sampler, operations=[Batch(8)]))
        for data in (source, [source[index] for index in range(100)])
    )
    assert source.is_columnar
    assert all(map(same, by_columns, by_rows))
    assert len(by_columns) == len(by_rows) == 13


def test_writing_to_a_record_does_not_change_the_source(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(3))
    source = ParquetSource(path)
    source[1]["x"][:] = -1
    source.__getitems__([1])[0]["x"][:] = -1
    assert source[1]["x"].tolist() == [4, 5, 6, 7]


def test_files_without_rows_may_be_between_others(tmp_path: Path):
    paths = [
        write(tmp_path / f"{number}.parquet", numbers(count, first))
        for number, (count, first) in enumerate([(0, 0), (2, 0), (0, 2), (3, 2)])
    ]
    source = ParquetSource(paths)
    assert [row["id"] for row in source.__getitems__([4, 0, 2])] == [4, 0, 2]


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("has_strings", [False, True])
@pytest.mark.parametrize("index", [-1, 4])
def test_an_index_out_of_bounds_is_an_error(tmp_path: Path, index: int, has_strings: bool):
    table = pa.table({"t": list("abcd")}) if has_strings else numbers(4)
    source = ParquetSource(write(tmp_path / "a.parquet", table, row_group_size=2))
    message = re.escape(f"`index` must be in [0, 4), got {index}.")
    for read in (lambda: source[index], lambda: source.__getitems__([0, index])):
        with pytest.raises(IndexError, match=message):
            read()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("has_strings", [False, True])
def test_threads_may_share_a_source(tmp_path: Path, has_strings: bool):
    table = numbers(1000)
    if has_strings:
        table = table.append_column("t", pa.array([str(n) for n in range(1000)]))
    path = write(tmp_path / "a.parquet", table, row_group_size=10)
    source = ParquetSource(path, cache_bytes=10_000)
    orders = [np.random.default_rng(seed).permutation(1000) for seed in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for order, rows in zip(orders, threads.map(source.__getitems__, orders), strict=True):
            assert [row["id"] for row in rows] == order.tolist()


def test_a_pickled_source_does_not_contain_loaded_chunks(tmp_path: Path):
    source = ParquetSource(write(tmp_path / "a.parquet", numbers(10_000)))
    assert len(source) == 10_000
    before = len(pickle.dumps(source))
    source.__getitems__(range(10_000))
    assert len(pickle.dumps(source)) == before < 5000


def test_its_repr_contains_files_and_columns_but_no_folder(tmp_path: Path):
    paths = [write(tmp_path / f"{name}.parquet", numbers(1)) for name in "ab"]
    expected = "ParquetSource(<2 files>, 'a.parquet', ..., columns=['id'])"
    assert repr(ParquetSource(paths, columns=["id"])) == expected


def test_a_string_that_is_not_utf_8_is_an_error_with_its_file(tmp_path: Path):
    good = pa.table({"t": pa.array(["a", "b"])})
    bad = pa.table({"t": pa.array([b"c", b"\xff"]).cast(pa.string(), safe=False).view(pa.string())})
    paths = [write(tmp_path / "a.parquet", good), write(tmp_path / "b.parquet", bad)]
    source = ParquetSource(paths)
    message = (
        "A string is not UTF-8: invalid start byte. Write the file again, with binary values where "
        f"they are not text. ({paths[1]})"
    )
    for read in (lambda: source[3], lambda: source.__getitems__([0, 3, 2])):
        with pytest.raises(CorruptFileError, match=re.escape(message)):
            read()
    assert source.__getitems__([2, 0]) == [{"t": "c"}, {"t": "a"}]


PEAK = """
import sys
import pyarrow as pa
from gristmill._data.sources.tables import parquet
parquet._CHUNK_BYTES = 0
source = parquet.ParquetSource(sys.argv[1], cache_bytes=0)
source.__getitems__(range(0, len(source), 10))
print(pa.default_memory_pool().max_memory())
"""


def test_a_block_of_rows_from_many_chunks_does_not_keep_all_chunks_in_memory(tmp_path: Path):
    num_groups, string_bytes = 30, 20_000
    table = pa.table({"t": [f"{n}" * string_bytes for n in range(10)] * num_groups})
    path = write(tmp_path / "a.parquet", table, row_group_size=10)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path], capture_output=True, timeout=60, check=True
    )
    group_bytes = 10 * string_bytes
    assert group_bytes < int(done.stdout) < num_groups * group_bytes / 2


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 2**30])
@pytest.mark.parametrize("worker_count", [0, 1])
def test_batches_with_strings_equal_batches_of_records(
    tmp_path: Path, cache_bytes: int, worker_count: int
):
    count = 500
    table = pa.table(
        {
            "id": pa.array(range(count), pa.int16()),
            "text": [f"text {number} " * (number % 7) + "ü" for number in range(count)],
            "raw": [bytes([number % 256]) * (number % 5) + b"!" for number in range(count)],
        }
    )
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=60)
    source = ParquetSource(tmp_path / "a.parquet", cache_bytes=cache_bytes)
    rows = [source[number] for number in range(count)]
    assert source.is_columnar

    def batches(records: Any) -> list[Any]:
        loader = load(
            records, shuffle=True, seed=3, num_epochs=2, batch_size=32, worker_count=worker_count
        )
        return list(loader)

    for ours, expected in zip(batches(source), batches(rows), strict=True):
        for name, values in expected.items():
            assert ours[name].dtype == values.dtype
            np.testing.assert_array_equal(ours[name], values)


def test_batching_a_null_among_strings_is_an_error_that_names_the_record(tmp_path: Path):
    pq.write_table(pa.table({"text": ["a", "b", None, "d"]}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path / "a.parquet")
    assert source.__getitems__(range(4)) == [{"text": value} for value in ("a", "b", None, "d")]

    with pytest.raises(BatchError, match=r'batch\["text"\]') as raised:
        list(load(source, num_epochs=1, batch_size=4))

    assert "record 2" in "".join(raised.value.__notes__)


def test_map_batch_is_not_used_for_columns_of_strings(tmp_path: Path):
    class Shorten(Map):
        def map(self, element: Any) -> Any:
            return {**element, "text": element["text"][:1]}

        def map_batch(self, columns: Any) -> Any:
            raise AssertionError("called with a column of strings")

    pq.write_table(pa.table({"text": ["abc", "def"], "id": [1, 2]}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path / "a.parquet")

    (batch,) = load(source, transformations=[Shorten()], num_epochs=1, batch_size=2)

    assert batch["text"].tolist() == ["a", "d"]
