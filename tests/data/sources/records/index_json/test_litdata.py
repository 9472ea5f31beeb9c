"""`litdata.zip` holds datasets that LitData 0.2.76 has written, of the items in `EXPECTED`."""

import contextlib
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

import gristmill as gm
from gristmill._base.trees.tree import leaves_with_paths
from gristmill._data.sources.detect import detect_format, open_source
from gristmill._data.sources.records.index_json.litdata import LitDataSource
from gristmill.errors import CorruptFileError, FormatError, MissingFileError
from gristmill.testing import SourceSuite

WRITTEN = Path(__file__).with_name("litdata.zip")
LEAF = {"type": None, "context": None, "children_spec": []}


def nested(i: int) -> dict[str, Any]:
    return {
        "a": [i, "z"],
        "d": {"k": [1.5, 2.5]},
        "r": [{"a": i, "b": None, "c": True, "d": 0.5}, {"a": 2, "b": "x", "c": False, "d": 1.0}],
        "s": ["u", "v"],
        "l": [True, False],
        "e": [],
        "i": [i, 2],
    }


EXPECTED: dict[str, Callable[[int], Any]] = {
    "leaves": lambda i: {
        "id": i,
        "text": f"é{i}" * (i % 3),
        "x": np.arange(i, i + 3, dtype=np.float32),
        "m": np.ones((i % 2 + 1, 2), np.int16),
        "f": i / 2,
        "ok": i % 2 == 0,
        "b": b"q" * i,
        "t": np.arange(i + 1),
        "u": np.full((2, i + 1), i, dtype=np.float64),
        "n": ({"a": i}, "z"),
        "j": nested(i),
        "p": np.full((4, 5, 3), i, np.uint8),
    },
    "arrow": lambda i: {"id": i, "text": f"é{i}", "score": i / 4, "tags": ["x"] * i},
    "numbers": lambda i: {"id": i, "x": i / 2},
    "batch": lambda i: {"id": i, "x": np.arange(i)},
    "sample": lambda i: {"id": i, "x": np.arange(i)},
    "chunk": lambda i: {"id": i, "x": np.arange(i)},
    "tokens": lambda i: np.arange(i, 40),
}


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with zipfile.ZipFile(WRITTEN) as archive:
        archive.extractall(tmp_path)
    return tmp_path


def write(folder: Path, items: list[bytes], **config: Any) -> Path:
    """Write a dataset of single leaves, one chunk for each two items."""
    chunks: list[dict[str, Any]] = []
    for number in range(0, len(items), 2):
        part = [struct.pack("<I", len(item)) + item for item in items[number : number + 2]]
        ends = np.cumsum([4 * (len(part) + 2), *map(len, part)]).astype("<u4")
        data = struct.pack("<I", len(part)) + ends.tobytes() + b"".join(part)
        (folder / f"chunk-0-{number}.bin").write_bytes(data)
        chunks.append({"chunk_size": len(part), "filename": f"chunk-0-{number}.bin"})
    known = {"data_format": ["int"], "data_spec": json.dumps([1, LEAF])}
    (folder / "index.json").write_text(json.dumps({"chunks": chunks, "config": known | config}))
    return folder


def integers(count: int) -> list[bytes]:
    return [struct.pack("<q", i) for i in range(count)]


class TestLitDataSource(SourceSuite):
    @pytest.fixture(params=list(EXPECTED))
    def source(self, written: Path, request: pytest.FixtureRequest) -> LitDataSource:
        return LitDataSource(written / request.param)


@pytest.mark.parametrize("name", EXPECTED)
def test_items_are_those_that_were_written(written: Path, name: str):
    source = LitDataSource(written / name)
    assert len(source) == 5
    assert repr(source) == f"LitDataSource({name!r})"
    for i, item in enumerate(source.__getitems__([0, 1, 2, 3, 4])):
        expected = EXPECTED[name](i)
        pairs = zip(leaves_with_paths(item), leaves_with_paths(expected), strict=True)
        for (path, found), (expected_path, value) in pairs:
            assert path == expected_path
            assert np.array_equal(found, value)
            if isinstance(value, np.ndarray):
                assert found.dtype == value.dtype
                assert found.flags.writeable


def test_a_chunk_that_litdata_has_decompressed_in_place_is_read(written: Path):
    for packed in (written / "chunk").glob("*.zstd.bin"):
        raw = zstandard.decompress(packed.read_bytes())
        packed.with_name(packed.name.replace(".zstd.bin", ".bin")).write_bytes(raw)
        packed.unlink()
    assert LitDataSource(written / "chunk")[4]["id"] == 4


def test_numbers_are_read_as_columns(written: Path):
    source = LitDataSource(written / "numbers")
    assert source.is_columnar
    (batch,) = gm.MapDataset.source(source).batch(5)
    assert batch["x"].tolist() == [0, 0.5, 1, 1.5, 2]
    assert not LitDataSource(written / "arrow").is_columnar
    assert not LitDataSource(written / "leaves").is_columnar


