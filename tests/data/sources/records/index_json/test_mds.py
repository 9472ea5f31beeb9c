import json
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from gristmill._data.sources.detect import detect_format, open_source
from gristmill._data.sources.records.index_json.mds import MdsSource
from gristmill.errors import CorruptFileError, FormatError, MissingFileError
from gristmill.testing import SourceSuite

COLUMNS = {"id": ("int", 8), "text": ("str", None), "x": ("ndarray:float32:2", 8)}


def encode(record: dict[str, bytes], columns: dict[str, Any]) -> bytes:
    sizes = [len(record[name]) for name, (_, size) in columns.items() if size is None]
    return struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(record[name] for name in columns)


def shard_bytes(records: list[bytes]) -> bytes:
    config = b'{"some": "config"}'
    first = 4 * (len(records) + 2) + len(config)
    offsets = first + np.cumsum([0, *map(len, records)])
    head = struct.pack(f"<I{len(offsets)}I", len(records), *offsets.tolist())
    return head + config + b"".join(records)


def write(
    folder: Path,
    shards: list[list[dict[str, bytes]]],
    columns: dict[str, Any] = COLUMNS,
    packed: bool = False,
) -> Path:
    """Write a dataset in the form that `streaming.MDSWriter` has, described in its docs."""
    entries = []
    for number, records in enumerate(shards):
        data = shard_bytes([encode(record, columns) for record in records])
        name = f"shard.{number:05}.mds"
        zip_data = None
        if packed:
            (folder / f"{name}.zstd").write_bytes(zstandard.compress(data))
            zip_data = {"basename": f"{name}.zstd", "bytes": 1, "hashes": {}}
        else:
            (folder / name).write_bytes(data)
        entries.append(
            {
                "column_encodings": [encoding for encoding, _ in columns.values()],
                "column_names": list(columns),
                "column_sizes": [size for _, size in columns.values()],
                "compression": "zstd" if packed else None,
                "format": "mds",
                "hashes": [],
                "raw_data": {"basename": name, "bytes": len(data), "hashes": {}},
                "samples": len(records),
                "size_limit": 1 << 26,
                "version": 2,
                "zip_data": zip_data,
            }
        )
    (folder / "index.json").write_text(json.dumps({"shards": entries, "version": 2}))
    return folder


def rows(count: int) -> list[dict[str, bytes]]:
    return [
        {
            "id": struct.pack("<q", i),
            "text": f"é {i}".encode() * (i % 3),
            "x": struct.pack("<2f", i, -i),
        }
        for i in range(count)
    ]


class TestMdsSource(SourceSuite):
    @pytest.fixture(params=[False, True], ids=["raw", "compressed"])
    def source(self, tmp_path: Path, request: pytest.FixtureRequest) -> MdsSource:
        return MdsSource(write(tmp_path, [rows(30), rows(7)], packed=request.param))


def test_records_are_decoded(tmp_path: Path):
    source = MdsSource(write(tmp_path, [rows(3), rows(5)]))
    assert len(source) == 8
    record = source[7]
    assert (record["id"], record["text"], record["x"].tolist()) == (4, "é 4", [4.0, -4.0])
    assert repr(source) == f"MdsSource({tmp_path.name!r})"


@pytest.mark.parametrize(
    ("encoding", "size", "data", "value"),
    [
        ("bytes", None, b"ab", b"ab"),
        ("jpeg", None, b"\xff\xd8", b"\xff\xd8"),
        ("jpeg:90", None, b"\xff\xd8", b"\xff\xd8"),
        ("uint16", 2, b"\x01\x02", np.uint16(513)),
        ("float64", 8, struct.pack("<d", 1.5), np.float64(1.5)),
        ("str_int", None, b"123", 123),
        ("str_float", None, b"1.5", 1.5),
        ("str_decimal", None, b"1.50", Decimal("1.50")),
        ("json", None, b'{"a": [1]}', {"a": [1]}),
        ("ndarray", None, bytes([17, 2 << 2, 1, 2]) + struct.pack("<2h", 5, 6), [[5, 6]]),
        ("ndarray:uint8", None, bytes([(1 << 2) | 1, 3, 0, 7, 8, 9]), [7, 8, 9]),
        ("ndarray:uint8:3", 3, bytes([7, 8, 9]), [7, 8, 9]),
    ],
)
def test_every_encoding_is_decoded(
    tmp_path: Path, encoding: str, size: int | None, data: bytes, value: Any
):
    source = MdsSource(write(tmp_path, [[{"v": data}]], {"v": (encoding, size)}))
    found = source[0]["v"]
    if isinstance(value, list):
        assert found.tolist() == value
    else:
        assert found == value
        assert type(found) is type(value)


@pytest.mark.parametrize("encoding", ["pkl", "pil", "other", "ndarray:object"])
def test_pickles_and_unknown_encodings_are_an_error(tmp_path: Path, encoding: str):
    source = MdsSource(write(tmp_path, [[{"v": b""}]], {"v": (encoding, None)}))
    with pytest.raises(FormatError, match=rf"^The column 'v' is encoded as '{encoding}', which is"):
        len(source)


def test_a_folder_is_detected(tmp_path: Path):
    write(tmp_path, [rows(3)])
    assert detect_format(tmp_path) == "mds"
    assert open_source(tmp_path)[1]["id"] == 1


def test_a_shard_cannot_be_outside_the_folder(tmp_path: Path):
    write(tmp_path, [rows(1)])
    index = (tmp_path / "index.json").read_text()
    for name in ("../shard.mds", "/etc/passwd", ""):
        (tmp_path / "index.json").write_text(index.replace("shard.00000.mds", name))
        with pytest.raises(FormatError, match=r"^The file is not an index of MDS shards "):
            len(MdsSource(tmp_path))


@pytest.mark.parametrize("index", ["", "[]", '{"shards": []}', '{"shards": [{"format": "jsonl"}]}'])
def test_another_index_is_an_error(tmp_path: Path, index: str):
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(FormatError, match=r"^The file is not an index of MDS shards "):
        len(MdsSource(tmp_path))


def test_a_missing_index_or_shard_is_an_error(tmp_path: Path):
    with pytest.raises(MissingFileError):
        MdsSource(tmp_path)
    write(tmp_path, [rows(1)])
    (tmp_path / "shard.00000.mds").unlink()
    with pytest.raises(MissingFileError):
        len(MdsSource(tmp_path))


def test_a_damaged_shard_is_an_error(tmp_path: Path):
    shard = write(tmp_path, [rows(4)]) / "shard.00000.mds"
    data = shard.read_bytes()
    shard.write_bytes(data[:-1])
    with pytest.raises(CorruptFileError, match=r"^The shard is damaged: its records are not where"):
        MdsSource(tmp_path)[0]
    shard.write_bytes(b"\x05" + data[1:])
    with pytest.raises(CorruptFileError, match=r"^The shard does not hold the 4 records that "):
        MdsSource(tmp_path)[0]
    start = int.from_bytes(data[8:12], "little")
    shard.write_bytes(data[:start] + b"\xff\xff" + data[start + 2 :])
    message = r"^The record cannot be decoded \(ValueError: the record ends before the column 'te"
    with pytest.raises(CorruptFileError, match=message) as caught:
        MdsSource(tmp_path).__getitems__([0, 1])
    assert caught.value.record == 1
