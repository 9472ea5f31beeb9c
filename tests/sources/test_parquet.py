import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import check_rows, same, some_indices, tables

from gristmill import Batch, DataLoader, IndexSampler, Map, SequentialSampler, load
from gristmill.errors import (
    BatchError,
    ChangedFileError,
    CorruptFileError,
    FormatError,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from gristmill.sources import _parquet
from gristmill.sources._parquet import ParquetSource


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
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each row group by itself, however small it is."""
    monkeypatch.setattr(_parquet, "_PART_BYTES", 0)


@settings(max_examples=40, deadline=None)
@given(data=st.data(), is_dense=st.booleans(), part_bytes=st.sampled_from([0, 2**20]))
def test_rows_are_those_that_pyarrow_reads(data: st.DataObject, is_dense: bool, part_bytes: int):
    first = data.draw(tables(is_dense=is_dense))
    rest = data.draw(st.integers(0, len(first)))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_parquet, "_PART_BYTES", part_bytes)
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


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("cache_bytes", [0, 1000, 2**30])
@pytest.mark.parametrize("span", [range(90, 110), range(0, 200, 7), range(150, 20, -3)])
def test_ranges_give_what_arrays_of_the_same_indices_give(
    tmp_path: Path, cache_bytes: int, span: range
):
    path = write(tmp_path / "a.parquet", numbers(200), row_group_size=100)
    source = ParquetSource(path, cache_bytes=cache_bytes)
    assert same(source.read_columns(span).rows(), source.__getitems__(list(span)))
    assert source.read_columns(span).gather()["id"].tolist() == list(span)


@pytest.mark.usefixtures("small_parts")
def test_a_batch_is_the_same_through_columns_and_through_records(tmp_path: Path):
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


def test_records_own_their_memory(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(3))
    source = ParquetSource(path)
    source[1]["x"][:] = -1
    source.__getitems__([1])[0]["x"][:] = -1
    assert source[1]["x"].tolist() == [4, 5, 6, 7]


def test_a_column_with_a_null_anywhere_makes_the_source_one_of_records(tmp_path: Path):
    table = pa.table({"a": pa.array([1, 2, None, 4], pa.int32()), "b": [1, 2, 3, 4]})
    path = write(tmp_path / "a.parquet", table, row_group_size=2)
    assert not ParquetSource(path).is_columnar
    assert ParquetSource(path, columns=["b"]).is_columnar
    assert ParquetSource(path).__getitems__([0, 2]) == [{"a": 1, "b": 1}, {"a": None, "b": 3}]
    assert type(ParquetSource(path)[0]["a"]) is np.int32


def test_without_statistics_nobody_knows_of_nulls_and_records_are_right_all_the_same(
    tmp_path: Path,
):
    path = write(tmp_path / "a.parquet", numbers(5), write_statistics=False)
    source = ParquetSource(path)
    assert not source.is_columnar
    assert same(source[2], {"id": np.int64(2), "x": np.arange(8, 12, dtype=np.float32)})


def test_columns_stand_in_the_order_asked_for(tmp_path: Path):
    path = write(tmp_path / "a.parquet", pa.table({"a": [1], "b": ["x"], "c.d": [2], "c": [3]}))
    assert list(ParquetSource(path)[0]) == ["a", "b", "c.d", "c"]
    assert list(ParquetSource(path, columns=["c", "a"])[0].items()) == [("c", 3), ("a", 1)]


def test_small_row_groups_are_read_together_and_each_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(tmp_path / "a.parquet", pa.table({"t": list("abcdefgh")}), row_group_size=1)
    size = pq.read_metadata(path).row_group(0).total_byte_size
    monkeypatch.setattr(_parquet, "_PART_BYTES", 3 * size)
    reads: list[tuple[int, ...]] = []
    read = _parquet._ParquetFiles.read

    def listed(files: Any, layout: Any, part: Any) -> Any:
        reads.append((part.first, part.stop))
        return read(files, layout, part)

    monkeypatch.setattr(_parquet._ParquetFiles, "read", listed)
    source = ParquetSource(path)
    assert "".join(row["t"] for row in source.__getitems__([7, 0, 7, 3, 1])) == "hahdb"
    assert "".join(row["t"] for row in source.__getitems__(range(8))) == "abcdefgh"
    assert sorted(reads) == [(0, 3), (3, 6), (6, 8)]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("has_text", [False, True])
def test_threads_may_share_a_source(tmp_path: Path, has_text: bool):
    table = numbers(1000)
    if has_text:
        table = table.append_column("t", pa.array([str(n) for n in range(1000)]))
    path = write(tmp_path / "a.parquet", table, row_group_size=10)
    source = ParquetSource(path, cache_bytes=10_000)
    orders = [np.random.default_rng(seed).permutation(1000) for seed in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for order, rows in zip(orders, threads.map(source.__getitems__, orders), strict=True):
            assert [row["id"] for row in rows] == order.tolist()


PROGRAM = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
print(len(source), source[2]["id"], source.__getitems__([5, 0])[0]["id"], repr(source))
"""


@pytest.mark.parametrize("is_known", [False, True])
def test_a_pickled_source_reads_in_another_process(tmp_path: Path, is_known: bool):
    source = ParquetSource(write(tmp_path / "a.parquet", numbers(6), row_group_size=2))
    if is_known:
        source.__getitems__(range(6))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"6 2 5 ParquetSource('a.parquet')\n", b"")


