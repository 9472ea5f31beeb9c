import io
import pickle
import tarfile
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from webdataset import tariterators, writer

from gristmill._data.sources.records.tar.tar import TarSource
from gristmill.errors import FormatError, MissingFileError

Files = Sequence[tuple[str, bytes]]


def write(path: Path, files: Files, format: int = tarfile.PAX_FORMAT) -> Path:
    with tarfile.open(path, "w", format=format) as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def records_of(source: TarSource) -> list[dict[str, Any]]:
    return [source[index] for index in range(len(source))]


def by_webdataset(*paths: Path) -> list[dict[str, Any]]:
    samples: list[dict[str, Any]] = []
    for path in paths:
        with path.open("rb") as stream:
            shard = {"url": str(path), "stream": stream}
            samples += tariterators.group_by_keys(tariterators.tar_file_expander([shard]))
    return [{key: sample[key] for key in sample if key != "__url__"} for sample in samples]


COMPONENTS = st.text(st.sampled_from("ab_é漢.-A "), min_size=1, max_size=8) | st.sampled_from(
    ["x" * 99, "x" * 130, "__meta__", "é" * 60, "long/" * 25 + "er"]
)
NAMES = (
    st.builds("/".join, st.lists(COMPONENTS, min_size=1, max_size=3))
    .map(lambda name: name.strip("/ "))
    # Hidden files in folders are records to WebDataset, and `tarfile` drops some slashes.
    .filter(lambda name: name and "/." not in name and "//" not in name)
)
SIZES = st.sampled_from([0, 1, 511, 512, 513, 1024, 5000]) | st.integers(0, 2000)
EXTENSIONS = st.sampled_from(["jpg", "JPG", "cls", "seg.png", "", "Json"])


@st.composite
def shards(draw: Any) -> list[tuple[str, bytes]]:
    """Draw files of records, and some with any name; no record has an extension twice."""
    files: list[tuple[str, bytes]] = []
    for base in draw(st.lists(NAMES, max_size=6)):
        few = st.lists(EXTENSIONS, max_size=3, unique_by=str.lower)
        for extension in draw(st.none().map(lambda _: [None]) | few):
            name = base if extension is None else f"{base}.{extension}"
            data = bytes([len(files)]) * draw(SIZES)
            files.append((name, data))
    return list(dict(files).items())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(shards(), min_size=1, max_size=2),
    st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]),
    st.data(),
)
def test_records_equal_those_of_webdataset(
    files: list[list[tuple[str, bytes]]], form: int, data: Any
):
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            write(Path(folder, f"{number}.tar"), some, form) for number, some in enumerate(files)
        ]
        try:
            expected = by_webdataset(*paths)
        except ValueError:  # an extension twice, by chance
            return
        if any(some and not by_webdataset(path) for some, path in zip(files, paths, strict=True)):
            with pytest.raises(FormatError, match="is part of a record"):
                len(TarSource(paths))
            return
        source = TarSource(paths)
        read = records_of(source)

        assert read == expected
        assert [list(record) for record in read] == [list(record) for record in expected]
        if read:
            indices = data.draw(st.lists(st.integers(0, len(read) - 1), max_size=20))
            assert source.__getitems__(indices) == [read[index] for index in indices]
            assert source.__getitems__(np.array(indices, dtype=np.int64)) == [
                read[i] for i in indices
            ]
            assert source.__getitems__(range(len(read))) == read


def test_archives_written_by_webdataset_are_read(tmp_path: Path):
    path = tmp_path / "a.tar"
    with writer.TarWriter(str(path)) as shard:
        for number in range(100):
            image = np.full((8, 8, 3), number, dtype=np.uint8)
            shard.write({"__key__": f"sub/{number:06d}", "png": image, "cls": number, "json": {}})
    assert records_of(TarSource(path)) == by_webdataset(path)
    assert TarSource(path)[7]["cls"] == b"7"


def test_files_of_the_same_key_that_are_not_consecutive_are_two_records(tmp_path: Path):
    path = write(tmp_path / "a.tar", [("a.x", b"1"), ("b.x", b"2"), ("a.y", b"3")])
    assert records_of(TarSource(path)) == by_webdataset(path)
    assert len(TarSource(path)) == 3


def test_a_record_does_not_continue_in_the_next_shard(tmp_path: Path):
    first = write(tmp_path / "1.tar", [("a.x", b"1")])
    second = write(tmp_path / "2.tar", [("a.y", b"2")])
    assert records_of(TarSource([first, second])) == by_webdataset(first, second)
    assert len(TarSource([first, second])) == 2


def test_members_that_are_not_files_are_left_out(tmp_path: Path):
    path = tmp_path / "a.tar"
    kinds = [tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE]
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("a.x"))
        for number, kind in enumerate(kinds):
            member = tarfile.TarInfo(f"a.{number}")
            member.type, member.linkname = kind, "a.x"
            archive.addfile(member)
        archive.addfile(tarfile.TarInfo("a.y"))
    assert (
        records_of(TarSource(path)) == by_webdataset(path) == [{"__key__": "a", "x": b"", "y": b""}]
    )


