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

from gristmill.files import File, OpenFiles, find_files, load_index
from gristmill.options import StorageOptions
from tests.files.conftest import Serve
from tests.files.programs import AS_NOBODY, run

DATA = random.Random(0).randbytes(100_000)


class Lines:
    """Builds an index of where lines start, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.num_built = 0

    def __call__(self, file: File) -> dict[str, Any]:
        self.num_built += 1
        data = np.frombuffer(b"".join(file.chunks()), np.uint8)
        return {"starts": np.flatnonzero(data == 10) + 1, "size": np.array(len(data))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_bytes(DATA)
    return tmp_path / "a.txt"


@pytest.fixture
def lines() -> Lines:
    return Lines()


def open_one(path: Path | str, storage: StorageOptions | None = None) -> File:
    return OpenFiles(find_files(path, storage))[0]


def assert_right(index: dict[str, Any], data: bytes) -> None:
    assert sorted(index) == ["size", "starts"]
    assert index["size"] == len(data)
    expected = [place + 1 for place, byte in enumerate(data) if byte == 10]
    assert index["starts"].tolist() == expected
    assert index["starts"].dtype == np.int64


def indexes(folder: Path) -> list[Path]:
    """Give all files in a folder and below that are no data."""
    found = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in found if path.suffix != ".txt"]


def cache() -> Path:
    return Path(os.environ["XDG_CACHE_HOME"])


def test_an_index_is_built_once(path: Path, lines: Lines):
    for _ in range(3):
        assert_right(load_index(open_one(path), "lines", lines), DATA)
    assert lines.num_built == 1


def test_it_is_kept_beside_the_file_and_a_pattern_does_not_find_it(path: Path, lines: Lines):
    load_index(open_one(path), "lines", lines)
    assert indexes(path.parent) == [path.with_name("a.txt.lines.gristmill-index")]
    assert indexes(cache()) == []
    assert [ref.path for ref in find_files(path.with_name("*"))] == [str(path)]


def test_kinds_are_kept_apart(path: Path, lines: Lines):
    load_index(open_one(path), "lines", lines)
    other = load_index(open_one(path), "other", lambda file: {"x": np.arange(3)})
    assert list(other) == ["x"]
    assert_right(load_index(open_one(path), "lines", lines), DATA)
    assert lines.num_built == 1


def test_an_index_that_was_renamed_to_another_kind_is_not_taken(path: Path, lines: Lines):
    load_index(open_one(path), "other", lambda file: {"x": np.arange(3)})
    path.with_name("a.txt.other.gristmill-index").rename(path.with_name("a.txt.lines-index"))
    assert_right(load_index(open_one(path), "lines", lines), DATA)


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
def test_arrays_come_back_as_they_were(path: Path, array: Any):
    for _ in range(2):
        index = load_index(open_one(path), "any", lambda file: {"x": array})
        assert index["x"].dtype == array.dtype
        np.testing.assert_array_equal(index["x"], array)


@pytest.mark.parametrize("name", ["file", "arr_0", "a/b", "__key__"])
def test_arrays_may_have_any_name(path: Path, name: str):
    for _ in range(2):
        index = load_index(open_one(path), "any", lambda file: {name: np.arange(3)})
        assert list(index) == [name]


def test_an_error_of_whoever_builds_comes_through_and_leaves_nothing(path: Path):
    def build(file: File) -> dict[str, Any]:
        raise KeyError("no such thing")

    with pytest.raises(KeyError, match="no such thing"):
        load_index(open_one(path), "lines", build)
    assert indexes(path.parent) == []


# Stale and damaged.


@pytest.mark.parametrize("other", [DATA + b"\n", DATA[:-7], DATA[::-1]], ids=len)
def test_an_index_of_a_file_that_changed_is_built_anew(path: Path, lines: Lines, other: bytes):
    load_index(open_one(path), "lines", lines)
    before = path.stat().st_mtime_ns
    path.write_bytes(other)
    os.utime(path, ns=(before + 1000, before + 1000))
    for _ in range(2):
        assert_right(load_index(open_one(path), "lines", lines), other)
    assert lines.num_built == 2


def test_an_index_that_is_damaged_anywhere_is_built_anew(path: Path, lines: Lines):
    load_index(open_one(path), "lines", lines)
    kept = path.with_name("a.txt.lines.gristmill-index")
    whole = kept.read_bytes()
    places = [*range(0, len(whole), 97), len(whole) - 1]
    for number, place in enumerate(places):
        kept.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        assert_right(load_index(open_one(path), "lines", lines), DATA)
        assert lines.num_built == number + 2, f"byte {place}"
    assert kept.read_bytes() == whole


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.999])
def test_an_index_that_was_cut_short_is_built_anew(path: Path, lines: Lines, share: float):
    load_index(open_one(path), "lines", lines)
    kept = path.with_name("a.txt.lines.gristmill-index")
    os.truncate(kept, int(kept.stat().st_size * share))
    assert_right(load_index(open_one(path), "lines", lines), DATA)
    assert lines.num_built == 2


def test_a_folder_in_the_place_of_an_index_is_no_obstacle(path: Path, lines: Lines):
    path.with_name("a.txt.lines.gristmill-index").mkdir()
    for _ in range(2):
        assert_right(load_index(open_one(path), "lines", lines), DATA)
    assert lines.num_built == 1


# Where it may be written.

BUILD = f"""
import os, sys
import numpy as np
import zipfile; "".encode("cp437")  # what it takes to keep an index
from gristmill.files import OpenFiles, find_files, load_index
{AS_NOBODY}
num_built = 0
def build(file):
    global num_built
    num_built += 1
    return {{"x": np.arange(file.ref.size)}}
