import pickle
import re
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import check_rows, same, some_indices, tables

from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from gristmill.files import OpenFiles, find_files
from gristmill.sources import _ipc
from gristmill.sources._ipc import ArrowSource
from gristmill.sources._ipc_messages import find_messages

FORMATS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}


def write(
    path: Path, table: Any, *, kind: str = "file", rows: int = 1000, compression: Any = None
) -> str:
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with FORMATS[kind](str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def numbers(count: int = 100) -> pa.Table:
    x = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * count, dtype=np.float32)), 2)
    return pa.table({"id": np.arange(count), "x": x})


def texts(count: int = 100) -> pa.Table:
    return pa.table({"id": np.arange(count), "t": [str(n) for n in range(count)]})


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    is_dense=st.booleans(),
    kind=st.sampled_from(list(FORMATS)),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    part_bytes=st.sampled_from([0, 2**20]),
    cache_bytes=st.sampled_from([0, 2**20]),
)
def test_rows_are_those_that_pyarrow_reads(
    data: st.DataObject,
    is_dense: bool,
    kind: str,
    compression: Any,
    part_bytes: int,
    cache_bytes: int,
):
    table = data.draw(tables(is_dense=is_dense))
    other = table.slice(data.draw(st.integers(0, len(table))))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ipc, "_PART_BYTES", part_bytes)
        patch.setattr(_ipc, "CACHE_BYTES", cache_bytes)
        rows = data.draw(st.integers(1, 12))
        paths = [
            write(Path(folder, name), one, kind=kind, rows=rows, compression=compression)
            for name, one in (("a", table), ("b", other))
        ]
        expected = table.to_pylist() + other.to_pylist()
        source = ArrowSource(paths)
        assert source.is_columnar or not is_dense
        check_rows(source, expected, some_indices(data.draw, len(expected)))
        check_rows(source, expected, range(len(expected)))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_files_are_read(tmp_path: Path, compression: Any):
    feather.write_feather(texts(), tmp_path / "a.feather", compression=compression, chunksize=7)
    source = ArrowSource(tmp_path / "a.feather")
    check_rows(source, texts().to_pylist(), [99, 0, 50, 0])


@pytest.mark.parametrize("kind", FORMATS)
def test_what_is_found_is_what_pyarrow_would_count(tmp_path: Path, kind: str):
    table = pa.table(
        {
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"a": None, "b": [1.0]}] * 3),
            "u": pa.array(["x", "y", None]).dictionary_encode(),
            "n": pa.array([1, 2, None]),
            "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
        }
    )
    path = write(tmp_path / "a.arrow", table, kind=kind, rows=2)
    messages = find_messages(OpenFiles(find_files(path))[0])
    assert messages.counts == [2, 1]
    assert (len(messages.dictionaries), messages.is_compressed) == (1, False)
    # The arrays are m, its entries, keys, values; s, a, b, items of b; u; n; f, items of f.
    assert [np.flatnonzero(batch).tolist() for batch in messages.nulls] == [[0, 5], [5, 8, 9]]
    assert messages.nulls.shape == (2, 12)


@pytest.mark.parametrize("kind", FORMATS)
def test_only_nulls_in_wanted_numbers_keep_columns_from_being_given_whole(
    tmp_path: Path, kind: str
):
    table = pa.table({"a": [None, 1], "t": ["x", "y"], "b": [1, 2]})
    path = write(tmp_path / "a.arrow", table, kind=kind)
    assert ArrowSource(path, columns=["b"]).is_columnar
    assert not ArrowSource(path, columns=["a", "b"]).is_columnar
    assert ArrowSource(path, columns=["b", "t"]).is_columnar


def test_a_mapped_column_of_one_batch_is_the_file_itself(tmp_path: Path):
    source = ArrowSource(write(tmp_path / "a.arrow", numbers()))
    first, second = (np.asarray(source.read_columns(range(100))._arrays[0]) for _ in range(2))
    assert first.__array_interface__["data"] == second.__array_interface__["data"]
    assert not first.flags.writeable


def test_counting_compressed_rows_decodes_none_of_them(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write(path, texts(1000), compression="zstd")
    messages = find_messages(OpenFiles(find_files(path))[0])
    stop = messages.batches[0][1]
    data = bytearray(path.read_bytes())
    data[stop - 2000 : stop] = bytes(2000)
    path.write_bytes(data)
    source = ArrowSource(path)
    assert len(source) == 1000
    with pytest.raises(CorruptFileError, match=r"The Arrow file is damaged or cut short: ") as told:
        source[0]
    assert told.value.path == str(path)


def test_dictionaries_that_are_replaced_on_the_way_hold_for_what_follows(tmp_path: Path):
    batches = [pa.array(list(word)).dictionary_encode() for word in ("abc", "xyz", "uvw")]
    schema = pa.schema([("d", batches[0].type)])
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch([batch], schema=schema))
    for part_bytes in (0, 2**20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_ipc, "_PART_BYTES", part_bytes)
            source = ArrowSource(tmp_path / "a.arrow")
            assert "".join(source[n]["d"] for n in range(9)) == "abcxyzuvw"
            rows = source.__getitems__([8, 0, 4])
            assert "".join(row["d"] for row in rows) == "way"


