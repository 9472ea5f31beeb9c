import bz2
import gzip
import lzma
import multiprocessing
import os
import pickle
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._io.decompress import open_decompressed
from gristmill._io.file import File
from gristmill._io.folders.cache import cache_folder
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill.errors import ChangedFileError, CorruptFileError, FileError, PlanError
from gristmill.options import StorageOptions

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


@pytest.fixture(params=COMPRESS)
def suffix(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def open_path(path: Path, **storage: Any) -> File:
    return open_decompressed(find_file(path, StorageOptions(**storage)))


def cached_bytes() -> int:
    return sum(path.stat().st_size for path in cache_folder().rglob("*") if path.is_file())


def test_any_range_of_the_decompressed_bytes_can_be_read(tmp_path: Path, suffix: str):
    data = os.urandom(3 * 2**20) + bytes(3 * 2**20)
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](data))
    file = open_path(path)
    assert file.ref.size == len(data)
    assert file.ref.path == str(path)
    starts, stops = [5, 2**21, 0, len(data)], [9, 4 * 2**20, 0, len(data)]
    expected = [data[start:stop] for start, stop in zip(starts, stops, strict=True)]
    assert file.read(starts, stops) == expected
    assert b"".join(file.chunks(7)) == data[7:]
    assert file.local_path().read_bytes() == data
    file.check_unchanged()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.binary(max_size=400), min_size=1, max_size=4), st.sampled_from(list(COMPRESS)))
def test_streams_that_follow_one_another_are_one_file(parts: list[bytes], suffix: str):
    path = Path(os.environ["XDG_CACHE_HOME"]) / f"a{suffix}"
    path.write_bytes(b"".join(COMPRESS[suffix](part) for part in parts))
    file = open_path(path)
    assert b"".join(file.chunks()) == b"".join(parts)


def test_a_file_that_is_not_compressed_is_opened_as_it_is(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(b"plain")
    assert open_path(tmp_path / "a.gz").read_one(0, 5) == b"plain"
    assert cached_bytes() == 0


def test_zeros_may_follow_gzip_and_nothing_else_may(tmp_path: Path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text") + bytes(100))
    assert open_path(path).read_one(0, 4) == b"text"
    path.write_bytes(gzip.compress(b"text") + b"more")
    with pytest.raises(CorruptFileError, match=r"^The gzip file is damaged or truncated \("):
        open_path(path)


def test_skippable_frames_of_zstandard_hold_no_data(tmp_path: Path):
    path = tmp_path / "a.zst"
    frame = struct.pack("<II", 0x184D2A50, 5) + b"abcde"
    path.write_bytes(zstandard.compress(b"text") + frame + zstandard.compress(b" more"))
    assert open_path(path).read_one(0, 9) == b"text more"


def test_a_truncated_file_is_an_error(tmp_path: Path, suffix: str):
    whole = COMPRESS[suffix](os.urandom(1000))
    path = tmp_path / f"a{suffix}"
    for size in (10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(CorruptFileError, match=r"it ends inside a stream\). Copy it again\."):
            open_path(path)


def test_a_damaged_file_is_an_error_and_leaves_nothing_behind(tmp_path: Path, suffix: str):
    whole = bytearray(COMPRESS[suffix](os.urandom(1000)))
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / f"a{suffix}"
    path.write_bytes(whole)
    if suffix == ".zst":  # by default, it has no checksum, and these are raw bytes
        checked = zstandard.ZstdCompressor(write_checksum=True).compress(os.urandom(1000))
        path.write_bytes(checked[:-1] + bytes([checked[-1] ^ 1]))
    with pytest.raises(CorruptFileError, match="is damaged or truncated") as caught:
        open_path(path)
    assert caught.value.path == str(path)
    assert not list(cache_folder().rglob("[0-9]*.a*"))
    assert not list(cache_folder().rglob(".part-*"))


def test_a_file_is_decompressed_once(tmp_path: Path, suffix: str):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](b"text"))
    first = open_path(path).local_path()
    before = first.stat()
    again = open_path(path).local_path()
    assert again == first
    assert (again.stat().st_ino, again.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_another_file_of_the_same_size_and_time_is_decompressed_again(tmp_path: Path):
    path = tmp_path / "a.bz2"
    path.write_bytes(gzip.compress(b"text", mtime=0))
    assert open_path(path).read_one(0, 4) == b"text"
    times = path.stat()
    path.write_bytes(gzip.compress(b"next", mtime=0))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert open_path(path).read_one(0, 4) == b"next"


def test_a_copy_of_another_size_is_replaced(tmp_path: Path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text"))
    copy = open_path(path).local_path()
    copy.write_bytes(b"")
    assert open_path(path).read_one(0, 4) == b"text"


def test_a_change_of_the_compressed_file_is_an_error(tmp_path: Path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b"text"))
    file = open_path(path)
    path.write_bytes(gzip.compress(b"other text"))
    for read in (lambda: file.read_one(0, 4), file.check_unchanged, lambda: list(file.chunks())):
        with pytest.raises(ChangedFileError):
            read()


def test_a_file_that_expands_beyond_the_cache_is_an_error_and_never_fills_the_disk(tmp_path: Path):
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(50 * 2**20)))
    message = rf"a\.gz has {path.stat().st_size:,} bytes, and more than `cache_bytes`, 1,048,576, "
    with pytest.raises(PlanError, match=message):
        open_path(path, cache_bytes=2**20)
    assert cached_bytes() <= 2**20


def test_the_oldest_copies_make_room_for_new_ones(tmp_path: Path):
    for number in range(6):
        path = tmp_path / f"{number}.gz"
        path.write_bytes(gzip.compress(bytes([number]) * 2**20))
        file = open_path(path, cache_bytes=3 * 2**20)
        assert file.read_one(0, 3) == bytes([number]) * 3
        assert cached_bytes() <= 3 * 2**20


def test_a_bomb_takes_little_memory(tmp_path: Path, suffix: str):
    path = tmp_path / f"a{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(400 * 2**20)))
    context = multiprocessing.get_context("spawn")
    parent, child = context.Pipe()
    process = context.Process(target=_open_and_measure, args=(str(path), child))
    process.start()
    grown = parent.recv()
    process.join()
    assert grown < 200 * 2**20


def _open_and_measure(path: str, pipe: Any) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert open_path(Path(path)).ref.size == 400 * 2**20
    pipe.send(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before)


def test_xz_that_needs_much_memory_is_an_error(tmp_path: Path):
    path = tmp_path / "a.xz"
    filters = [{"id": lzma.FILTER_LZMA2, "dict_size": 2**20}]
    data = bytearray(lzma.compress(b"text", filters=filters))
    header = bytearray(data[12:24])  # the block header: set the dictionary to 4 GB
    header[header.index(b"\x21\x01") + 2] = 40
    header[8:] = zlib.crc32(header[:8]).to_bytes(4, "little")
    data[12:24] = header
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=r"xz file is damaged or truncated \(.*emory"):
        open_path(path)


def test_a_cache_folder_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    (tmp_path / "file").write_bytes(b"")
    message = r"^The file must be decompressed, and the cache folder cannot be written: "
    with pytest.raises(FileError, match=message):
        open_path(tmp_path / "a.gz", cache_dir=tmp_path / "file")


def test_files_of_a_source_keep_how_they_are_opened_when_pickled(tmp_path: Path):
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text"))
    files = OpenFiles([find_file(tmp_path / "a.gz")], open_decompressed)
    assert pickle.loads(pickle.dumps(files))[0].read_one(0, 4) == b"text"