for _ in range(2):
    assert len(load_index(OpenFiles(find_files(sys.argv[1]))[0], "lines", build)["x"]) == 4
print(num_built)
"""


@pytest.fixture
def closed_folder() -> Iterator[Path]:
    """Give a folder with a file that anybody may read and nobody may write to."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "a.txt").write_bytes(b"data")
        (Path(name) / "cache").mkdir()
        (Path(name) / "cache").chmod(0o777)
        Path(name).chmod(0o555)
        yield Path(name)
        Path(name).chmod(0o755)


def test_beside_a_file_in_a_folder_that_is_closed_it_is_kept_in_the_cache(closed_folder: Path):
    cache = closed_folder / "cache"
    assert run(BUILD, closed_folder / "a.txt", environ={"XDG_CACHE_HOME": str(cache)}) == b"1\n"
    assert len(indexes(cache)) == 1


def test_where_it_cannot_be_kept_at_all_it_is_built_each_time(closed_folder: Path):
    nowhere = {"XDG_CACHE_HOME": str(closed_folder / "nowhere")}
    assert run(BUILD, closed_folder / "a.txt", environ=nowhere) == b"2\n"


def test_a_user_without_a_home_is_no_obstacle(closed_folder: Path):
    # As in a container that runs with a number of its own: `docker run --user 54321`.
    if os.getuid():
        pytest.skip("becoming a user without a home takes root")
    homeless = "del os.environ['HOME']\nnum_built = 0"
    script = BUILD.replace("65534", "54321").replace("num_built = 0", homeless, 1)
    environ = {"XDG_CACHE_HOME": "", "HOME": "/"}
    assert run(script, closed_folder / "a.txt", environ=environ) in (b"1\n", b"2\n")


def test_others_may_read_the_index_who_may_read_the_file(path: Path, lines: Lines):
    path.chmod(0o644)
    load_index(open_one(path), "lines", lines)
    mode = stat.S_IMODE(path.with_name("a.txt.lines.gristmill-index").stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    assert mode == 0o666 & ~umask


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_the_index_of_a_file_in_a_store_is_kept_in_the_cache(
    request: pytest.FixtureRequest, lines: Lines, kind: str
):
    store = request.getfixturevalue(f"serve_{kind}")({"a.txt": DATA})
    assert_right(load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines), DATA)
    assert len(indexes(cache())) == 1
    store.server.forget()
    assert_right(load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines), DATA)
    assert store.gets() == []
    store.put("a.txt", DATA[::-1])
    index = load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines)
    assert_right(index, DATA[::-1])


def test_a_changed_file_that_tells_its_date_alone_is_indexed_anew(serve_http: Serve, lines: Lines):
    store = serve_http({"a.txt": DATA}, tells_tags=False)
    load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines)
    store.put("a.txt", DATA[::-1])
    index = load_index(open_one(store.url("a.txt"), store.storage()), "lines", lines)
    assert_right(index, DATA[::-1])


# Several at the same time.


def test_threads_that_build_at_the_same_time_all_get_it(path: Path, lines: Lines):
    together = threading.Barrier(8)

    def build(file: File) -> dict[str, Any]:
        index = lines(file)
        together.wait()
        return index

    with ThreadPoolExecutor(8) as threads:
        built = [threads.submit(load_index, open_one(path), "lines", build) for _ in range(8)]
    for one in built:
        assert_right(one.result(), DATA)
    assert indexes(path.parent) == [path.with_name("a.txt.lines.gristmill-index")]
    assert_right(load_index(open_one(path), "lines", lines), DATA)
    assert lines.num_built == 8


BUILD_AND_CHECK = """
import sys
import numpy as np
from gristmill.files import OpenFiles, find_files, load_index
expected = np.arange(200_000)
sys.stdin.buffer.read()
for number in range(20):
    files = OpenFiles(find_files(sys.argv[1]))
    index = load_index(files[0], f"kind{number}", lambda file: {"x": expected})
    assert (index["x"] == expected).all()
"""


def test_processes_that_build_at_the_same_time_all_get_it(path: Path):
    with ThreadPoolExecutor(3) as threads:
        for done in [threads.submit(run, BUILD_AND_CHECK, path) for _ in range(3)]:
            done.result()
    assert len(indexes(path.parent)) == 20
