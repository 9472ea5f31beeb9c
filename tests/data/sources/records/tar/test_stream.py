"""Shards read from front to back have the records of `TarSource`, starting at any position."""

import io
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.records.tar import stream as _tar_stream
from gristmill._data.sources.records.tar.stream import TarStream
from gristmill._data.sources.records.tar.tar import TarSource
from gristmill._io.paths import find_files
from gristmill.errors import CorruptFileError, FormatError, GristmillError
from tests.data.sources.records.tar.test_tar import Files, records_of, shards, write

FILES: Files = [
    ("README", b"notes"),
    ("a.jpg", b"a" * 1000),
    ("a.cls", b"1"),
    ("__meta__/x.json", b"{}"),
    ("b.jpg", b"b" * 40_000),
    ("LICENSE", b""),
    ("b.cls", b"2"),
    ("漢" * 60 + ".jpg", b""),
    ("d.cls", b"4"),
    ("END", b"notes"),
]


def stream_of(*paths: Path) -> TarStream:
    return TarStream(find_files(paths))


def read(stream: TarStream, position: Any = None) -> list[dict[str, Any]]:
    start = stream.start if position is None else position
    return [record for block, _ in stream.read_from(start) for record in block]


def positions_of(stream: TarStream) -> list[Any]:
    positions = [stream.start]
    for block, position_after in stream.read_from(stream.start):
        positions += [position_after(count) for count in range(1, len(block) + 1)]
    return positions


@settings(deadline=None, max_examples=60)
@given(
    st.lists(shards(), min_size=1, max_size=3),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    st.sampled_from([1, 3000, 2**20]),
)
def test_records_and_resumption_equal_those_with_random_access(
    files: list[list[tuple[str, bytes]]], form: int, block_bytes: int
):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(_tar_stream, "_BLOCK_BYTES", block_bytes)
        paths = [
            write(Path(folder, f"{number}.tar"), shard, form) for number, shard in enumerate(files)
        ]
        stream = stream_of(*paths)
        try:
            expected = records_of(TarSource(list(map(str, paths))))
        except FormatError:
            with pytest.raises(FormatError):
                read(stream)
            return
        assert read(stream) == expected
        positions = positions_of(stream)
        assert len(positions) == len(expected) + 1
        for count, position in enumerate(positions):
            assert read(stream, position) == expected[count:]


def test_files_that_are_in_no_record_are_skipped_at_any_position(tmp_path: Path):
    stream = stream_of(write(tmp_path / "a.tar", FILES), write(tmp_path / "b.tar", FILES[:3]))
    records = read(stream)
    assert [record["__key__"] for record in records] == ["a", "b", "漢" * 60, "d", "a"]
    assert records[1] == {"__key__": "b", "jpg": b"b" * 40_000, "cls": b"2"}
    for count, position in enumerate(positions_of(stream)):
        assert read(stream, position) == records[count:]


def test_only_bytes_after_the_position_are_read(tmp_path: Path):
    path = write(tmp_path / "a.tar", FILES)
    stream = stream_of(path)
    position = positions_of(stream)[2]
    data = path.read_bytes()
    path.write_bytes(bytes(position[1]) + data[position[1] :])
    assert [record["__key__"] for record in read(stream_of(path), position)] == ["漢" * 60, "d"]


@pytest.mark.parametrize("archive", [[], [("README", b"x")], [("a.jpg", b""), ("a.jpg", b"")]])
def test_archives_that_cannot_be_read_fail_as_with_random_access(tmp_path: Path, archive: Files):
    path = write(tmp_path / "a.tar", archive)
    outcomes: list[str] = []
    for read_all in (lambda: records_of(TarSource(str(path))), lambda: read(stream_of(path))):
        try:
            outcomes.append(repr(read_all()))
        except GristmillError as error:
            outcomes.append(f"{type(error).__name__} {error}")
    assert outcomes[0] == outcomes[1]


def test_records_before_damage_are_yielded_first(tmp_path: Path):
    path = write(tmp_path / "a.tar", FILES)
    position = positions_of(stream_of(path))[2]
    with path.open("r+b") as file:
        file.seek(position[1] + 512 * 2 + 5)  # the header after a long name
        file.write(b"damage")
    blocks = stream_of(path).read_from([0, 0])
    records, position_after = next(blocks)
    assert [record["__key__"] for record in records] == ["a"]  # whether b is complete is not known
    with pytest.raises(CorruptFileError, match="damaged"):
        next(blocks)
    with pytest.raises(CorruptFileError, match="damaged"):
        next(stream_of(path).read_from(position_after(1)))


def test_a_truncated_archive_yields_its_whole_records(tmp_path: Path):
    path = write(tmp_path / "a.tar", FILES)
    data = path.read_bytes()
    path.write_bytes(data[: positions_of(stream_of(path))[2][1] - 600])
    blocks = stream_of(path).read_from([0, 0])
    assert [record["__key__"] for record in next(blocks)[0]] == ["a"]
    with pytest.raises(CorruptFileError, match="truncated"):
        next(blocks)


def test_compressed_archives_are_read_too(tmp_path: Path):
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        for name, data in FILES:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    plain = write(tmp_path / "a.tar", FILES)
    assert read(stream_of(tmp_path / "a.tar.gz")) == read(stream_of(plain))


def test_its_repr_contains_the_files_without_their_folder(tmp_path: Path):
    assert repr(stream_of(write(tmp_path / "a.tar", FILES))) == "Tar('a.tar')"
