import os
import pickle
import random
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gristmill.errors import FileError
from gristmill.files import File, OpenFiles, find_file, find_files
from gristmill.options import StorageOptions
from tests.files.conftest import Serve
from tests.files.programs import command, run
from tests.files.servers import PATIENCE_S, answers, by_chance, cuts, gives_less

MB = 2**20
DATA = random.Random(0).randbytes(6 * MB + 5)


def open_one(address: str, storage: StorageOptions) -> File:
    return OpenFiles([find_file(address, storage)])[0]


def used(folder: Path) -> int:
    """Give how many bytes are in a folder and below."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def kept(folder: Path) -> list[Path]:
    """Give the files that hold something."""
    return [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]


def test_what_was_read_is_not_asked_for_again(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    pieces = [10, 2 * MB, 10, 5 * MB], [20, 3 * MB, 20, len(DATA)]
    expected = [DATA[start:stop] for start, stop in zip(*pieces, strict=True)]
    assert open_one(store.url("a.bin"), storage).read(*pieces) == expected
    store.server.forget()
    assert open_one(store.url("a.bin"), storage).read(*pieces) == expected
    assert open_one(store.url("a.bin"), storage).read([15], [18]) == [DATA[15:18]]
    assert store.gets() == []


def test_chunks_are_kept_too(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    assert b"".join(open_one(store.url("a.bin"), storage).chunks()) == DATA
    store.server.forget()
    assert b"".join(open_one(store.url("a.bin"), storage).chunks(5)) == DATA[5:]
    assert store.gets() == []


def test_files_in_memory_are_kept_like_any(
    put_in_memory: Callable[[dict[str, bytes]], str], tmp_path: Path
):
    root = put_in_memory({"a.bin": DATA})
    file = open_one(root + "a.bin", StorageOptions(cache_dir=tmp_path))
    assert file.read_one(7, 3 * MB) == DATA[7 : 3 * MB]
    assert used(tmp_path) >= 3 * MB - 7
    assert file.read_one(7, 3 * MB) == DATA[7 : 3 * MB]


def test_without_a_folder_nothing_is_kept(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    file.read_one(0, 10)
    store.server.forget()
    file.read_one(0, 10)
    assert len(store.gets()) == 1
    assert kept(Path(os.environ["XDG_CACHE_HOME"])) == []


@pytest.mark.parametrize("name", ["~/kept", "relative"])
def test_the_folder_is_made_where_it_is_said(
    serve_http: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    store = serve_http({"a.bin": DATA})
    open_one(store.url("a.bin"), store.storage(cache_dir=name)).read_one(0, 10)
    assert kept(tmp_path / name.removeprefix("~/"))


def test_a_file_that_changed_is_not_read_from_the_folder(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[:10]
    store.put("a.bin", DATA[::-1])
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[::-1][:10]


def test_a_file_that_changed_by_its_date_alone_is_not_read_from_the_folder(
    serve_http: Serve, tmp_path: Path
):
    store = serve_http({"a.bin": DATA}, tells_tags=False)
    storage = store.storage(cache_dir=tmp_path)
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[:10]
    store.put("a.bin", DATA[::-1])
    assert open_one(store.url("a.bin"), storage).read_one(0, 10) == DATA[::-1][:10]


def test_files_of_the_same_name_in_other_stores_are_other_files(serve_http: Serve, tmp_path: Path):
    for data in (DATA, DATA[::-1]):
        store = serve_http({"a.bin": data})
        storage = store.storage(cache_dir=tmp_path)
        assert open_one(store.url("a.bin"), storage).read_one(0, 10) == data[:10]


def test_what_is_kept_is_whole_in_spite_of_faults(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    file = open_one(store.url("a.bin"), storage)
    store.server.faults = by_chance(0.4, answers(503), cuts, gives_less)
    assert file.read_one(0, len(DATA)) == DATA
    store.server.forget()
    assert file.read_one(0, len(DATA)) == DATA
    assert store.gets() == []


# Damage.


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


def make_a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = [empty, shorten, lengthen, flip_first, flip_last, remove, make_a_folder]


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_is_damaged_is_fetched_again(
    serve_http: Serve, tmp_path: Path, damage: Callable[[Path], None]
):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path))
    file.read_one(0, len(DATA))
    for path in kept(tmp_path):
        damage(path)
    assert file.read_one(0, len(DATA)) == DATA


def test_the_folder_may_vanish_at_any_time(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path / "cache"))
    file.read_one(0, len(DATA))
    (tmp_path / "cache").rename(tmp_path / "elsewhere")
    assert file.read_one(0, len(DATA)) == DATA
    assert kept(tmp_path / "cache")


def test_a_folder_that_cannot_be_is_no_obstacle_to_reading(serve_http: Serve, tmp_path: Path):
    (tmp_path / "file").touch()
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path / "file" / "cache"))
    assert file.read_one(0, len(DATA)) == DATA


def test_a_copy_that_cannot_be_made_is_told(serve_http: Serve, tmp_path: Path):
    (tmp_path / "file").touch()
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path / "file" / "cache"))
    with pytest.raises(FileError, match="`cache_dir`"):
        file.local_path()


# The limit.


@pytest.mark.parametrize("limit", [0, 1, MB // 2, MB, MB + 100, 3 * MB, 4 * MB + 1])
def test_the_folder_never_holds_more_than_the_limit(serve_http: Serve, tmp_path: Path, limit: int):
    names = [f"{number}.bin" for number in range(3)]
    store = serve_http(dict.fromkeys(names, DATA))
    refs = find_files(
        [store.url(name) for name in names], store.storage(cache_dir=tmp_path, cache_bytes=limit)
    )
    files, chance = OpenFiles(refs), random.Random(limit)
    for _ in range(25):
        start = chance.randrange(len(DATA))
        stop = min(start + chance.randrange(2 * MB), len(DATA))
        assert files[chance.randrange(3)].read_one(start, stop) == DATA[start:stop]
        assert used(tmp_path) <= limit


def test_what_fits_is_kept_up_to_the_limit(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path, cache_bytes=8 * MB))
    file.read_one(0, len(DATA))
    store.server.forget()
    file.read_one(0, len(DATA))
    assert store.gets() == []


def test_what_was_not_used_for_longest_goes_first(serve_http: Serve, tmp_path: Path):
    names = ["a.bin", "b.bin", "c.bin", "d.bin"]
    store = serve_http({name: bytes(MB) for name in names})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=3 * MB + 500_000)
    files = OpenFiles(find_files([store.url(name) for name in names], storage))
    for number in (0, 1, 2, 0, 3):  # `b` is what was not used for longest when `d` comes
        files[number].read_one(0, 10)
    store.server.forget()
    files[0].read_one(0, 10)
    files[3].read_one(0, 10)
    assert store.gets() == []
    files[1].read_one(0, 10)
    assert len(store.gets("b.bin")) == 1


def test_a_copy_counts_too(serve_http: Serve, tmp_path: Path):
    names = ["a.bin", "b.bin", "c.bin"]
    store = serve_http({name: bytes(2 * MB) for name in names})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=5 * MB)
    for name in names:
        path = open_one(store.url(name), storage).local_path()
        assert path.read_bytes() == bytes(2 * MB)
        assert used(tmp_path) <= 5 * MB


# Others who share it.

READ_ALL = """
import pickle, random, sys
from gristmill.files import OpenFiles
files, chance = pickle.load(sys.stdin.buffer), random.Random(sys.argv[1])
sizes = [ref.size for ref in files.refs]
for _ in range(int(sys.argv[2])):
    number = chance.randrange(len(files))
    start = chance.randrange(sizes[number])
    stop = min(start + 500_000, sizes[number])
    assert files[number].read_one(start, stop) == bytes([number]) * (stop - start)
