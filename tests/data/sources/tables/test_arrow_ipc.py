import pickle
import re
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

from gristmill._data.sources.tables import arrow_ipc as _ipc
from gristmill._data.sources.tables.arrow_ipc import ArrowSource, check_offsets
from gristmill._data.sources.tables.arrow_messages import find_messages
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from tests.data.sources.tables.small_tables import (
    IPC_KINDS,
    check_rows,
    number_table,
    same,
    some_indices,
    string_table,
    tables,
    write_ipc,
)


@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    is_dense=st.booleans(),
    kind=st.sampled_from(list(IPC_KINDS)),
    compression=st.sampled_from([None, "lz4", "zstd"]),
    chunk_bytes=st.sampled_from([0, 2**20]),
    cache_bytes=st.sampled_from([0, 2**20]),
)
def test_rows_equal_those_that_pyarrow_reads(
    data: st.DataObject,
    is_dense: bool,
    kind: str,
    compression: Any,
    chunk_bytes: int,
    cache_bytes: int,
):
    table = data.draw(tables(is_dense=is_dense))
    other = table.slice(data.draw(st.integers(0, len(table))))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_ipc, "_CHUNK_BYTES", chunk_bytes)
        patch.setattr(_ipc, "CACHE_BYTES", cache_bytes)
        rows = data.draw(st.integers(1, 12))
        paths = [
            write_ipc(Path(folder, name), one, kind=kind, rows=rows, compression=compression)
            for name, one in (("a", table), ("b", other))
        ]
        expected = table.to_pylist() + other.to_pylist()
        source = ArrowSource(paths)
        assert source.is_columnar or not is_dense
        check_rows(source, expected, some_indices(data.draw, len(expected)))
        check_rows(source, expected, range(len(expected)))


@pytest.mark.parametrize("compression", ["uncompressed", "lz4", "zstd"])
def test_feather_files_are_read(tmp_path: Path, compression: Any):
    feather.write_feather(
        string_table(), tmp_path / "a.feather", compression=compression, chunksize=7
    )
    source = ArrowSource(tmp_path / "a.feather")
    check_rows(source, string_table().to_pylist(), [99, 0, 50, 0])


@pytest.mark.parametrize("kind", IPC_KINDS)
def test_the_source_is_columnar_unless_a_selected_number_is_null(tmp_path: Path, kind: str):
    table = pa.table({"a": [None, 1], "t": ["x", "y"], "b": [1, 2]})
    path = write_ipc(tmp_path / "a.arrow", table, kind=kind)
    assert ArrowSource(path, columns=["b"]).is_columnar
    assert not ArrowSource(path, columns=["a", "b"]).is_columnar
    assert ArrowSource(path, columns=["b", "t"]).is_columnar


def test_a_mapped_column_of_one_batch_is_not_copied(tmp_path: Path):
    source = ArrowSource(write_ipc(tmp_path / "a.arrow", number_table()))
    first, second = (np.asarray(source.read_columns(range(100))._arrays[0]) for _ in range(2))
    assert first.__array_interface__["data"] == second.__array_interface__["data"]
    assert not first.flags.writeable


