import re
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gristmill._data.sources.tables.arrow_messages import Messages, find_messages
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import CorruptFileError, FormatError
from tests.data.sources.tables.small_tables import IPC_KINDS, string_table, write_ipc


def messages_in(path: str | Path) -> Messages:
    return find_messages(OpenFiles(find_files(path))[0])


@pytest.mark.parametrize("kind", IPC_KINDS)
def test_counts_and_nulls_are_those_that_pyarrow_writes(tmp_path: Path, kind: str):
    table = pa.table(
        {
            "m": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
            "s": pa.array([{"a": None, "b": [1.0]}] * 3),
            "u": pa.array(["x", "y", None]).dictionary_encode(),
            "n": pa.array([1, 2, None]),
            "f": pa.array([[1, 2], [3, 4], [5, 6]], pa.list_(pa.int8(), 2)),
        }
    )
    messages = messages_in(write_ipc(tmp_path / "a.arrow", table, kind=kind, rows=2))
    assert messages.counts == [2, 1]
    assert messages.is_stream == (kind == "stream")
    assert (len(messages.dictionaries), messages.is_compressed) == (1, False)
    # The arrays are m, its entries, keys, values; s, a, b, items of b; u; n; f, items of f.
    assert [np.flatnonzero(batch).tolist() for batch in messages.nulls] == [[0, 5], [5, 8, 9]]
    assert messages.nulls.shape == (2, 12)


@pytest.mark.parametrize("kind", IPC_KINDS)
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_rows_of_compressed_batches_are_counted(tmp_path: Path, kind: str, compression: Any):
    path = write_ipc(
        tmp_path / "a.arrow", string_table(), kind=kind, rows=30, compression=compression
    )
    assert messages_in(path).counts == [30, 30, 30, 10]
    assert messages_in(path).is_compressed


def test_streams_of_arrow_before_0_15_are_read(tmp_path: Path):
    options = pa.ipc.IpcWriteOptions(use_legacy_format=True)
    path = tmp_path / "a.arrow"
    with pa.ipc.new_stream(str(path), string_table().schema, options=options) as writer:
        writer.write_table(string_table(), max_chunksize=30)
    assert messages_in(path).counts == [30, 30, 30, 10]


def test_metadata_may_be_larger_than_the_window(tmp_path: Path):
    table = pa.table({f"a column with quite a long name, number {n}": [n] for n in range(3000)})
    path = write_ipc(tmp_path / "a.arrow", table, kind="stream")
    assert messages_in(path).counts == [1]


def test_a_stream_may_end_without_an_end_marker(tmp_path: Path):
    path = tmp_path / "a.arrow"
    write_ipc(path, string_table(), kind="stream", rows=30)
    path.write_bytes(path.read_bytes().removesuffix(b"\xff\xff\xff\xff\0\0\0\0"))
    assert sum(messages_in(path).counts) == 100


@pytest.mark.parametrize("content", [b"", b"abc", b"id,x\n1,2\n", b"PAR1" + bytes(100)])
def test_a_file_of_another_format_is_an_error_with_its_first_bytes(tmp_path: Path, content: bytes):
    path = tmp_path / "a.arrow"
    path.write_bytes(content)
    message = (
        f"The file is not an Arrow file: it begins with {content[:8]!r}, which is neither the "
        f"start of an Arrow file nor of an Arrow stream. ({path})"
    )
    with pytest.raises(FormatError, match=re.escape(message)):
        messages_in(path)


def test_a_feather_file_of_version_1_is_an_error(tmp_path: Path):
    path = tmp_path / "a.feather"
    path.write_bytes(b"FEA1" + bytes(100) + b"FEA1")
    message = (
        "The file is a Feather file of version 1. Write it again in version 2, the default of "
        f"pyarrow. ({path})"
    )
    with pytest.raises(FormatError, match=re.escape(message)):
        messages_in(path)


@pytest.mark.parametrize("kind", IPC_KINDS)
def test_a_file_truncated_anywhere_is_corrupt(tmp_path: Path, kind: str):
    path = tmp_path / "a.arrow"
    write_ipc(path, string_table(50), kind=kind, rows=25)
    messages = messages_in(path)
    complete = path.read_bytes()
    borders = {stop for _, stop in [messages.schema, *messages.batches]}
    size = len(complete)
    ends = {size, size - 4, size - 8} if kind == "stream" else {size}
    for size in range(messages.schema[1] + 1, len(complete), 7):
        if size in borders | ends and kind == "stream":
            continue
        path.write_bytes(complete[:size])
        with pytest.raises(CorruptFileError, match=r"^The Arrow file is damaged or truncated\. "):
            messages_in(path)


@pytest.mark.parametrize("wrong", [-8, 100_000, 2**62])
def test_a_footer_with_an_offset_outside_of_the_file_is_corrupt(tmp_path: Path, wrong: int):
    path = tmp_path / "a.arrow"
    write_ipc(path, string_table())
    data = bytearray(path.read_bytes())
    at = bytes(data).rindex(struct.pack("<q", messages_in(path).batches[0][0]))
    data[at : at + 8] = struct.pack("<q", wrong)
    path.write_bytes(data)
    with pytest.raises(CorruptFileError):
        messages_in(path)