def test_what_is_pickled_does_not_grow_with_what_was_read(tmp_path: Path):
    source = ParquetSource(write(tmp_path / "a.parquet", numbers(10_000)))
    assert len(source) == 10_000
    before = len(pickle.dumps(source))
    source.__getitems__(range(10_000))
    assert len(pickle.dumps(source)) == before < 5000


def test_the_repr_names_files_and_columns_but_no_folder(tmp_path: Path):
    paths = [write(tmp_path / f"{name}.parquet", numbers(1)) for name in "ab"]
    told = "ParquetSource(<2 files>, 'a.parquet', ..., columns=['id'])"
    assert repr(ParquetSource(paths, columns=["id"])) == told


@pytest.mark.parametrize("table", [numbers(0), pa.table({"t": pa.array([], pa.string())})])
def test_a_table_may_have_no_rows(tmp_path: Path, table: Any):
    source = ParquetSource(write(tmp_path / "a.parquet", table))
    assert (len(source), source.__getitems__([]), source.__getitems__(range(0))) == (0, [], [])
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


def test_files_without_rows_stand_between_others(tmp_path: Path):
    paths = [
        write(tmp_path / f"{number}.parquet", numbers(count, first))
        for number, (count, first) in enumerate([(0, 0), (2, 0), (0, 2), (3, 2)])
    ]
    source = ParquetSource(paths)
    assert [row["id"] for row in source.__getitems__([4, 0, 2])] == [4, 0, 2]


@pytest.mark.usefixtures("small_parts")
@pytest.mark.parametrize("has_text", [False, True])
@pytest.mark.parametrize("index", [-1, 4])
def test_indices_outside_raise(tmp_path: Path, index: int, has_text: bool):
    table = pa.table({"t": list("abcd")}) if has_text else numbers(4)
    source = ParquetSource(write(tmp_path / "a.parquet", table, row_group_size=2))
    told = re.escape(f"`index` must be in [0, 4), got {index}.")
    for read in (lambda: source[index], lambda: source.__getitems__([0, index])):
        with pytest.raises(IndexError, match=told):
            read()


def test_files_in_a_store_are_read(tmp_path: Path):
    write(tmp_path / "a.parquet", numbers(50), row_group_size=10)
    with fsspec.open("memory://tables/a.parquet", "wb") as file:
        file.write((tmp_path / "a.parquet").read_bytes())  # pyright: ignore
    source = ParquetSource("memory://tables/*.parquet")
    assert [row["id"] for row in source.__getitems__([49, 3])] == [49, 3]