def test_counting_compressed_rows_does_not_decode_them(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write_ipc(path, string_table(1000), compression="zstd")
    messages = find_messages(OpenFiles(find_files(path))[0])
    stop = messages.batches[0][1]
    data = bytearray(path.read_bytes())
    data[stop - 2000 : stop] = bytes(2000)
    path.write_bytes(data)
    source = ArrowSource(path)
    assert len(source) == 1000
    with pytest.raises(
        CorruptFileError, match=r"The Arrow file is damaged or truncated: "
    ) as error:
        source[0]
    assert error.value.path == str(path)


def test_a_replaced_dictionary_applies_to_the_batches_after_it(tmp_path: Path):
    batches = [pa.array(list(word)).dictionary_encode() for word in ("abc", "xyz", "uvw")]
    schema = pa.schema([("d", batches[0].type)])
    with pa.ipc.new_stream(str(tmp_path / "a.arrow"), schema) as writer:
        for batch in batches:
            writer.write_batch(pa.record_batch([batch], schema=schema))
    for chunk_bytes in (0, 2**20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_ipc, "_CHUNK_BYTES", chunk_bytes)
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


@pytest.mark.parametrize("kind", IPC_KINDS)
@pytest.mark.parametrize("table", [number_table(0), string_table(0)])
def test_a_table_may_have_no_rows(tmp_path: Path, kind: str, table: Any):
    source = ArrowSource(write_ipc(tmp_path / "a.arrow", table, kind=kind))
    assert (len(source), source.__getitems__([])) == (0, [])
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


def test_only_the_selected_columns_are_read_in_their_order(tmp_path: Path):
    table = pa.table({"a": [1], "b": ["x"], "c": [3]})
    for compression in (None, "zstd"):
        path = write_ipc(tmp_path / f"{compression}.arrow", table, compression=compression)
        assert list(ArrowSource(path, columns=["c", "a"])[0].items()) == [("c", 3), ("a", 1)]
        assert list(ArrowSource(path, columns=["b"])[0].items()) == [("b", "x")]


@pytest.mark.parametrize("kind", IPC_KINDS)
def test_files_in_a_store_are_read(tmp_path: Path, kind: str):
    write_ipc(tmp_path / "a.arrow", string_table(), kind=kind, rows=10)
    with fsspec.open(f"memory://tables/{kind}.arrow", "wb") as file:
        file.write((tmp_path / "a.arrow").read_bytes())  # pyright: ignore
    check_rows(
        ArrowSource(f"memory://tables/{kind}.arrow"), string_table().to_pylist(), [99, 0, 50]
    )


PROGRAM = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
print(len(source), source[2]["t"], source.__getitems__([50, 0])[0]["t"], repr(source))
"""


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_pickled_source_reads_in_another_process(tmp_path: Path, compression: Any):
    source = ArrowSource(
        write_ipc(tmp_path / "a.arrow", string_table(), rows=30, compression=compression)
    )
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
    path = write_ipc(tmp_path / "a.arrow", string_table(1000), rows=10, compression=compression)
    source = ArrowSource(path)
    orders = [np.random.default_rng(seed).permutation(1000) for seed in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for order, rows in zip(orders, threads.map(source.__getitems__, orders), strict=True):
            assert [row["t"] for row in rows] == [str(n) for n in order]


def test_writing_to_a_record_of_a_mapped_file_does_not_change_the_source(tmp_path: Path):
    table = pa.table({"l": [[1, 2], [3]], "t": ["a", "b"]}).append_column(
        "x", pa.array([[1, 2], [3, 4]], pa.list_(pa.int8(), 2))
    )
    source = ArrowSource(write_ipc(tmp_path / "a.arrow", table))
    row = source[0]
    row["l"][0] = row["x"][0] = 9
    assert same(source[0]["l"], np.array([1, 2]))
    assert source[0]["x"].tolist() == [1, 2]


@pytest.mark.parametrize("kind", IPC_KINDS)
def test_damaged_bytes_are_a_file_error_or_change_values(tmp_path: Path, kind: str):
    path = tmp_path / "a.arrow"
    write_ipc(path, number_table(20), kind=kind, rows=10)
    complete = path.read_bytes()
    first = find_messages(OpenFiles(find_files(path))[0]).schema[1]
    rng = np.random.default_rng(0)
    paths: set[str | None] = set()
    num_errors = 0
    for _ in range(200):
        data = bytearray(complete)
        at = int(rng.integers(first, len(data)))
        data[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(data)
        try:
            source = ArrowSource(path)
            source.__getitems__(range(len(source)))
        except (CorruptFileError, FormatError) as error:
            num_errors += 1
            paths.add(error.path)
    assert paths == {str(path)}
    assert num_errors > 10


def test_a_column_name_that_is_not_utf_8_is_an_error(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write_ipc(path, pa.table({"name": [1]}))
    path.write_bytes(path.read_bytes().replace(b"name", b"n\xffme"))
    with pytest.raises(CorruptFileError, match=r"The Arrow file is damaged .*utf-8"):
        len(ArrowSource(path))


def test_files_must_have_the_same_columns(tmp_path: Path):
    paths = [
        write_ipc(tmp_path / "a.arrow", string_table()),
        write_ipc(tmp_path / "b.arrow", number_table()),
    ]
    with pytest.raises(FormatError, match=r"There is no column 't', which 'a.arrow' has") as error:
        len(ArrowSource(paths))
    assert error.value.path == paths[1]
    assert len(ArrowSource(paths, columns=["id"])) == 200


def test_selecting_a_missing_column_is_an_error_that_lists_the_columns(tmp_path: Path):
    path = write_ipc(tmp_path / "a.arrow", number_table())
    message = "`columns` names 'y', but the columns of 'a.arrow' are 'id', 'x'."
    with pytest.raises(PlanError, match=re.escape(message)):
        len(ArrowSource(path, columns=["y"]))


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        ArrowSource(tmp_path / "a.arrow")


def test_a_chunk_with_another_number_of_rows_than_its_metadata_is_corrupt(tmp_path: Path):
    path = write_ipc(tmp_path / "a.arrow", number_table(5))
    source = ArrowSource(path)
    assert len(source) == 5
    layout = source._layout
    assert layout is not None
    source._layout = replace(layout, chunks=[layout.chunks[0]._replace(num_rows=6)])
    source = pickle.loads(pickle.dumps(source))
    message = f"The file contains 5 rows where its metadata state 6. Write it again. ({path})"
    with pytest.raises(CorruptFileError, match=re.escape(message)):
        source[0]


def with_offsets(arrow_type: Any, offsets: list[int]) -> Any:
    """Return an array over 10 bytes or items, with offsets that may be wrong."""
    dtype = np.int64 if "large" in str(arrow_type) else np.int32
    memory = [None, pa.py_buffer(np.array(offsets, dtype))]
    if pa.types.is_nested(arrow_type):
        items = pa.array([""] * 10)
        return pa.Array.from_buffers(arrow_type, len(offsets) - 1, memory, children=[items])
    data = pa.py_buffer(b"0123456789")
    return pa.Array.from_buffers(arrow_type, len(offsets) - 1, [*memory, data])


TYPES_WITH_OFFSETS = [
    pa.string(),
    pa.binary(),
    pa.large_string(),
    pa.large_binary(),
    pa.list_(pa.string()),
    pa.large_list(pa.string()),
]


@settings(max_examples=50, deadline=None)
@given(table=tables())
def test_the_offsets_of_arrays_made_by_pyarrow_are_valid(table: pa.Table):
    for column in table.columns:
        check_offsets(column.combine_chunks())
        check_offsets(column.combine_chunks().slice(1))


@pytest.mark.parametrize("arrow_type", TYPES_WITH_OFFSETS, ids=str)
def test_offsets_inside_of_the_data_are_valid(arrow_type: Any):
    check_offsets(with_offsets(arrow_type, [0, 3, 3, 10]))
    check_offsets(with_offsets(arrow_type, [2, 5]))


@pytest.mark.parametrize("arrow_type", TYPES_WITH_OFFSETS, ids=str)
@pytest.mark.parametrize("offsets", [[0, 3, 11], [0, 99, 10], [-1, 3, 5], [0, 5, 4, 10]])
def test_offsets_outside_of_the_data_are_an_error(arrow_type: Any, offsets: list[int]):
    with pytest.raises(ValueError, match="offset"):
        check_offsets(with_offsets(arrow_type, offsets))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda bad: pa.StructArray.from_arrays([bad], names=["a"]),
        lambda bad: pa.FixedSizeListArray.from_arrays(bad, 1),
        lambda bad: pa.ListArray.from_arrays([0, len(bad)], bad),
        lambda bad: pa.ExtensionArray.from_storage(pa.json_(), bad),
        lambda bad: pa.MapArray.from_arrays([0, len(bad)], pa.array(["k"] * len(bad)), bad),
    ],
)
def test_offsets_of_nested_arrays_are_checked(wrap: Any):
    with pytest.raises(ValueError, match=r"offset|Offset"):
        check_offsets(wrap(with_offsets(pa.string(), [0, 99, 10])))
