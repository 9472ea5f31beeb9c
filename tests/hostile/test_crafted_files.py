"""Files that an attacker crafts: bombs, contradictions, holes and names that lead elsewhere."""

import errno
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption
import pytest

from gristmill._api.adapters.tfds.png import decode_pngs
from gristmill._data.sources.tables.arrow_values import translate_arrow_errors
from gristmill._data.sources.tables.columns import check_names
from gristmill.errors import CorruptFileError, FileError, FormatError, GristmillError
from gristmill.sources import (
    ArrayRecordDataSource,
    ArrowSource,
    CsvSource,
    HuggingFaceSource,
    IdxSource,
    JsonLinesSource,
    NumpySource,
    TarSource,
    open_source,
)

MAX_PEAK_BYTES = 40 * 2**20


@contextmanager
def bounded_memory() -> Iterator[None]:
    """Assert that the block allocates only some megabytes at a time."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_PEAK_BYTES


def zeros(num_bytes: int) -> bytes:
    """Return that many zeros, compressed by deflate without a header."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    chunks = [compressor.compress(bytes(2**20)) for _ in range(num_bytes // 2**20)]
    return b"".join([*chunks, compressor.flush()])


# bombs


def test_a_gzip_file_that_holds_more_than_it_announces_is_not_unpacked(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.gz", "wb") as file:
        file.write(bytes([0, 0, 8, 1, 0, 0, 0, 10]))
        for _ in range(300):
            file.write(bytes(2**20))
    with bounded_memory(), pytest.raises(FormatError, match="followed by more bytes"):
        IdxSource(tmp_path / "a.gz")[0]


def test_a_gzip_file_that_announces_more_than_it_can_hold_is_refused(tmp_path: Path) -> None:
    header = bytes([0, 0, 8, 3]) + struct.pack(">III", 2**20, 2**10, 2**10)
    (tmp_path / "a.gz").write_bytes(gzip.compress(header + bytes(1000)))
    with bounded_memory(), pytest.raises(CorruptFileError, match="can hold"):
        IdxSource(tmp_path / "a.gz")[0]


def test_a_zip_member_that_holds_more_than_it_announces_is_not_unpacked(tmp_path: Path) -> None:
    array = io.BytesIO()
    np.save(array, np.arange(10))
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x.npy", "w") as member:
            member.write(array.getvalue())
            for _ in range(300):
                member.write(bytes(2**20))
        announced = archive.getinfo("x.npy")
        announced.file_size = len(array.getvalue())
    with bounded_memory(), pytest.raises(GristmillError):
        NumpySource(tmp_path / "a.npz")[0]


def test_a_long_npy_header_is_not_parsed(tmp_path: Path) -> None:
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (" + b"1," * 2_000_000 + b"), }\n"
    data = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(header)) + header
    (tmp_path / "a.npy").write_bytes(data)
    with bounded_memory(), pytest.raises(FormatError, match="has a header of 4,000,056 bytes"):
        len(NumpySource(tmp_path / "a.npy"))


def test_a_png_file_that_holds_more_than_it_announces_is_not_unpacked() -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0))
    pixels = chunk(b"IDAT", b"\x78\x9c" + zeros(300 * 2**20))
    bomb = b"\x89PNG\r\n\x1a\n" + header + pixels + chunk(b"IEND", b"")
    with bounded_memory():
        assert decode_pngs([bomb], (28, 28, 1))[1].tolist() == [False]


# headers


def npy(header: str) -> bytes:
    encoded = header.encode("latin1")
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(encoded)) + encoded