def test_the_loader_reads_the_whole_file_in_order(tmp_path: Path):
    path = write(tmp_path / "a.parquet", pa.table({"n": range(10), "t": list("abcdefghij")}))
    loader = DataLoader(data_source=ParquetSource(path), sampler=SequentialSampler(10))
    assert "".join(row["t"] for row in loader) == "abcdefghij"


def test_wanted_columns_that_are_not_there_are_named_with_those_that_are(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(1))
    source = ParquetSource(path, columns=["id", "y", "z"])
    told = "`columns` names 'y', 'z', and the columns of 'a.parquet' are 'id', 'x'."
    with pytest.raises(PlanError, match=re.escape(told)):
        len(source)


@pytest.mark.parametrize(
    ("columns", "kind", "told"),
    [
        ([], PlanError, "`columns` must name at least one column. Leave it out to read all."),
        (["a", "a"], PlanError, "`columns` must name each column once, got ['a', 'a']."),
        ([1], PlanTypeError, "`columns` must hold names, got 1."),
        ("id", PlanTypeError, "`columns` must be a list, got 'id'. Put it in brackets."),
    ],
)
def test_columns_must_be_names_each_once(
    tmp_path: Path, columns: Any, kind: type[Exception], told: str
):
    path = write(tmp_path / "a.parquet", numbers(1))
    with pytest.raises(kind, match=re.escape(told)):
        ParquetSource(path, columns=columns)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (
            pa.table({"id": [1]}),
            "There is no column 'x', which 'a.parquet' has. All files of a source must have the "
            "same; choose with `columns`.",
        ),
        (
            numbers(1).append_column("y", pa.array([1])),
            "There is a column 'y', which 'a.parquet' does not have. All files of a source must "
            "have the same; choose with `columns`.",
        ),
        (
            numbers(1).set_column(0, "id", pa.array([1.5])),
            "Column 'id' is double, and in 'a.parquet' it is int64. All files of a source must "
            "have the same; choose with `columns`.",
        ),
    ],
)
def test_files_must_have_the_same_columns(tmp_path: Path, other: Any, told: str):
    paths = [write(tmp_path / "a.parquet", numbers(1)), write(tmp_path / "b.parquet", other)]
    with pytest.raises(FormatError, match=re.escape(told)) as caught:
        len(ParquetSource(paths))
    assert caught.value.path == paths[1]


def test_columns_that_differ_do_not_matter_if_they_are_not_wanted(tmp_path: Path):
    other = pa.table({"y": ["t"], "id": [7]})
    paths = [write(tmp_path / "a.parquet", numbers(1)), write(tmp_path / "b.parquet", other)]
    assert ParquetSource(paths, columns=["id"]).__getitems__([1, 0]) == [{"id": 7}, {"id": 0}]


def test_two_columns_of_one_name_raise(tmp_path: Path):
    path = write(tmp_path / "a.parquet", pa.Table.from_arrays([[1], [2]], names=["a", "a"]))
    told = "There are several columns named 'a', and a record can have one. Rename the others."
    with pytest.raises(FormatError, match=re.escape(told)):
        len(ParquetSource(path))


def test_a_table_without_columns_raises(tmp_path: Path):
    path = write(tmp_path / "a.parquet", pa.table({}))
    with pytest.raises(FormatError, match=r"The table has no columns."):
        len(ParquetSource(path))


@pytest.mark.parametrize("content", [b"", b"id,x\n1,2\n", b"A" * 100])
def test_another_format_is_told_by_its_first_bytes(tmp_path: Path, content: bytes):
    path = tmp_path / "a.parquet"
    path.write_bytes(content)
    told = f"It is not a Parquet file: it begins with {content[:4]!r} instead of b'PAR1'."
    with pytest.raises(FormatError, match=re.escape(told)) as caught:
        len(ParquetSource(path))
    assert caught.value.path == str(path)


def test_a_file_cut_short_is_corrupt(tmp_path: Path):
    path = tmp_path / "a.parquet"
    write(path, numbers(1000))
    for size in (5, 100, path.stat().st_size - 1):
        cut = tmp_path / f"{size}.parquet"
        cut.write_bytes(path.read_bytes()[:size])
        with pytest.raises(CorruptFileError, match=r"The Parquet file is damaged or cut short: "):
            len(ParquetSource(cut))