"""


def test_another_process_finds_what_was_kept(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": bytes(MB)})
    storage = store.storage(cache_dir=tmp_path)
    files = OpenFiles(find_files(store.url("a.bin"), storage))
    files[0].read_one(0, MB)
    store.server.forget()
    run(READ_ALL, "seed", 3, given=pickle.dumps(files))
    assert store.gets() == []


def test_processes_share_the_limit(serve_http: Serve, tmp_path: Path):
    limit = 6 * MB
    store = serve_http({f"{number}.bin": bytes([number]) * 3 * MB for number in range(4)})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=limit)
    refs = find_files([store.url(f"{number}.bin") for number in range(4)], storage)
    given = pickle.dumps(OpenFiles(refs))
    pipe = subprocess.PIPE
    programs = [
        subprocess.Popen([*command(READ_ALL), seed, "40"], stdin=pipe, stderr=pipe)
        for seed in "abc"
    ]
    for program in programs:
        assert program.stdin is not None
        program.stdin.write(given)
        program.stdin.close()
        program.stdin = None
    for program in programs:
        _, complaints = program.communicate(timeout=3 * PATIENCE_S)
        assert complaints == b""
    assert used(tmp_path) <= limit


def test_two_readers_in_turn_share_the_limit(serve_http: Serve, tmp_path: Path):
    """What another has written since is counted."""
    limit = 4 * MB
    store = serve_http({f"{number}.bin": bytes([number]) * 3 * MB for number in range(2)})
    storage = store.storage(cache_dir=tmp_path, cache_bytes=limit)
    refs = find_files([store.url(f"{number}.bin") for number in range(2)], storage)
    mine = OpenFiles(refs[:1])[0]
    mine.read_one(0, MB)
    run(READ_ALL, "seed", 20, given=pickle.dumps(OpenFiles(refs)))
    assert used(tmp_path) <= limit
    mine.read_one(MB, 3 * MB)
    assert used(tmp_path) <= limit


def test_threads_share_the_folder(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path, cache_bytes=3 * MB))

    def read(number: int) -> bool:
        start = random.Random(number).randrange(len(DATA))
        return file.read_one(start, min(start + MB, len(DATA))) == DATA[start : start + MB]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(40)))
    assert used(tmp_path) <= 3 * MB
    assert list(tmp_path.rglob(".part-*")) == []