@pytest.mark.parametrize(
    "fields",
    [
        "'descr': '<f8', 'fortran_order': False, 'shape': (" + "1," * 64 + ")",
        "'descr': '<f8', 'fortran_order': False, 'shape': (0, 9223372036854775807, 9)",
        "'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999999,)",
        "'descr': '<f8', 'fortran_order': False, 'shape': (-1,)",
        "'descr': '|S0', 'fortran_order': False, 'shape': (3,)",
        "'descr': '|V0', 'fortran_order': False, 'shape': (1000000000000,)",
        "'descr': [], 'fortran_order': False, 'shape': (3,)",
        "'descr': [('a',)], 'fortran_order': False, 'shape': (3,)",
        "'descr': '|O', 'fortran_order': False, 'shape': (3,)",
        "'descr': ('<f8', (99999999999,)), 'fortran_order': False, 'shape': (3,)",
        "'descr': " + "(" * 200 + ")" * 200 + ", 'fortran_order': False, 'shape': (3,)",
    ],
)
def test_an_odd_npy_header_is_an_error_with_the_path(fields: str, tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(npy("{" + fields + "}\n"))
    with pytest.raises(FileError) as caught:
        NumpySource(tmp_path / "a.npy")[0]
    assert caught.value.path == str(tmp_path / "a.npy")


def test_an_idx_file_of_many_axes_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.idx").write_bytes(bytes([0, 0, 8, 255]) + struct.pack(">I", 1) * 255 + b"x")
    with pytest.raises(FormatError, match="has 255 axes"):
        IdxSource(tmp_path / "a.idx")[0]


def test_a_stored_member_of_an_npz_file_with_a_wrong_checksum_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.full(100, 777))
    data = (tmp_path / "a.npz").read_bytes()
    at = data.index(np.full(1, 777).tobytes())
    (tmp_path / "a.npz").write_bytes(data[: at + 1] + bytes([data[at + 1] ^ 0x40]) + data[at + 2 :])
    with pytest.raises(CorruptFileError, match="its checksum does not match") as caught:
        NumpySource(tmp_path / "a.npz")[0]
    assert caught.value.offset is not None


# Arrow


def arrow_bytes(is_file: bool) -> bytes:
    stream = io.BytesIO()
    table = pa.table({"x": np.arange(100), "y": [str(i) for i in range(100)]})
    new = pa.ipc.new_file if is_file else pa.ipc.new_stream
    with new(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=10)
    return stream.getvalue()


@pytest.mark.parametrize("is_file", [True, False])
def test_no_bit_of_arrow_metadata_makes_rows_disappear(is_file: bool, tmp_path: Path) -> None:
    data = arrow_bytes(is_file)
    rng = np.random.default_rng(0)
    lengths = set[int]()
    for at in rng.choice(len(data), 700, replace=False).tolist():
        path = tmp_path / f"{at}.arrow"
        path.write_bytes(data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :])
        with suppress(GristmillError):
            lengths.add(len(ArrowSource(path)))
        path.unlink()
    assert lengths == {100}


def read_alone(path: Path) -> int:
    """Read a Parquet file in a process of its own, which pyarrow may end; return its status."""
    program = (
        "import sys; from gristmill.sources import *; from gristmill.errors import *\n"
        "try: ParquetSource(sys.argv[1])[0]\nexcept GristmillError: sys.exit(7)"
    )
    return subprocess.run([sys.executable, "-c", program, path], check=False).returncode


def test_a_parquet_file_whose_statistics_have_another_type_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array(range(10), pa.int64())}), tmp_path / "a.parquet")
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    size = int.from_bytes(data[-8:-4], "little")
    footer = len(data) - 8 - size
    # A list of one struct (column chunks), its offset, and the metadata, whose type comes first.
    at = footer + bytes(data[footer:-8]).index(b"\x1c\x15\x04") + 2
    for kind in (0, 2, 8, 10, 12, 14):
        data[at] = kind
        (tmp_path / "b.parquet").write_bytes(data)
        assert read_alone(tmp_path / "b.parquet") == 7


def test_a_parquet_file_whose_histogram_has_another_size_is_an_error(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([1, None, 3] * 40)}), tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    # A list of two integers: 40 values are null, and 80 are not. The other one has three.
    assert data.count(b"\x26\x50\xa0\x01") == 1
    (tmp_path / "a.parquet").write_bytes(data.replace(b"\x26\x50\xa0\x01", b"\x36\x50\x50\x50"))
    assert read_alone(tmp_path / "a.parquet") == 7


class NoKeys(pyarrow.parquet.encryption.KmsClient):
    """Encrypts keys by leaving them as they are."""

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        return key_bytes

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        return wrapped_key


def test_an_encrypted_column_of_a_parquet_file_is_an_error(tmp_path: Path) -> None:
    encryption = pyarrow.parquet.encryption
    settings = encryption.EncryptionConfiguration(
        footer_key="f", column_keys={"c": ["x"]}, plaintext_footer=True, double_wrapping=False
    )
    properties = encryption.CryptoFactory(lambda _: NoKeys()).file_encryption_properties(
        encryption.KmsConnectionConfig(), settings
    )
    table = pa.table({"x": [1, 2], "y": [3, 4]})
    with pq.ParquetWriter(
        tmp_path / "a.parquet", table.schema, encryption_properties=properties
    ) as writer:
        writer.write_table(table)
    assert read_alone(tmp_path / "a.parquet") == 7


# tar


