"""A cache folder deletes only what the cache wrote, and believes nothing that it finds there."""

import fcntl
import logging
import os
import random
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gristmill._io.file import File, FileRef
from gristmill._io.folders import file_lock
from gristmill._io.folders.cache import download
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill.errors import PlanError
from gristmill.options import StorageOptions
from tests.io.conftest import Serve
from tests.io.programs import run
from tests.io.servers import Store, always, ignores_range

MB = 2**20
DATA = random.Random(0).randbytes(4 * MB + 5)


def open_one(store: Store, folder: Path, **options: int) -> File:
    storage = store.storage(cache_dir=folder, num_retries=0, **options)
    return OpenFiles([find_file(store.url("a.bin"), storage)])[0]


def test_files_of_the_user_in_the_cache_folder_are_never_deleted(serve_http: Serve, tmp_path: Path):
    mine = [tmp_path / "thesis.tex", tmp_path / "3f" / "00000001", tmp_path / ".part-old"]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes(MB))
        os.utime(path, (0, 0))
    file = open_one(serve_http({"a.bin": DATA}), tmp_path, cache_bytes=2 * MB)
    assert file.read_one(0, len(DATA)) == DATA
    assert [path.stat().st_size for path in mine] == [MB] * 3


def test_files_of_others_inside_the_cache_are_never_deleted(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    open_one(store, tmp_path, cache_bytes=3 * MB).read_one(0, 10)
    cache = tmp_path / "gristmill-cache"
    (cache / "notes.txt").write_bytes(bytes(4 * MB))
    block = next(cache.rglob("00000000"))
    (block.parent / "notes.txt").write_bytes(bytes(4 * MB))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "00000000").write_bytes(bytes(4 * MB))
    (cache / "aa").mkdir(exist_ok=True)  # the block itself may be in it
    (cache / "aa" / ("a" * 32)).symlink_to(outside)
    (cache / ".used").unlink()
    open_one(store, tmp_path, cache_bytes=3 * MB).read_one(0, len(DATA))
    assert (cache / "notes.txt").exists()
    assert (block.parent / "notes.txt").exists()
    assert (outside / "00000000").exists()


def test_a_folder_with_files_of_others_is_refused_as_a_cache(serve_http: Serve, tmp_path: Path):
    cache = tmp_path / "gristmill-cache"
    cache.mkdir()
    (cache / "thesis.tex").touch()
    with pytest.raises(PlanError, match=r"was not created by gristmill.* another `cache_dir`"):
        open_one(serve_http({"a.bin": DATA}), tmp_path)


def as_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def as_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def as_sparse_terabyte(path: Path) -> None:
    os.truncate(path, 2**40)


@pytest.mark.parametrize("damage", [as_fifo, as_link, as_sparse_terabyte])
def test_no_file_of_a_cache_blocks_or_exhausts_the_memory(
    serve_http: Serve, tmp_path: Path, damage: Callable[[Path], None]
):
    store = serve_http({"a.bin": DATA})
    open_one(store, tmp_path).read_one(0, len(DATA))
    paths = [path for path in tmp_path.rglob("*") if path.is_file()]
    file = open_one(store, tmp_path)  # a cache without its mark is refused
    for path in paths:
        damage(path)
    assert file.read_one(0, len(DATA)) == DATA


def test_mutated_caches_never_change_the_data(serve_http: Serve, tmp_path: Path):
    rng = random.Random(0)
    store = serve_http({"a.bin": DATA})
    open_one(store, tmp_path).read_one(0, len(DATA))
    for _ in range(40):
        path = rng.choice([path for path in tmp_path.rglob("0000*") if path.is_file()])
        data = bytearray(path.read_bytes())
        for _ in range(rng.choice([1, 1, 10])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data[: rng.choice([len(data), rng.randrange(1, len(data))])])
        assert open_one(store, tmp_path).read_one(0, len(DATA)) == DATA


@pytest.mark.parametrize("name", ["..", ".lock", ".part-1", "é" * 200, "a\x1b[31m.bin"])
def test_the_name_of_a_file_cannot_lead_out_of_the_cache(tmp_path: Path, name: str):
    storage = StorageOptions(cache_dir=tmp_path)
    ref = FileRef(path=f"http://h/{name}", size=3, version="", is_local=False, storage=storage)
    path = download(ref, lambda sink: sink.write(b"abc"))
    assert path.read_bytes() == b"abc"
    assert path.parent.name == "whole"
    assert path.name.isprintable()
    assert not path.name.startswith(".")


# Users without a home folder.

WITHOUT_HOME = """
import os, sys, tempfile
from gristmill._io.folders.cache import cache_folder
os.environ.pop("HOME", None)
os.setgid(54321), os.setuid(54321)
tempfile.tempdir = sys.argv[1]
try:
    folder = cache_folder()
    print(oct(folder.stat().st_mode & 0o777))
except PermissionError as error:
    print("refused", "XDG_CACHE_HOME" in str(error))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("owner", "mode", "expected"),
    [
        (None, None, b"0o700\n"),
        (54321, 0o700, b"0o700\n"),
        (54321, 0o755, b"0o700\n"),
        (54321, 0o777, b"refused True\n"),
        (0, 0o777, b"refused True\n"),
        (0, 0o755, b"refused True\n"),
    ],
)
def test_the_cache_of_a_user_without_a_home_folder_belongs_to_the_user(
    tmp_path: Path, owner: int | None, mode: int | None, expected: bytes
):
    for parent in list(tmp_path.parents)[:3]:
        parent.chmod(parent.stat().st_mode | 0o011)  # pytest's folders are private
    tmp_path.chmod(0o1777)
    if owner is not None and mode is not None:
        folder = tmp_path / "gristmill-54321"
        folder.mkdir()
        os.chown(folder, owner, owner)
        folder.chmod(mode)
    environ = {"XDG_CACHE_HOME": "", "HOME": "/"}
    assert run(WITHOUT_HOME, tmp_path, environ=environ) == expected


# Locks.


def test_a_lock_of_another_process_is_logged(
    serve_http: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_lock, "LOG_AFTER_S", 0.01)
    file = open_one(serve_http({"a.bin": DATA}), tmp_path)
    file.read_one(0, 10)
    with open(tmp_path / "gristmill-cache" / ".used", "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        messages: list[str] = []

        class Release(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                messages.append(record.getMessage())
                fcntl.flock(lock, fcntl.LOCK_UN)

        handler = Release()
        file_lock.logger.addHandler(handler)
        try:
            assert file.read_one(2 * MB, 2 * MB + 10) == DATA[2 * MB : 2 * MB + 10]
        finally:
            file_lock.logger.removeHandler(handler)
    assert "has held the lock" in messages[0]


def test_a_local_copy_that_is_a_link_is_replaced(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA}, always(ignores_range))
    path = open_one(store, tmp_path).local_path()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(bytes(len(DATA)))
    path.unlink()
    path.symlink_to(elsewhere)
    assert open_one(store, tmp_path).local_path().read_bytes() == DATA
    assert stat.S_ISREG(os.lstat(path).st_mode)
    assert elsewhere.read_bytes() == bytes(len(DATA))
