import os
import random
import stat
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._io.file import File
from gristmill._io.index import load_index
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill.options import StorageOptions
from tests.io.conftest import Serve
from tests.io.programs import DROP_PRIVILEGES, run

DATA = random.Random(0).randbytes(100_000)


class Lines:
    """Builds an index of the starts of lines, and counts its calls."""

    def __init__(self) -> None:
        self.num_built = 0

    def __call__(self, file: File) -> dict[str, Any]:
        self.num_built += 1
        data = np.frombuffer(b"".join(file.chunks()), np.uint8)
        return {"begins": np.flatnonzero(data == 10) + 1, "size": np.array(len(data))}


def fits(arrays: Any, size: int) -> bool:
    return True


BESIDE = StorageOptions(index_beside_data=True)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.txt").write_bytes(DATA)
    return tmp_path / "data" / "a.txt"


@pytest.fixture
def lines() -> Lines:
    return Lines()


def open_one(path: Path | str, storage: StorageOptions | None = None) -> File:
    return OpenFiles(find_files(path, storage))[0]


def assert_correct(index: dict[str, Any], data: bytes) -> None:
    assert sorted(index) == ["begins", "size"]
    assert index["size"] == len(data)
    expected = [offset + 1 for offset, byte in enumerate(data) if byte == 10]
    assert index["begins"].tolist() == expected
    assert index["begins"].dtype == np.int64


def indexes(folder: Path) -> list[Path]:
    """Return all files below a folder that are not data."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if path.suffix != ".txt"]


def cache() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"])


def test_an_index_is_built_once(path: Path, lines: Lines):
    for _ in range(3):
        assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    assert lines.num_built == 1


def test_an_index_is_saved_in_the_cache_for_this_user_only(path: Path, lines: Lines):
    umask = os.umask(0o002)
    try:
        for _ in range(2):
            assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    finally:
        os.umask(umask)
    assert lines.num_built == 1
    assert indexes(path.parent) == []
    (saved,) = indexes(cache())
    assert saved.parent == cache() / "gristmill" / "indexes"
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


def test_on_request_it_is_saved_beside_the_file_and_patterns_skip_it(path: Path, lines: Lines):
    load_index(open_one(path, BESIDE), "lines", lines, fits)
    assert indexes(path.parent) == [path.with_name("a.txt.lines.gristmill-index")]
    assert indexes(cache()) == []
    assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)  # used without asking
    assert lines.num_built == 1
    assert [ref.path for ref in find_files(path.with_name("*"))] == [str(path)]


def test_on_request_one_in_the_cache_is_copied_beside_the_file(path: Path, lines: Lines):
    load_index(open_one(path), "lines", lines, fits)
    load_index(open_one(path, BESIDE), "lines", lines, fits)
    assert indexes(path.parent) == [path.with_name("a.txt.lines.gristmill-index")]
    (cached,) = indexes(cache())
    cached.unlink()
    assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    assert lines.num_built == 1


def test_indexes_of_several_kinds_are_separate(path: Path, lines: Lines):
    load_index(open_one(path), "lines", lines, fits)
    other = load_index(open_one(path), "other", lambda file: {"x": np.arange(3)}, fits)
    assert list(other) == ["x"]
    assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    assert lines.num_built == 1


def test_an_index_that_was_renamed_to_another_kind_is_not_used(path: Path, lines: Lines):
    load_index(open_one(path, BESIDE), "other", lambda file: {"x": np.arange(3)}, fits)
    other = path.with_name("a.txt.other.gristmill-index")
    other.rename(path.with_name("a.txt.lines.gristmill-index"))
    assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    assert lines.num_built == 1


@pytest.mark.parametrize(
    "array",
    [
        np.arange(7, dtype=np.int64),
        np.zeros(0, np.int64),
        np.arange(12, dtype=np.uint8).reshape(3, 4),
        np.array(5),
        np.array([1.5, np.nan]),
        np.array([True, False]),
        np.array(["a", "ü"]),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
    ids=lambda array: f"{array.dtype}{array.shape}",
)
def test_arrays_are_restored_unchanged(path: Path, array: Any):
    for _ in range(2):
        index = load_index(open_one(path), "any", lambda file: {"x": array}, fits)
        assert index["x"].dtype == array.dtype
        np.testing.assert_array_equal(index["x"], array)


@pytest.mark.parametrize("name", ["file", "arr_0", "a/b", "__key__"])
def test_arrays_may_have_any_name(path: Path, name: str):
    for _ in range(2):
        index = load_index(open_one(path), "any", lambda file: {name: np.arange(3)}, fits)
        assert list(index) == [name]


def test_an_error_while_building_is_raised_and_leaves_no_file(path: Path):
    def build(file: File) -> dict[str, Any]:
        raise KeyError("no such key")

    with pytest.raises(KeyError, match="no such key"):
        load_index(open_one(path), "lines", build, fits)
    assert indexes(path.parent) == indexes(cache()) == []


# Outdated and damaged indexes.


@pytest.mark.parametrize("other", [DATA + b"\n", DATA[:-7], DATA[::-1]], ids=len)
def test_the_index_of_a_changed_file_is_rebuilt(path: Path, lines: Lines, other: bytes):
    load_index(open_one(path), "lines", lines, fits)
    before = path.stat().st_mtime_ns
    path.write_bytes(other)
    os.utime(path, ns=(before + 1000, before + 1000))
    for _ in range(2):
        assert_correct(load_index(open_one(path), "lines", lines, fits), other)
    assert lines.num_built == 2


def test_an_index_that_is_damaged_anywhere_is_rebuilt(path: Path, lines: Lines):
    load_index(open_one(path), "lines", lines, fits)
    (saved,) = indexes(cache())
    intact = saved.read_bytes()
    offsets = [*range(0, len(intact), 97), len(intact) - 1]
    for number, offset in enumerate(offsets):
        saved.write_bytes(intact[:offset] + bytes([intact[offset] ^ 4]) + intact[offset + 1 :])
        assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
        assert lines.num_built == number + 2, f"byte {offset}"
    assert saved.read_bytes() == intact


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.999])
def test_a_truncated_index_is_rebuilt(path: Path, lines: Lines, share: float):
    load_index(open_one(path), "lines", lines, fits)
    (saved,) = indexes(cache())
    os.truncate(saved, int(saved.stat().st_size * share))
    assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    assert lines.num_built == 2


def test_a_folder_with_the_name_of_an_index_does_no_harm(path: Path, lines: Lines):
    path.with_name("a.txt.lines.gristmill-index").mkdir()
    for _ in range(2):
        assert_correct(load_index(open_one(path, BESIDE), "lines", lines, fits), DATA)
    assert lines.num_built == 1


# Where an index is saved.

BUILD = f"""
import os, sys
import numpy as np
import zipfile; "".encode("cp437")  # needed to save an index
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill._io.index import load_index
from gristmill.options import StorageOptions
{DROP_PRIVILEGES}
num_built = 0
def build(file):
    global num_built
    num_built += 1
    return {{"x": np.arange(file.ref.size)}}