@pytest.mark.parametrize(
    "name", ["README", "x.y/README", "__meta__/a.json", "__a.b__", ".hidden.x"]
)
def test_a_file_that_is_in_no_record_does_not_split_one(tmp_path: Path, name: str):
    path = write(tmp_path / "a.tar", [("a.x", b"1"), (name, b"2"), ("a.y", b"3")])
    assert records_of(TarSource(path)) == by_webdataset(path)
    assert len(TarSource(path)) == 1


def test_hidden_files_in_folders_are_left_out(tmp_path: Path):
    files = [("s/._a.x", b"?"), ("s/a.x", b"1"), ("s/._a.y", b"?"), ("s/a.y", b"2")]
    source = TarSource(write(tmp_path / "a.tar", files))
    assert records_of(source) == [{"__key__": "s/a", "x": b"1", "y": b"2"}]


def test_a_large_file_may_be_between_the_files_of_a_record(tmp_path: Path):
    files = [("a.x", b"1"), ("HUGE", bytes(500_000)), ("a.y", b"2"), ("b.x", b"3")]
    source = TarSource(write(tmp_path / "a.tar", files))
    assert source.__getitems__([1, 0]) == [
        {"__key__": "b", "x": b"3"},
        {"__key__": "a", "x": b"1", "y": b"2"},
    ]


def test_names_that_are_not_utf_8_are_preserved(tmp_path: Path):
    path = tmp_path / "a.tar"
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    write(path, [(f"{name}.x", b"1")], tarfile.GNU_FORMAT)
    assert records_of(TarSource(path)) == by_webdataset(path) == [{"__key__": name, "x": b"1"}]


@pytest.mark.parametrize("second", ["a.jpg", "a.JPG"])
def test_an_extension_twice_in_a_record_is_an_error(tmp_path: Path, second: str):
    path = write(tmp_path / "a.tar", [("b.x", b""), ("a.jpg", b""), (second, b"")])
    with pytest.raises(ValueError, match="duplicate file name"):
        by_webdataset(path)
    message = (
        rf"^The record has two files with the extension 'jpg'; the second is '{second}'\. Use a "
        r"different extension for each file of a record\. \(.*a\.tar, byte 1,024, record 1\)$"
    )
    with pytest.raises(FormatError, match=message):
        len(TarSource(path))


def test_the_extension_of_the_key_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.tar", [("a.__key__", b"")])
    message = r"^The extension of 'a\.__key__' is reserved for the key of the record\. Use a "
    with pytest.raises(FormatError, match=message):
        len(TarSource(path))


def test_an_archive_without_any_record_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.tar", [("one", b""), ("two", b"")])
    message = (
        r"^None of the 2 files in the archive is part of a record\. Name them KEY\.EXTENSION, "
        r"such as 000017\.jpg and 000017\.cls\. \("
    )
    with pytest.raises(FormatError, match=message):
        len(TarSource(path))


def test_an_empty_archive_has_no_records(tmp_path: Path):
    source = TarSource(write(tmp_path / "a.tar", []))
    assert (len(source), source.__getitems__([])) == (0, [])


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_out_of_bounds_is_an_error(tmp_path: Path, index: int):
    source = TarSource(write(tmp_path / "a.tar", [("a.x", b""), ("b.x", b"")]))
    message = rf"^`index` must be in \[0, 2\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        source[index]
    with pytest.raises(IndexError, match=message):
        source.__getitems__([0, index])


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        TarSource(tmp_path / "absent-*.tar")


def test_creating_the_source_reads_nothing(tmp_path: Path):
    path = tmp_path / "a.tar"
    path.write_bytes(b"not an archive")
    TarSource(path)
    assert list(tmp_path.iterdir()) == [path]


def test_it_can_be_pickled_at_any_time(tmp_path: Path):
    path = write(tmp_path / "a.tar", [("a.x", b"1"), ("b.x", b"2")])
    fresh, used = TarSource(path), TarSource(path)
    expected = records_of(used)
    for source in (fresh, used):
        assert records_of(pickle.loads(pickle.dumps(source))) == expected


def test_threads_may_share_it(tmp_path: Path):
    files = [(f"{number}.x", str(number).encode()) for number in range(200)]
    source = TarSource(write(tmp_path / "a.tar", files))
    start = threading.Barrier(8)
    read: list[list[Any]] = []

    def work() -> None:
        start.wait()
        read.append([record["x"] for record in source.__getitems__(range(200))])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [[data for _, data in files]] * 8


def test_its_repr_contains_the_files_without_their_folder(tmp_path: Path):
    first = write(tmp_path / "1.tar", [])
    write(tmp_path / "2.tar", [])
    assert repr(TarSource(first)) == "TarSource('1.tar')"
    assert repr(TarSource(f"{tmp_path}/*.tar")) == "TarSource(<2 files>, '1.tar', ...)"


def test_files_in_a_store_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write(tmp_path / "a.tar", [(f"{i // 2}.{i % 2}", bytes([i]) * 3000) for i in range(40)])
    fsspec.filesystem("memory").pipe_file("/test_tar/a.tar", path.read_bytes())
    source = TarSource("memory://test_tar/a.tar")
    assert records_of(source) == by_webdataset(path)
