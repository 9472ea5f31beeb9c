"""ArrayRecord files are read as by the library and by Grain."""

import pickle
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grain
import numpy as np
import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import gristmill
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FormatError,
    GristmillWarning,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from gristmill.sources import ArrayRecordDataSource
from gristmill.testing import SourceSuite


def write(path: Path, records: Sequence[bytes], options: str = "group_size:1") -> Path:
    writer = ArrayRecordWriter(str(path), options)
    for record in records:
        writer.write(record)
    writer.close()
    return path


RECORDS = [random.Random(i).randbytes(i % 300) for i in range(250)]


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    contents = [RECORDS[:100], RECORDS[100:100], RECORDS[100:130], RECORDS[130:]]
    return [
        write(tmp_path / f"train-{number}.array_record", records)
        for number, records in enumerate(contents)
    ]


class TestArrayRecordDataSource(SourceSuite):
    @pytest.fixture
    def source(self, shards: list[Path]) -> ArrayRecordDataSource:
        return ArrayRecordDataSource([str(path) for path in shards])


@dataclass
class Instruction:
    filename: str
    skip: int
    take: int
    examples_in_shard: int


def as_paths(shards: list[Path]) -> dict[str, Any]:
    first, _, third, _ = shards
    return {
        "string": str(first),
        "path": third,
        "list": [str(path) for path in shards],
        "paths": shards,
        "range": f"{first}[10:20]",
        "ranges": [f"{first}[10:20]", f"{third}[0:0]", str(third), f"{first}[0:3]"],
        "instruction": Instruction(str(first), 5, 20, 100),
        "instructions": [Instruction(str(third), 0, 30, 30), Instruction(str(first), 99, 1, 100)],
    }


@pytest.mark.parametrize(
    "kind",
    ["string", "path", "list", "paths", "range", "ranges", "instruction", "instructions"],
)
def test_records_paths_and_repr_equal_those_of_grain(shards: list[Path], kind: str):
    paths = as_paths(shards)[kind]
    theirs: Any = grain.sources.ArrayRecordDataSource(paths)
    ours = ArrayRecordDataSource(paths)

    assert len(ours) == len(theirs)
    assert list(ours) == list(theirs)
    assert repr(ours) == repr(theirs)
    assert list(ours.paths) == list(theirs.paths)


def test_a_pattern_matches_files_in_the_order_of_their_names(shards: list[Path]):
    source = ArrayRecordDataSource(str(shards[0].parent / "train-*.array_record"))

    assert source.__getitems__(range(250)) == RECORDS


def test_reader_options_are_passed_to_the_reader(shards: list[Path]):
    offloaded = {"index_storage_option": "offloaded", "footer_prefetch_bytes": "0"}
    source = ArrayRecordDataSource(shards, offloaded)

    assert source.__getitems__([249, 0]) == [RECORDS[249], RECORDS[0]]
    with pytest.raises(PlanError, match="`reader_options` are not valid: Unknown option"):
        len(ArrayRecordDataSource(shards, {"unknown": "1"}))


def test_creating_the_source_opens_no_file(shards: list[Path]):
    shards[3].write_bytes(b"not an ArrayRecord file")

    source = ArrayRecordDataSource(shards)

    with pytest.raises(FormatError):
        len(source)


def test_a_pickled_source_contains_the_counts(shards: list[Path]):
    source = ArrayRecordDataSource(shards)
    assert len(source) == 250
    pickled = pickle.dumps(source)
    stats = shards[0].stat()
    shards[0].unlink()

    assert len(pickle.loads(pickled)) == 250
    assert stats.st_size > len(pickled)


def test_it_can_be_read_after_it_was_closed(shards: list[Path]):
    with ArrayRecordDataSource(shards) as source:
        assert source[3] == RECORDS[3]

    assert source[3] == RECORDS[3]


