"""Files are opened on first use, and the least recently used ones are closed."""

import gc
import os
import pickle
import random
from pathlib import Path

import pytest

from gristmill._io.open_files import LruCache, OpenFiles
from gristmill._io.paths import find_file, find_files
from tests.io.programs import run

DATA = random.Random(0).randbytes(10_000)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(DATA)
    return tmp_path / "a.bin"


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


OPEN_MANY = """
import resource, sys
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
files = OpenFiles(find_files(sys.argv[1] + "/*"))
for _ in range(2):
    print(sum(files[number].read_one(0, 1) == b"x" for number in range(len(files))))
"""


def test_more_files_can_be_read_than_can_be_open(tmp_path: Path):
    for number in range(400):
        (tmp_path / f"{number:03}").write_bytes(b"x")
    assert run(OPEN_MANY, tmp_path) == b"400\n400\n"


def test_files_are_closed_with_the_last_reference(path: Path):
    gc.collect()
    before = num_descriptors()
    files = OpenFiles(find_files([path] * 5))
    chunks = iter(files[4].chunks())
    assert [files[number].read_one(0, 1) for number in range(5)] == [DATA[:1]] * 5
    assert num_descriptors() == before + 5
    next(chunks)
    del files, chunks
    gc.collect()
    assert num_descriptors() == before


def test_files_are_opened_on_first_access(path: Path):
    before = num_descriptors()
    files = OpenFiles(find_files([path, path]))
    assert len(files) == 2
    assert files.refs == (find_file(path),) * 2
    assert num_descriptors() == before
    assert files[1] is files[1]
    with pytest.raises(IndexError):
        files[2]


def test_only_the_refs_of_files_are_pickled(path: Path):
    files = OpenFiles(find_files([path] * 2))
    closed = len(pickle.dumps(files))
    files[0].read_one(0, 9)
    again = pickle.loads(pickle.dumps(files))
    assert again.refs == files.refs
    assert again[1].read_one(0, 9) == DATA[:9]
    assert len(pickle.dumps(files)) == closed < 2000


def test_the_least_recently_used_value_is_dropped():
    created: list[int] = []

    def create(number: int) -> str:
        created.append(number)
        return str(number)

    cache = LruCache(create, max_size=2)
    assert [cache[number] for number in (0, 1, 0, 2)] == ["0", "1", "0", "2"]
    assert created == [0, 1, 2]
    assert cache[0] == "0"
    assert created == [0, 1, 2]
    assert cache[1] == "1"
    assert created == [0, 1, 2, 1]


def test_a_value_that_was_created_while_another_thread_created_it_is_shared():
    cache: LruCache[list[int]]

    def create(number: int) -> list[int]:
        if number not in created:  # another access, before this one has stored its value
            created.append(number)
            assert cache[number] == [number]
        return [number]

    created: list[int] = []
    cache = LruCache(create)
    assert cache[7] is cache[7]


def test_an_error_is_not_cached():
    def create(number: int) -> int:
        attempts.append(number)
        if len(attempts) == 1:
            raise OSError("busy")
        return number

    attempts: list[int] = []
    cache = LruCache(create)
    with pytest.raises(OSError, match="busy"):
        cache[3]
    assert cache[3] == 3