def test_deltas_of_dictionaries_are_added(tmp_path: Path):
    kind = pa.dictionary(pa.int8(), pa.string())
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True)
    schema = pa.schema([("d", kind)])
    with pa.ipc.new_file(str(tmp_path / "a.arrow"), schema, options=options) as writer:
        for codes, words in (([0, 1], "ab"), ([2, 0], "abc")):
            array = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), list(words))
            writer.write_batch(pa.record_batch([array], schema=schema))
    source = ArrowSource(tmp_path / "a.arrow")
    assert "".join(row["d"] for row in source.__getitems__(range(4))) == "abca"


def test_streams_from_before_messages_began_with_a_marker_are_read(tmp_path: Path):
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), texts().schema, options=options) as writer:
        writer.write_table(texts(), max_chunksize=30)
    check_rows(ArrowSource(tmp_path / "a.arrow"), texts().to_pylist(), [99, 0, 31])


def test_metadata_longer_than_what_is_read_at_a_time(tmp_path: Path):
    table = pa.table({f"a column with quite a long name, number {n}": [n] for n in range(3000)})
    path = write(tmp_path / "a.arrow", table, kind="stream")
    assert list(ArrowSource(path)[0].values()) == list(range(3000))


def test_a_stream_may_end_without_saying_so(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write(path, texts(), kind="stream", rows=30)
    path.write_bytes(path.read_bytes().removesuffix(b"\xff\xff\xff\xff\0\0\0\0"))
    assert len(ArrowSource(path)) == 100


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("table", [numbers(0), texts(0)])
def test_a_table_may_have_no_rows(tmp_path: Path, kind: str, table: Any):
    source = ArrowSource(write(tmp_path / "a.arrow", table, kind=kind))
    assert (len(source), source.__getitems__([])) == (0, [])
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


def test_columns_stand_in_the_order_asked_for_and_others_are_not_decompressed(tmp_path: Path):
    table = pa.table({"a": [1], "b": ["x"], "c": [3]})
    for compression in (None, "zstd"):
        path = write(tmp_path / f"{compression}.arrow", table, compression=compression)
        assert list(ArrowSource(path, columns=["c", "a"])[0].items()) == [("c", 3), ("a", 1)]
        assert list(ArrowSource(path, columns=["b"])[0].items()) == [("b", "x")]


@pytest.mark.parametrize("kind", FORMATS)
def test_files_in_a_store_are_read(tmp_path: Path, kind: str):
    write(tmp_path / "a.arrow", texts(), kind=kind, rows=10)
    with fsspec.open(f"memory://tables/{kind}.arrow", "wb") as file:
        file.write((tmp_path / "a.arrow").read_bytes())  # pyright: ignore
    check_rows(ArrowSource(f"memory://tables/{kind}.arrow"), texts().to_pylist(), [99, 0, 50])


PROGRAM = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
print(len(source), source[2]["t"], source.__getitems__([50, 0])[0]["t"], repr(source))
"""


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_pickled_source_reads_in_another_process(tmp_path: Path, compression: Any):
    source = ArrowSource(write(tmp_path / "a.arrow", texts(), rows=30, compression=compression))
    source.__getitems__(range(100))
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"100 2 50 ArrowSource('a.arrow')\n", b"")


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_threads_may_share_a_source(tmp_path: Path, compression: Any):
    path = write(tmp_path / "a.arrow", texts(1000), rows=10, compression=compression)
    source = ArrowSource(path)
    orders = [np.random.default_rng(seed).permutation(1000) for seed in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for order, rows in zip(orders, threads.map(source.__getitems__, orders), strict=True):
            assert [row["t"] for row in rows] == [str(n) for n in order]


def test_records_of_mapped_files_may_be_written(tmp_path: Path):
    table = pa.table({"l": [[1, 2], [3]], "t": ["a", "b"]}).append_column(
        "x", pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))
    )
    source = ArrowSource(write(tmp_path / "a.arrow", table))
    row = source[0]
    row["l"][0] = row["x"][0] = 9
    assert same(source[0]["l"], np.array([1, 2]))
    assert source[0]["x"].tolist() == [1, 2]


@pytest.mark.parametrize("content", [b"", b"abc", b"id,x\n1,2\n", b"PAR1" + bytes(100)])
def test_another_format_is_told_by_its_first_bytes(tmp_path: Path, content: bytes):
    path = tmp_path / "a.arrow"
    path.write_bytes(content)
    told = (
        f"It is not an Arrow file: it begins with {content[:8]!r}, which is neither the start of "
        f"an Arrow file nor of an Arrow stream. ({path})"
    )
    with pytest.raises(FormatError, match=re.escape(told)):
        len(ArrowSource(path))


def test_feather_of_version_1_is_told(tmp_path: Path):
    path = tmp_path / "a.feather"
    path.write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    told = "It is a Feather file of version 1. Write it anew in version 2, which is pyarrow's"
    with pytest.raises(FormatError, match=re.escape(told)):
        len(ArrowSource(path))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_cut_short_anywhere_is_corrupt(tmp_path: Path, kind: str):
    path = tmp_path / "a.arrow"
    write(path, texts(50), kind=kind, rows=25)
    messages = find_messages(OpenFiles(find_files(path))[0])
    whole = path.read_bytes()
    borders = {stop for _, stop in [messages.schema, *messages.batches]}
    ends = {len(whole), len(whole) - 4, len(whole) - 8} if kind == "stream" else {len(whole)}
    for size in range(messages.schema[1] + 1, len(whole), 7):
        if size in borders | ends and kind == "stream":
            continue
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError, match=r"The Arrow file is damaged or cut short"):
            len(ArrowSource(path))


@pytest.mark.parametrize("kind", FORMATS)
def test_damaged_bytes_raise_ours_or_change_values_but_nothing_else(tmp_path: Path, kind: str):
    path = tmp_path / "a.arrow"
    write(path, numbers(20), kind=kind, rows=10)
    whole = path.read_bytes()
    first = find_messages(OpenFiles(find_files(path))[0]).schema[1]
    rng = np.random.default_rng(0)
    told: set[str | None] = set()
    num_told = 0
    for _ in range(200):
        data = bytearray(whole)
        place = int(rng.integers(first, len(data)))
        data[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            source = ArrowSource(path)
            source.__getitems__(range(len(source)))
        except (CorruptFileError, FormatError) as error:
            num_told += 1
            told.add(error.path)
    assert told == {str(path)}
    assert num_told > 10


def test_names_that_are_not_utf_8_are_told_with_the_path(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write(path, pa.table({"name": [1]}))
    path.write_bytes(path.read_bytes().replace(b"name", b"n\xffme"))
    with pytest.raises(CorruptFileError, match=r"The Arrow file is damaged .*utf-8"):
        len(ArrowSource(path))


def test_footers_that_point_nowhere_are_corrupt(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write(path, texts())
    data = bytearray(path.read_bytes())
    start = find_messages(OpenFiles(find_files(path))[0]).batches[0][0]
    place = bytes(data).rindex(struct.pack("<q", start))
    for wrong in (-8, len(data), 2**62):
        data[place : place + 8] = struct.pack("<q", wrong)
        path.write_bytes(data)
        with pytest.raises(CorruptFileError):
            len(ArrowSource(path))


def test_files_must_have_the_same_columns(tmp_path: Path):
    paths = [write(tmp_path / "a.arrow", texts()), write(tmp_path / "b.arrow", numbers())]
    with pytest.raises(FormatError, match=r"There is no column 't', which 'a.arrow' has") as told:
        len(ArrowSource(paths))
    assert told.value.path == paths[1]
    assert len(ArrowSource(paths, columns=["id"])) == 200


def test_wanted_columns_that_are_not_there_are_named_with_those_that_are(tmp_path: Path):
    path = write(tmp_path / "a.arrow", numbers())
    told = "`columns` names 'y', and the columns of 'a.arrow' are 'id', 'x'."
    with pytest.raises(PlanError, match=re.escape(told)):
        len(ArrowSource(path, columns=["y"]))


def test_a_file_that_is_not_there_raises_at_once(tmp_path: Path):
    with pytest.raises(MissingFileError):
        ArrowSource(tmp_path / "a.arrow")


def test_a_batch_with_another_number_of_rows_than_it_says_is_corrupt(tmp_path: Path):
    path = write(tmp_path / "a.arrow", numbers(5))
    source = ArrowSource(path)
    assert len(source) == 5
    layout = source._layout
    assert layout is not None
    source._layout = replace(layout, parts=[layout.parts[0]._replace(num_rows=6)])
    source = pickle.loads(pickle.dumps(source))
    told = f"There are 5 rows where the file says that there are 6. Write it anew. ({path})"
    with pytest.raises(CorruptFileError, match=re.escape(told)):
        source[0]
