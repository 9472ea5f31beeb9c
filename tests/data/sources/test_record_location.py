"""Where the records of each format are stored."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill import ArrayRecordDataSource, MapDataset, RecordLocation
from gristmill.sources import (
    CsvSource,
    ImageFolderSource,
    JsonLinesSource,
    ParquetSource,
    TarSource,
    TFRecordSource,
)
from tests.cli.formats import COUNT, MAKERS

KINDS: dict[str, Any] = {
    "array_record": ArrayRecordDataSource,
    "tfrecord": TFRecordSource,
    "json_lines": JsonLinesSource,
    "csv": CsvSource,
    "tar": TarSource,
    "parquet": ParquetSource,
}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_record_has_a_file_and_a_number(kind: str, tmp_path: Path):
    path = MAKERS[kind](tmp_path)
    source = KINDS[kind]([path])

    locations = [source.location(index) for index in range(COUNT)]

    assert {location.file for location in locations} == {path}
    assert [location.index for location in locations] == list(range(COUNT))
    with pytest.raises(IndexError):
        source.location(COUNT)


def test_an_offset_is_the_byte_where_the_record_starts(tmp_path: Path):
    paths = [str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")]
    for number, path in enumerate(paths):
        Path(path).write_text("".join(f'{{"n": {10 * number + n}}}\n' for n in range(3)))
    source = JsonLinesSource(paths)

    for index, record in enumerate(source[i] for i in range(6)):
        location = source.location(index)
        with open(location.file) as file:
            file.seek(location.offset or 0)
            assert json.loads(file.readline()) == record


def test_an_offset_in_a_tfrecord_is_that_of_its_length(tmp_path: Path):
    source = TFRecordSource(MAKERS["tfrecord"](tmp_path))
    content = Path(source.location(3).file).read_bytes()
    offset = source.location(3).offset or 0

    assert int.from_bytes(content[offset : offset + 8], "little") == len(source[3])


def test_rows_of_a_table_count_from_the_start_of_their_file(tmp_path: Path):
    for number in range(2):
        table = pa.table({"n": list(range(10 * number, 10 * number + 7))})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=2)
    source = ParquetSource(str(tmp_path / "*.parquet"))

    for index in range(len(source)):
        location = source.location(index)
        rows = pq.read_table(location.file).to_pylist()
        assert rows[location.index] == source[index]


def test_an_image_is_a_file_of_its_own(tmp_path: Path):
    for name in ("cat/1.png", "dog/2.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    source = ImageFolderSource(str(tmp_path))

    assert os.path.basename(source.location(1).file) == "2.png"


def test_provenance_contains_the_location(tmp_path: Path):
    path = MAKERS["json_lines"](tmp_path)
    iterator = iter(MapDataset.source(JsonLinesSource(path)).shuffle(seed=1).to_iter_dataset())
    next(iterator)
    (origin,) = iterator.provenance().records

    assert origin.location is not None
    assert origin.location.file == path
    assert origin.location.index == origin.index
    assert f"of the file {path}, byte {origin.location.offset}" in str(origin)


def test_a_source_of_the_users_own_can_have_locations():
    class Own(list[int]):
        def location(self, index: Any) -> RecordLocation:
            return RecordLocation("somewhere", index)

    iterator = iter(MapDataset.source(Own([5, 6])).to_iter_dataset())
    next(iterator)

    assert iterator.provenance().records[0].location == RecordLocation("somewhere", 0)