def test_a_hole_of_zeros_in_an_archive_is_an_error(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number in range(400):
            info = tarfile.TarInfo(f"{number:03}.txt")
            info.size = 600
            archive.addfile(info, io.BytesIO(b"x" * 600))
    data = (tmp_path / "a.tar").read_bytes()
    hole = 100 * 1536
    (tmp_path / "a.tar").write_bytes(data[:hole] + bytes(200_192) + data[hole + 200_192 :])
    with pytest.raises(CorruptFileError, match="a part of the archive is zeros"):
        len(TarSource(tmp_path / "a.tar"))


# Hugging Face


def saved(folder: Path) -> Path:
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"x": [1, 2]}).save_to_disk(folder)
    return folder


@pytest.mark.parametrize(
    "state",
    [
        {"_data_files": [{"filename": "../secret.arrow"}]},
        {"_data_files": [{"filename": "/etc/passwd"}]},
        {"_data_files": [{"filename": ".."}]},
        {"_data_files": [{"filename": 7}]},
        {"_data_files": [{}]},
        {"_data_files": ["x.arrow"]},
        {"_data_files": 7},
        [],
        7,
    ],
)
def test_a_state_that_leads_out_of_its_folder_is_refused(state: Any, tmp_path: Path) -> None:
    folder = saved(tmp_path / "data")
    next(folder.glob("*.arrow")).rename(tmp_path / "secret.arrow")
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(FileError):
        HuggingFaceSource(folder)


@pytest.mark.parametrize("content", ["[" * 100_000, "{}", '{"splits": 7}', '{"splits": [[]]}'])
def test_an_odd_list_of_splits_is_an_error(content: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "data")
    (folder / "dataset_dict.json").write_text(content)
    with pytest.raises(FileError):
        HuggingFaceSource(folder, split="train")


def test_a_split_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    saved(tmp_path / "secret")
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "dataset_dict.json").write_text('{"splits": ["../secret"]}')
    with pytest.raises(FormatError, match="is not the name of a file"):
        HuggingFaceSource(folder, split="../secret")


# text


def test_deep_json_is_an_error_with_the_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("1\n" + "[" * 100_000 + "\n2\n")
    with pytest.raises(CorruptFileError, match="inside each other") as caught:
        JsonLinesSource(tmp_path / "a.jsonl")[1]
    assert (caught.value.offset, caught.value.record) == (2, 1)


def test_deep_json_in_the_first_line_is_an_error_of_its_record(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("[" * 60_000 + "\n2\n")
    source = JsonLinesSource(tmp_path / "a.jsonl")
    assert source[1] == 2
    with pytest.raises(CorruptFileError):
        source[0]


def test_a_byte_order_mark_is_part_of_a_csv_record_wherever_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("\ufeffa,b\n\ufeffx,1\n\ufeffy,2\nz,3\n".encode())
    source = CsvSource(tmp_path / "a.csv")
    alone = [source[index] for index in range(3)]
    assert [record["a"] for record in alone] == ["\ufeffx", "\ufeffy", "z"]
    assert source.__getitems__(range(3)) == alone
    assert source.__getitems__([2, 1, 0]) == alone[::-1]


def test_an_error_of_the_system_is_not_reported_as_a_damaged_file() -> None:
    with pytest.raises(FileError, match="ulimit") as caught, translate_arrow_errors("a", "CSV"):
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")
    assert not isinstance(caught.value, CorruptFileError)


def test_the_names_of_many_columns_are_checked_in_linear_time() -> None:
    class Name(str):
        num_compared = 0

        def __eq__(self, other: object) -> bool:
            Name.num_compared += 1
            return super().__eq__(other)

        __hash__ = str.__hash__

    check_names([Name(number) for number in range(5000)], "a.parquet")
    assert Name.num_compared < 5000


# names of files


def undecodable(folder: Path, suffix: str) -> Path:
    return Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe" + suffix.encode()))


def test_files_whose_names_are_not_utf_8_are_read(tmp_path: Path) -> None:
    made: dict[str, Callable[[Path], object]] = {
        ".npy": lambda path: np.save(path, np.arange(3)),
        ".parquet": lambda path: path.write_bytes(parquet_bytes()),
    }
    for suffix, make in made.items():
        path = undecodable(tmp_path, suffix)
        make(path)
        source = open_source(path)
        assert len(source) == 3
        repr(source).encode()


def parquet_bytes() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"x": [1, 2, 3]}), stream)
    return stream.getvalue()


def test_an_array_record_file_whose_name_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    path = undecodable(tmp_path, ".array_record")
    path.write_bytes(b"")
    with pytest.raises(FileError, match="The name of the file is not UTF-8"):
        len(ArrayRecordDataSource(path))
