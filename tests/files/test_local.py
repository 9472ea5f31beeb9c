import gc
import os
import pickle
import random
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    ForbiddenFileError,
    MissingFileError,
)
from gristmill.files import File, OpenFiles, find_file, find_files
from tests.files.programs import AS_NOBODY, run

MB = 2**20
DATA = random.Random(0).randbytes(9 * MB + 17)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(DATA)
    return tmp_path / "a.bin"


@pytest.fixture(scope="module")
def same() -> Iterator[File]:
    """Give one open file for all examples."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(DATA)
        file.flush()
        yield open_one(file.name)


def open_one(path: Path | str) -> File:
    return OpenFiles(find_files(path))[0]


def num_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@st.composite
def spans(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Give any pieces: in any order, apart, adjacent, overlapping, equal, empty."""
    places = st.integers(0, len(DATA))
    near = st.builds(lambda at, more: (at, min(at + more, len(DATA))), places, st.integers(0, 9000))
    anywhere = st.tuples(places, places).map(lambda ends: (min(ends), max(ends)))
    pieces = draw(st.lists(near | anywhere, max_size=12))
    return draw(st.permutations(pieces + pieces[:2]))


@pytest.mark.parametrize("as_arrays", [False, True])
@settings(max_examples=60, deadline=None)
@given(pieces=spans())
def test_any_pieces_are_the_bytes_of_the_file(
    same: File, as_arrays: bool, pieces: list[tuple[int, int]]
):
    starts: Any = [start for start, _ in pieces]
    stops: Any = [stop for _, stop in pieces]
    if as_arrays:
        starts, stops = np.array(starts, np.int64), np.array(stops, np.int64)
    got = same.read(starts, stops)
    assert got == [DATA[start:stop] for start, stop in pieces]
    assert all(type(one) is bytes for one in got)


@settings(max_examples=30, deadline=None)
@given(ends=st.tuples(st.integers(0, len(DATA)), st.integers(0, len(DATA))).map(sorted))
def test_chunks_are_the_bytes_from_front_to_back(same: File, ends: list[int]):
    assert b"".join(same.chunks(*ends)) == DATA[ends[0] : ends[1]]


def test_chunks_are_small_against_the_memory_there_is(same: File):
    sizes = [len(chunk) for chunk in same.chunks()]
    assert sum(sizes) == len(DATA)
    assert max(sizes) <= 8 * MB


def test_an_empty_file_has_no_bytes(tmp_path: Path):
    (tmp_path / "empty").touch()
    file = open_one(tmp_path / "empty")
    assert file.read([0, 0], [0, 0]) == [b"", b""]
    assert list(file.chunks()) == []


def test_places_beyond_four_gigabytes_are_places(tmp_path: Path):
    far = 5 * 2**30
    with (tmp_path / "sparse").open("wb") as file:
        file.seek(far)
        file.write(b"here")
    assert open_one(tmp_path / "sparse").read([far, 0], [far + 4, 4]) == [b"here", bytes(4)]


def test_the_local_path_is_the_path(path: Path):
    assert open_one(path).local_path() == path


def test_threads_may_share_a_file(path: Path):
    file = open_one(path)

    def read(number: int) -> bool:
        chance = random.Random(number)
        starts = [chance.randrange(len(DATA) - 5000) for _ in range(50)]
        stops = [start + chance.randrange(5000) for start in starts]
        return file.read(starts, stops) == [DATA[a:b] for a, b in zip(starts, stops, strict=True)]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(64)))


# Files that are not what they were.


def test_a_piece_beyond_the_end_is_told_with_both_places(path: Path):
    size = len(DATA)
    told = rf"The file ends at byte {size:,}, and bytes up to {size + 9:,} are needed.* Copy it"
    with pytest.raises(CorruptFileError, match=told) as e:
        open_one(path).read([0, size - 1], [10, size + 9])
    assert e.value.path == str(path)


def test_chunks_beyond_the_end_are_told(path: Path):
    with pytest.raises(CorruptFileError, match="The file ends at byte"):
        list(open_one(path).chunks(0, len(DATA) + 1))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("change", ["append", "truncate", "rewrite", "touch"])
def test_a_file_that_changes_is_told(path: Path, is_open: bool, change: str):
    files = OpenFiles(find_files(path))
    if is_open:
        assert files[0].read_one(0, 9) == DATA[:9]
    before = path.stat().st_mtime_ns
    if change == "append":
        with path.open("ab") as file:
            file.write(b"more")
    elif change == "truncate":
        os.truncate(path, MB)
    elif change == "rewrite":
        path.write_bytes(DATA[::-1])
    os.utime(path, ns=(before + 10**9, before + 10**9))
    with pytest.raises(ChangedFileError, match=r"has changed since.*Make the source anew") as e:
        files[0].read_one(0, 9)
    assert e.value.path == str(path)
    assert OpenFiles(find_files(path))[0].read_one(0, 9) == path.read_bytes()[:9]