def test_damaged_pages_are_told_by_their_checksum(tmp_path: Path):
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


def test_a_file_that_changed_meanwhile_is_told(tmp_path: Path):
    path = tmp_path / "a.parquet"
    source = ParquetSource(write(path, numbers(10)))
    assert len(source) == 10
    write(path, numbers(11))
    with pytest.raises(ChangedFileError):
        source[0]


def test_a_file_that_is_not_there_raises_at_once(tmp_path: Path):
    with pytest.raises(MissingFileError):
        ParquetSource(tmp_path / "a.parquet")


def test_cache_bytes_must_not_be_negative(tmp_path: Path):
    path = write(tmp_path / "a.parquet", numbers(1))
    with pytest.raises(PlanError, match=r"`cache_bytes` must be at least 0, got -1."):
        ParquetSource(path, cache_bytes=-1)


def test_a_text_that_is_not_utf_8_is_told_with_its_file(tmp_path: Path):
    good = pa.table({"t": pa.array(["a", "b"])})
    bad = pa.table({"t": pa.array([b"c", b"\xff"]).cast(pa.string(), safe=False).view(pa.string())})
    paths = [write(tmp_path / "a.parquet", good), write(tmp_path / "b.parquet", bad)]
    source = ParquetSource(paths)
    told = (
        "A text is not UTF-8: invalid start byte. Write the file anew, with binary values where "
        f"they are no text. ({paths[1]})"
    )
    for read in (lambda: source[3], lambda: source.__getitems__([0, 3, 2])):
        with pytest.raises(CorruptFileError, match=re.escape(told)):
            read()
    assert source.__getitems__([2, 0]) == [{"t": "c"}, {"t": "a"}]


PEAK = """
import sys
import pyarrow as pa
from gristmill.sources import _parquet
_parquet._PART_BYTES = 0
source = _parquet.ParquetSource(sys.argv[1], cache_bytes=0)
source.__getitems__(range(0, len(source), 10))
print(pa.default_memory_pool().max_memory())
"""


def test_a_block_over_many_row_groups_does_not_keep_them_all_in_memory(tmp_path: Path):
    num_groups, text_bytes = 30, 20_000
    table = pa.table({"t": [f"{n}" * text_bytes for n in range(10)] * num_groups})
    path = write(tmp_path / "a.parquet", table, row_group_size=10)
    done = subprocess.run(
        [sys.executable, "-c", PEAK, path], capture_output=True, timeout=60, check=True
    )
    group_bytes = 10 * text_bytes
    assert group_bytes < int(done.stdout) < num_groups * group_bytes / 2


@pytest.mark.parametrize("cache_bytes", [0, 20_000, 2**30])
@pytest.mark.parametrize("worker_count", [0, 1])
def test_batches_with_texts_are_those_of_rows(tmp_path: Path, cache_bytes: int, worker_count: int):
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


def test_a_null_among_texts_is_named_when_they_are_batched(tmp_path: Path):
    pq.write_table(pa.table({"text": ["a", "b", None, "d"]}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path / "a.parquet")
    assert source.__getitems__(range(4)) == [{"text": text} for text in ("a", "b", None, "d")]

    with pytest.raises(BatchError, match=r'batch\["text"\]') as raised:
        list(load(source, num_epochs=1, batch_size=4))

    assert "record 2" in "".join(raised.value.__notes__)


def test_a_step_over_columns_gets_records_where_there_are_texts(tmp_path: Path):
    class Shorten(Map):
        def map(self, element: Any) -> Any:
            return {**element, "text": element["text"][:1]}

        def map_batch(self, columns: Any) -> Any:
            raise AssertionError("texts are no columns to it")

    pq.write_table(pa.table({"text": ["abc", "def"], "id": [1, 2]}), tmp_path / "a.parquet")
    source = ParquetSource(tmp_path / "a.parquet")

    (batch,) = load(source, transformations=[Shorten()], num_epochs=1, batch_size=2)

    assert batch["text"].tolist() == ["a", "d"]
