import os
import pickle
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file, find_files
from gristmill.errors import FileError
from gristmill.options import StorageOptions
from tests.io.conftest import Serve
from tests.io.programs import command, run
from tests.io.servers import at_random, fails_with, resets_midway, returns_less
from tests.time_limits import PATIENCE_S

MB = 2**20
DATA = random.Random(0).randbytes(6 * MB + 5)


def open_one(address: str, storage: StorageOptions) -> File:
    return OpenFiles([find_file(address, storage)])[0]


def used(folder: Path) -> int:
    """Return the total size of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def nonempty_files(folder: Path) -> list[Path]:
    """Return the files below a folder that are not empty."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]


def test_cached_data_is_not_requested_again(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    ranges = [10, 2 * MB, 10, 5 * MB], [20, 3 * MB, 20, len(DATA)]
    expected = [DATA[start:stop] for start, stop in zip(*ranges, strict=True)]
    assert open_one(store.url("a.bin"), storage).read(*ranges) == expected
    store.server.reset_log()
    assert open_one(store.url("a.bin"), storage).read(*ranges) == expected
    assert open_one(store.url("a.bin"), storage).read([15], [18]) == [DATA[15:18]]
    assert store.gets() == []


def test_chunks_are_cached(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    assert b"".join(open_one(store.url("a.bin"), storage).chunks()) == DATA
    store.server.reset_log()
    assert b"".join(open_one(store.url("a.bin"), storage).chunks(5)) == DATA[5:]
    assert store.gets() == []


def test_files_of_a_store_in_memory_are_cached(
    put_in_memory: Callable[[dict[str, bytes]], str], tmp_path: Path
):
    root = put_in_memory({"a.bin": DATA})
    file = open_one(root + "a.bin", StorageOptions(cache_dir=tmp_path))
    assert file.read_one(7, 3 * MB) == DATA[7 : 3 * MB]
    assert used(tmp_path) >= 3 * MB - 7
    assert file.read_one(7, 3 * MB) == DATA[7 : 3 * MB]


def test_without_a_cache_folder_nothing_is_cached(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    file.read_one(0, 10)
    store.server.reset_log()
    file.read_one(0, 10)
    assert len(store.gets()) == 1
    assert nonempty_files(Path(os.environ["XDG_CACHE_HOME"])) == []


@pytest.mark.parametrize("name", ["~/cached", "relative"])
def test_the_cache_folder_may_be_relative_or_in_the_home_folder(
    serve_http: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = serve_http({"a.bin": DATA})
    open_one(store.url("a.bin"), store.storage(cache_dir=name)).read_one(0, 10)
    assert nonempty_files(tmp_path / name.removeprefix("~/"))


def test_a_changed_file_is_not_read_from_the_cache(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[:10]
    store.put("a.bin", DATA[::-1])
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[::-1][:10]


def test_a_file_with_a_changed_date_is_not_read_from_the_cache(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA}, sends_etags=False)
    storage = store.storage(cache_dir=tmp_path)
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[:10]
    store.put("a.bin", DATA[::-1])
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[::-1][:10]


def test_files_of_the_same_name_in_other_stores_are_cached_separately(
    serve_http: Serve, tmp_path: Path
):
    for data in (DATA, DATA[::-1]):
        store = serve_http({"a.bin": data})
        storage = store.storage(cache_dir=tmp_path)
        assert open_one(store.url("a.bin"), storage).read_one(0, 10) == data[:10]


def test_cached_data_is_complete_despite_faults(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    file = open_one(store.url("a.bin"), storage)
    store.server.faults = at_random(0.4, fails_with(503), resets_midway, returns_less)
    assert file.read_one(0, len(DATA)) == DATA
    store.server.reset_log()
    assert file.read_one(0, len(DATA)) == DATA
    assert store.gets() == []


# Damaged caches.


def empty(path: Path) -> None:
    path.write_bytes(b"")


def shorten(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def flip_first(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def flip_last(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))


def remove(path: Path) -> None:
    path.unlink()


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [empty, shorten, lengthen, flip_first, flip_last, remove, replace_by_folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_blocks_are_downloaded_again(
    serve_http: Serve, tmp_path: Path, damage: Callable[[Path], None]
):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path))
    file.read_one(0, len(DATA))
    for path in nonempty_files(tmp_path):
        damage(path)
    assert file.read_one(0, len(DATA)) == DATA


def test_the_cache_folder_may_disappear_at_any_time(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path / "cache"))
    file.read_one(0, len(DATA))
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    assert file.read_one(0, len(DATA)) == DATA
    assert nonempty_files(tmp_path / "cache")


def test_files_are_read_if_the_cache_folder_cannot_be_created(serve_http: Serve, tmp_path: Path):
    (tmp_path / "file").touch()
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path / "file" / "cache"))
    assert file.read_one(0, len(DATA)) == DATA


def test_a_local_copy_that_cannot_be_written_is_an_error(serve_http: Serve, tmp_path: Path):
    (tmp_path / "file").touch()
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path / "file" / "cache"))
    with pytest.raises(FileError, match="`cache_dir`"):
        file.local_path()