@pytest.mark.parametrize("worker_count", [0, 2])
def test_the_stream_of_a_loader_equals_that_of_grain(shards: list[Path], worker_count: int):
    def stream(package: Any, worker_count: int) -> list[bytes]:
        source = package.sources.ArrayRecordDataSource([str(path) for path in shards])
        sampler = package.samplers.IndexSampler(len(source), shuffle=True, seed=7, num_epochs=2)
        return list(
            package.DataLoader(data_source=source, sampler=sampler, worker_count=worker_count)
        )

    assert stream(gristmill, worker_count) == stream(grain, 0)


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    write(tmp_path / "train.array_record", [b"x"])

    with pytest.raises(MissingFileError, match=r"Did you mean 'train\.array_record'\?"):
        ArrayRecordDataSource(tmp_path / "trian.array_record")
    with pytest.raises(MissingFileError, match="pattern matches no file"):
        ArrayRecordDataSource(str(tmp_path / "*.arecord"))


def test_a_file_of_another_format_is_an_error(tmp_path: Path):
    path = tmp_path / "a.array_record"
    path.write_bytes(b"hello world\n" * 100)

    with pytest.raises(FormatError, match=r"not an ArrayRecord file.*a\.array_record"):
        len(ArrayRecordDataSource(path))


def test_a_truncated_file_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.array_record", RECORDS)
    path.write_bytes(path.read_bytes()[:20_000])

    with pytest.raises(CorruptFileError, match=r"truncated.*a\.array_record, byte 20,000"):
        len(ArrayRecordDataSource(path))


def test_a_damaged_record_is_an_error_and_the_others_are_read(tmp_path: Path):
    noise = random.Random(0)
    path = write(tmp_path / "a.array_record", [noise.randbytes(2000) for _ in range(50)])
    data = bytearray(path.read_bytes())
    at = len(data) // 2
    data[at] ^= 0xFF
    path.write_bytes(bytes(data))
    source = ArrayRecordDataSource(path)

    damaged = [i for i in range(50) if isinstance(_read_or_error(source, i), CorruptFileError)]

    assert len(damaged) == 1
    error = _read_or_error(source, damaged[0])
    assert isinstance(error, CorruptFileError)
    assert error.record == damaged[0]
    assert error.offset is not None
    assert abs(error.offset - at) < 4000
    assert "Copy the file again" in str(error)


def _read_or_error(source: ArrayRecordDataSource, index: int) -> bytes | Exception:
    try:
        return source[index]
    except Exception as error:
        return error


def test_an_instruction_that_takes_too_many_records_is_an_error(shards: list[Path]):
    source = ArrayRecordDataSource(Instruction(str(shards[2]), 0, 31, 31))

    assert source[29] == RECORDS[129]
    with pytest.raises(
        CorruptFileError, match="has 30 records, fewer than the file instruction takes"
    ):
        source[30]


def test_a_file_that_has_changed_is_an_error(shards: list[Path]):
    source = ArrayRecordDataSource(shards)
    write(shards[0], RECORDS[::-1])

    with pytest.raises(ChangedFileError, match=r"changed since.*train-0\.array_record"):
        source[0]


def test_a_large_group_size_causes_a_warning(tmp_path: Path):
    path = write(tmp_path / "a.array_record", RECORDS, "group_size:100")

    with pytest.warns(GristmillWarning, match="groups of 100"):
        assert ArrayRecordDataSource(path)[7] == RECORDS[7]


@pytest.mark.parametrize(
    ("paths", "message"),
    [
        ([], "at least one path"),
        (7, "a path, a file instruction or a list"),
        ([7], "must be a path or a list of paths"),
        ("{}[5:2]", "must not end before it begins"),
    ],
)
def test_invalid_paths_are_an_error(shards: list[Path], paths: Any, message: str):
    formatted = paths.format(shards[0]) if isinstance(paths, str) else paths

    with pytest.raises(PlanError, match=message):
        ArrayRecordDataSource(formatted)


def test_reader_options_must_be_a_dict(shards: list[Path]):
    with pytest.raises(PlanTypeError, match="`reader_options` must be a dict"):
        ArrayRecordDataSource(shards, "offloaded")  # pyright: ignore[reportArgumentType]


def test_many_files_share_a_few_open_readers(tmp_path: Path):
    paths = [write(tmp_path / f"{i:03d}.array_record", [b"%d" % i]) for i in range(300)]
    source = ArrayRecordDataSource(paths)
    order = np.random.default_rng(0).permutation(300)

    assert source.__getitems__(order) == [b"%d" % i for i in order]