for _ in range(2):
    files = OpenFiles(find_files(sys.argv[1], StorageOptions(index_beside_data=True)))
    assert len(load_index(files[0], "lines", build, lambda *_: True)["x"]) == 4
print(num_built)
"""


@pytest.fixture
def read_only_folder() -> Iterator[Path]:
    """Return a read-only folder with a file that all users may read."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.txt").write_bytes(b"data")
        (Path(name) / "cache").mkdir()
        (Path(name) / "cache").chmod(0o777)
        Path(name).chmod(0o555)
        yield Path(name)
        Path(name).chmod(0o755)


def test_the_index_of_a_file_in_a_read_only_folder_is_saved_in_the_cache(read_only_folder: Path):
    cache = read_only_folder / "cache"
    assert run(BUILD, read_only_folder / "a.txt", environ={"XDG_CACHE_HOME": str(cache)}) == b"1\n"
    assert len(indexes(cache)) == 1


def test_an_index_that_cannot_be_saved_is_built_each_time(read_only_folder: Path):
    nowhere = {"XDG_CACHE_HOME": str(read_only_folder / "nowhere")}
    assert run(BUILD, read_only_folder / "a.txt", environ=nowhere) == b"2\n"


def test_a_user_without_a_home_folder_can_build_an_index(read_only_folder: Path):
    # As in a container with another user id: `docker run --user 54321`.
    if os.getuid():
        pytest.skip("only root can become a user without a home folder")
    without_home = "del os.environ['HOME']\nnum_built = 0"
    script = BUILD.replace("65534", "54321").replace("num_built = 0", without_home, 1)
    environ = {"XDG_CACHE_HOME": "", "HOME": "/"}
    assert run(script, read_only_folder / "a.txt", environ=environ) in (b"1\n", b"2\n")


def test_users_that_may_read_the_file_may_read_the_index(path: Path, lines: Lines):
    path.chmod(0o644)
    load_index(open_one(path, BESIDE), "lines", lines, fits)
    mode = stat.S_IMODE(path.with_name("a.txt.lines.gristmill-index").stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    assert mode == 0o666 & ~umask


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_the_index_of_a_remote_file_is_saved_in_the_cache(
    request: pytest.FixtureRequest, lines: Lines, kind: str
):
    store = request.getfixturevalue(f"serve_{kind}")({"a.txt": DATA})
    assert_correct(
        load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines, fits), DATA
    )
    assert len(indexes(cache())) == 1
    store.server.reset_log()
    assert_correct(
        load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines, fits), DATA
    )
    assert store.gets() == []
    store.put("a.txt", DATA[::-1])
    index = load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines, fits)
    assert_correct(index, DATA[::-1])


def test_a_changed_file_that_only_has_a_date_is_indexed_again(serve_http: Serve, lines: Lines):
    store = serve_http({"a.txt": DATA}, sends_etags=False)
    load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines, fits)
    store.put("a.txt", DATA[::-1])
    index = load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines, fits)
    assert_correct(index, DATA[::-1])


# Concurrent builds.


def test_threads_that_build_at_the_same_time_all_get_the_index(path: Path, lines: Lines):
    together = threading.Barrier(8)

    def build(file: File) -> dict[str, Any]:
        index = lines(file)
        together.wait()
        return index

    with ThreadPoolExecutor(8) as threads:
        built = [threads.submit(load_index, open_one(path), "lines", build, fits) for _ in range(8)]
    for future in built:
        assert_correct(future.result(), DATA)
    assert len(indexes(cache())) == 1
    assert_correct(load_index(open_one(path), "lines", lines, fits), DATA)
    assert lines.num_built == 8


BUILD_AND_CHECK = """
import sys
import numpy as np
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
from gristmill._io.index import load_index
expected = np.arange(200_000)
sys.stdin.buffer.read()
for number in range(20):
    files = OpenFiles(find_files(sys.argv[1]))
    index = load_index(files[0], f"kind{number}", lambda file: {"x": expected}, lambda *_: True)
    assert (index["x"] == expected).all()
"""


def test_processes_that_build_at_the_same_time_all_get_the_index(path: Path):
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(run, BUILD_AND_CHECK, path) for _ in range(3)]:
            done.result()
    assert len(indexes(cache())) == 20