# The limit.


@pytest.mark.parametrize("limit", [0, 1, MB // 2, MB, MB + 100, 3 * MB, 4 * MB + 1])
def test_the_cache_never_exceeds_its_limit(serve_http: Serve, tmp_path: Path, limit: int):
    names = [f"{number}.bin" for number in range(3)]
    store = serve_http(dict.fromkeys(names, DATA))
    refs = find_files(
        [store.url(name) for name in names], store.storage(cache_dir=tmp_path, cache_bytes=limit)
    )
    files, rng = OpenFiles(refs), random.Random(limit)
    for _ in range(25):
        start = rng.randrange(len(DATA))
        stop = min(start + rng.randrange(2 * MB), len(DATA))
        assert files[rng.randrange(3)].read_one(start, stop) == DATA[start:stop]
        assert used(tmp_path) <= limit


def test_data_below_the_limit_stays_in_the_cache(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path, cache_bytes=8 * MB))
    file.read_one(0, len(DATA))
    store.server.reset_log()
    file.read_one(0, len(DATA))
    assert store.gets() == []


def test_the_least_recently_used_data_is_evicted_first(serve_http: Serve, tmp_path: Path):
    names = ["a.bin", "b.bin", "c.bin", "d.bin"]
    store = serve_http({name: bytes(MB) for name in names})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=3 * MB + 500_000)
    files = OpenFiles(find_files([store.url(name) for name in names], storage))
    for number in (0, 1, 2, 0, 3):  # `b` is the least recently used when `d` is added
        files[number].read_one(0, 10)
    store.server.reset_log()
    files[0].read_one(0, 10)
    files[3].read_one(0, 10)
    assert store.gets() == []
    files[1].read_one(0, 10)
    assert len(store.gets("b.bin")) == 1


def test_local_copies_count_towards_the_limit(serve_http: Serve, tmp_path: Path):
    names = ["a.bin", "b.bin", "c.bin"]
    store = serve_http({name: bytes(2 * MB) for name in names})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=5 * MB)
    for name in names:
        path = open_one(store.url(name), storage).local_path()
        assert path.read_bytes() == bytes(2 * MB)
        assert used(tmp_path) <= 5 * MB


# Sharing between processes and threads.

READ_ALL = """
import pickle, random, sys
from gristmill._io.open_files import OpenFiles
files, rng = pickle.load(sys.stdin.buffer), random.Random(sys.argv[1])
sizes = [ref.size for ref in files.refs]
for _ in range(int(sys.argv[2])):
    number = rng.randrange(len(files))
    start = rng.randrange(sizes[number])
    stop = min(start + 500_000, sizes[number])
    assert files[number].read_one(start, stop) == bytes([number]) * (stop - start)
"""


def test_another_process_uses_the_cached_data(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": bytes(MB)})
    storage = store.storage(cache_dir=tmp_path)
    files = OpenFiles(find_files(store.url("a.bin"), storage))
    files[0].read_one(0, MB)
    store.server.reset_log()
    run(READ_ALL, "seed", 3, stdin=pickle.dumps(files))
    assert store.gets() == []


def test_processes_share_the_limit(serve_http: Serve, tmp_path: Path):
    limit = 6 * MB
    store = serve_http({f"{number}.bin": bytes([number]) * 3 * MB for number in range(4)})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=limit)
    refs = find_files([store.url(f"{number}.bin") for number in range(4)], storage)
    pickled = pickle.dumps(OpenFiles(refs))
    pipe = subprocess.PIPE
    programs = [
        subprocess.Popen([*command(READ_ALL), seed, "40"], stdin=pipe, stderr=pipe)
        for seed in "abc"
    ]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(pickled)
        program.stdin.close()
        program.stdin = None
    for program in programs:
        _, stderr = program.communicate(timeout=PATIENCE_S)
        assert stderr == b""
    assert used(tmp_path) <= limit


def test_two_alternating_processes_share_the_limit(serve_http: Serve, tmp_path: Path):
    """Data that another process has written since the last count is counted."""
    limit = 4 * MB
    store = serve_http({f"{number}.bin": bytes([number]) * 3 * MB for number in range(2)})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=limit)
    refs = find_files([store.url(f"{number}.bin") for number in range(2)], storage)
    mine = OpenFiles(refs[:1])[0]
    mine.read_one(0, MB)
    run(READ_ALL, "seed", 20, stdin=pickle.dumps(OpenFiles(refs)))
    assert used(tmp_path) <= limit
    mine.read_one(MB, 3 * MB)
    assert used(tmp_path) <= limit


def test_threads_share_the_cache(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path, cache_bytes=3 * MB))

    def read(number: int) -> bool:
        start = random.Random(number).randrange(len(DATA))
        return file.read_one(start, min(start + MB, len(DATA))) == DATA[start : start + MB]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(40)))
    assert used(tmp_path) <= 3 * MB
    assert list(tmp_path.rglob(".part-*")) == []
