import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._data.sources.records.megatron import MegatronSource
from gristmill.errors import CorruptFileError, FormatError, MissingFileError
from gristmill.testing import SourceSuite

CODES = {"u1": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "f8": 6, "f4": 7, "u2": 8}


def write(folder: Path, sequences: list[Any], kind: str = "u2", name: str = "a") -> Path:
    """Write a dataset as `megatron.core.datasets.indexed_dataset` does."""
    arrays = [np.array(sequence, kind) for sequence in sequences]
    (folder / f"{name}.bin").write_bytes(b"".join(array.tobytes() for array in arrays))
    sizes = np.array([array.nbytes for array in arrays], np.int64)
    header = b"MMIDIDX\x00\x00" + struct.pack("<Q", 1) + struct.pack("<B", CODES[kind])
    header += struct.pack("<QQ", len(arrays), len(arrays) + 1)
    lengths = np.array([len(array) for array in arrays], np.int32)
    bounds = np.arange(len(arrays) + 1, dtype=np.int64)
    body = lengths.tobytes() + (np.cumsum(sizes) - sizes).tobytes() + bounds.tobytes()
    (folder / f"{name}.idx").write_bytes(header + body)
    return folder / name


class TestMegatronSource(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> MegatronSource:
        first = write(tmp_path, [list(range(i)) for i in range(20)], name="0")
        second = write(tmp_path, [[1], [2, 3]], name="1")
        return MegatronSource([first, f"{second}.idx"])


@pytest.mark.parametrize("kind", CODES)
def test_sequences_have_the_type_of_the_index(tmp_path: Path, kind: str):
    source = MegatronSource(write(tmp_path, [[1, 2, 3], [], [4]], kind))
    assert [record.tolist() for record in source] == [[1, 2, 3], [], [4]]
    assert source[0].dtype == np.dtype(kind)


def test_a_pattern_matches_indexes(tmp_path: Path):
    write(tmp_path, [[1]], name="0")
    write(tmp_path, [[2]], name="1")
    assert [record.tolist() for record in MegatronSource(f"{tmp_path}/*.idx")] == [[1], [2]]


def test_both_files_must_exist(tmp_path: Path):
    path = write(tmp_path, [[1]])
    path.with_suffix(".bin").unlink()
    with pytest.raises(MissingFileError):
        MegatronSource(path)


def test_another_file_is_an_error(tmp_path: Path):
    path = write(tmp_path, [[1]])
    path.with_suffix(".idx").write_bytes(b"TNTIDX\x00\x00" + bytes(50))
    with pytest.raises(FormatError, match=r"^The file does not start like an index of Megatron\."):
        len(MegatronSource(path))


def test_another_version_is_an_error(tmp_path: Path):
    path = write(tmp_path, [[1]])
    data = path.with_suffix(".idx").read_bytes()
    path.with_suffix(".idx").write_bytes(data[:9] + b"\x02" + data[10:])
    with pytest.raises(FormatError, match=r"^The index has version 2 and type 8, but only "):
        len(MegatronSource(path))


@pytest.mark.parametrize("size", [12, 40])
def test_a_truncated_index_is_an_error(tmp_path: Path, size: int):
    path = write(tmp_path, [[1], [2], [3]])
    data = path.with_suffix(".idx").read_bytes()
    path.with_suffix(".idx").write_bytes(data[:size])
    with pytest.raises(CorruptFileError, match=r"^The index is truncated: "):
        len(MegatronSource(path))


def test_sequences_outside_their_file_are_an_error(tmp_path: Path):
    path = write(tmp_path, [[1, 2], [3, 4]])
    path.with_suffix(".bin").write_bytes(bytes(7))
    message = r"^The index locates 2 tokens at byte 4 of 'a\.bin', which has 7 bytes\."
    with pytest.raises(CorruptFileError, match=message) as caught:
        len(MegatronSource(path))
    assert caught.value.record == 1