def test_a_file_that_changes_between_two_chunks_is_told(path: Path):
    chunks = iter(open_one(path).chunks())
    next(chunks)
    os.truncate(path, 5 * MB)
    with pytest.raises(ChangedFileError):
        list(chunks)


def test_a_file_that_another_took_the_place_of_is_read_on_as_it_was(path: Path):
    files = OpenFiles(find_files(path))
    files[0].read_one(0, 9)
    (path.parent / "other").write_bytes(DATA[::-1])
    os.replace(path.parent / "other", path)
    assert files[0].read_one(5, 9) == DATA[5:9]
    with pytest.raises(ChangedFileError):
        pickle.loads(pickle.dumps(files))[0].read_one(5, 9)


def test_a_deleted_file_is_missing_to_whoever_opens_it_then(path: Path):
    files = OpenFiles(find_files(path))
    files[0].read_one(0, 9)
    path.unlink()
    assert files[0].read_one(5, 9) == DATA[5:9]
    with pytest.raises(MissingFileError, match=r"There is no such file"):
        pickle.loads(pickle.dumps(files))[0].read_one(5, 9)


READ_WHAT_IS_FORBIDDEN = f"""
import os, sys
from gristmill.errors import ForbiddenFileError
from gristmill.files import OpenFiles, find_file, find_files
{AS_NOBODY}
for step in (lambda: OpenFiles([find_file(sys.argv[1])])[0], lambda: find_file(sys.argv[2])):
    try:
        step()
    except ForbiddenFileError as error:
        print(error)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Give a folder that anybody may look into; `tmp_path` is its owner's alone."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_that_may_not_be_read_is_told(public_folder: Path):
    secret, hidden = public_folder / "secret.bin", public_folder / "folder" / "hidden.bin"
    hidden.parent.mkdir()
    for path in (secret, hidden):
        path.write_bytes(b"data")
    secret.chmod(0)
    hidden.parent.chmod(0)
    told = run(READ_WHAT_IS_FORBIDDEN, secret, hidden).decode().splitlines()
    words = "This process may not read the file. Change its permissions, or run as its owner."
    assert told == [f"{words} ({secret})", f"{words} ({hidden})"]
    hidden.parent.chmod(0o755)


# Many files.

OPEN_MANY = """
import resource, sys
from gristmill.files import OpenFiles, find_files
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
files = OpenFiles(find_files(sys.argv[1] + "/*"))
for _ in range(2):
    print(sum(files[number].read_one(0, 1) == b"x" for number in range(len(files))))
"""


def test_more_files_may_be_read_than_may_be_open(tmp_path: Path):
    for number in range(400):
        (tmp_path / f"{number:03}").write_bytes(b"x")
    assert run(OPEN_MANY, tmp_path) == b"400\n400\n"


def test_too_many_open_files_are_told(tmp_path: Path):
    script = """
import os, resource, sys
from gristmill.errors import FileError
from gristmill.files import OpenFiles, find_files
files = OpenFiles(find_files(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_NOFILE, (10, 10))
others = []
try:
    while True:
        others.append(os.dup(0))
except OSError:
    pass
try:
    files[0]
except FileError as error:
    print(error.message)
"""
    (tmp_path / "a.bin").write_bytes(b"x")
    told = run(script, tmp_path / "a.bin").decode()
    assert told == (
        "Too many files are open. Raise the limit with `ulimit -n`, or use fewer processes.\n"
    )


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


def test_files_by_number_open_when_they_are_read(path: Path):
    before = num_descriptors()
    files = OpenFiles(find_files([path, path]))
    assert len(files) == 2
    assert files.refs == (find_file(path),) * 2
    assert num_descriptors() == before
    assert files[1] is files[1]
    with pytest.raises(IndexError):
        files[2]


def test_pickled_files_are_just_their_refs(path: Path):
    files = OpenFiles(find_files([path] * 2))
    closed = len(pickle.dumps(files))
    files[0].read_one(0, 9)
    again = pickle.loads(pickle.dumps(files))
    assert again.refs == files.refs
    assert again[1].read_one(0, 9) == DATA[:9]
    assert len(pickle.dumps(files)) == closed < 2000


def test_what_is_no_plain_file_is_refused_before_it_is_waited_for(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=r"\(.*pipe\)$"):
        find_file(tmp_path / "pipe")


def test_all_errors_of_files_are_what_python_calls_them():
    assert issubclass(MissingFileError, FileNotFoundError)
    assert issubclass(ForbiddenFileError, PermissionError)
    assert issubclass(CorruptFileError, ValueError)