@pytest.mark.parametrize(
    ("kind", "data", "value"),
    [
        ("jpeg", b"\xff\xd8", b"\xff\xd8"),
        ("video:mp4", b"ab", b"ab"),
        ("jpeg_array", struct.pack("<3I", 2, 1, 2) + b"abc", [b"a", b"bc"]),
        ("pil", struct.pack("<3I", 2, 1, 1) + b"L\7\x08", [[7, 8]]),
        ("no_header_tensor:19", b"\1\0", [True, False]),
        ("json", b'{"a": [1]}', {"a": [1]}),
        ("json", b"\x0b", None),
        ("json", b"\x0a\x01", True),
        ("json", b"\x00\x03\x00\x00\x00[1]", [1]),
    ],
)
def test_further_kinds_of_leaves_are_decoded(tmp_path: Path, kind: str, data: bytes, value: Any):
    found = LitDataSource(write(tmp_path, [data], data_format=[kind]))[0]
    assert (found.tolist() if isinstance(found, np.ndarray) else found) == value


def test_pickles_are_an_error(written: Path):
    with pytest.raises(FormatError, match=r"^A leaf is stored as 'pickle', which is not read"):
        len(LitDataSource(written / "pickle"))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"item_loader": "ParquetLoader"}, "^The chunks were written for 'ParquetLoader'"),
        ({"encryption": {"algorithm": "fernet"}}, "^The chunks are encrypted"),
        ({"data_format": ["graph"]}, "^A leaf is stored as 'graph'"),
        ({"data_format": ["no_header_tensor:10"]}, "^A leaf is stored as 'no_header_tensor:10'"),
        ({"data_spec": '[1, {"type": "a.B", "children_spec": []}]'}, "a node of type 'a.B'"),
        ({"data_spec": "[2, null]"}, "its tree is in version 2"),
        ({"data_format": None}, r"^The file is not an index of LitData chunks \(TypeError"),
    ],
)
def test_what_is_not_read_is_an_error_that_reports_that(tmp_path: Path, config: Any, message: str):
    with pytest.raises(FormatError, match=message) as caught:
        len(LitDataSource(write(tmp_path, integers(3), **config)))
    assert caught.value.path == str(tmp_path / "index.json")


def test_a_folder_is_detected(tmp_path: Path):
    write(tmp_path, integers(5))
    assert detect_format(tmp_path) == "litdata"
    assert list(gm.MapDataset.source(open_source(tmp_path))) == [0, 1, 2, 3, 4]
    assert pickle.loads(pickle.dumps(open_source(tmp_path)))[3] == 3


def test_a_chunk_cannot_be_outside_the_folder(tmp_path: Path):
    index = (write(tmp_path, integers(2)) / "index.json").read_text()
    for name in ("../chunk.bin", "/etc/passwd", ""):
        (tmp_path / "index.json").write_text(index.replace("chunk-0-0.bin", name))
        with pytest.raises(FormatError, match=r"^The file is not an index of LitData chunks "):
            len(LitDataSource(tmp_path))


def test_a_missing_index_or_chunk_is_an_error(tmp_path: Path):
    with pytest.raises(MissingFileError):
        LitDataSource(tmp_path)
    write(tmp_path, integers(2))
    (tmp_path / "chunk-0-0.bin").unlink()
    with pytest.raises(MissingFileError):
        len(LitDataSource(tmp_path))


@pytest.mark.parametrize("name", EXPECTED)
def test_damaged_chunks_are_an_error_or_yield_other_values_but_never_crash(
    written: Path, name: str
):
    chunk = min((written / name).glob("*.bin"))
    data = chunk.read_bytes()
    rng = np.random.default_rng(0)
    for _ in range(100):
        changed = bytearray(data)
        changed[rng.integers(len(data))] = rng.integers(256)
        chunk.write_bytes(changed[: rng.integers(len(data) // 2, 2 * len(data))])
        with contextlib.suppress(CorruptFileError, FormatError):
            list(gm.MapDataset.source(LitDataSource(written / name)))


def test_a_truncated_chunk_is_an_error(tmp_path: Path):
    chunk = write(tmp_path, integers(2)) / "chunk-0-0.bin"
    data = chunk.read_bytes()
    chunk.write_bytes(data[:-1])
    with pytest.raises(CorruptFileError, match=r"^The chunk is damaged: an item is outside of it"):
        LitDataSource(tmp_path)[0]
    chunk.write_bytes(b"\x05" + data[1:])
    with pytest.raises(CorruptFileError, match=r"does not hold the items that the index announces"):
        LitDataSource(tmp_path)[0]
    chunk.write_bytes(data[:16] + b"\x07" + data[17:])
    message = r"^The item cannot be decoded \(ValueError: the sizes of the leaves do not add up"
    with pytest.raises(CorruptFileError, match=message) as caught:
        LitDataSource(tmp_path).__getitems__([1, 0])
    assert caught.value.record == 0
