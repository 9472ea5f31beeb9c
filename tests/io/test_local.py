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

from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file, find_files
from gristmill.errors import (
    ChangedFileError,
    CorruptFileError,
    FileError,
    ForbiddenFileError,
    MissingFileError,
)
from tests.io.programs import DROP_PRIVILEGES, run

MB = 2**20
DATA = random.Random(0).randbytes(9 * MB + 17)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "a.bin").write_bytes(DATA)
    return tmp_path / "a.bin"


@pytest.fixture(scope="module")
def open_data() -> Iterator[File]:
    """Open one file for all examples."""
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
    """Draw any ranges: in any order, separate, adjacent, overlapping, equal, empty."""
    offsets = st.integers(0, len(DATA))
    near = st.builds(
        lambda at, more: (at, min(at + more, len(DATA))), offsets, st.integers(0, 9000)
    )
    anywhere = st.tuples(offsets, offsets).map(lambda ends: (min(ends), max(ends)))
    ranges = draw(st.lists(near | anywhere, max_size=12))
    return draw(st.permutations(ranges + ranges[:2]))


@pytest.mark.parametrize("as_arrays", [False, True])
@settings(max_examples=60, deadline=None)
@given(ranges=spans())
def test_any_ranges_are_the_bytes_of_the_file(
    open_data: File, as_arrays: bool, ranges: list[tuple[int, int]]
):
    starts: Any = [start for start, _ in ranges]
    stops: Any = [stop for _, stop in ranges]
    if as_arrays:
        starts, stops = np.array(starts, np.int64), np.array(stops, np.int64)
    got = open_data.read(starts, stops)
    assert got == [DATA[start:stop] for start, stop in ranges]
    assert all(type(data) is bytes for data in got)


@settings(max_examples=30, deadline=None)
@given(ends=st.tuples(st.integers(0, len(DATA)), st.integers(0, len(DATA))).map(sorted))
def test_chunks_are_the_bytes_from_front_to_back(open_data: File, ends: list[int]):
    assert b"".join(open_data.chunks(*ends)) == DATA[ends[0] : ends[1]]


def test_chunks_are_a_few_megabytes(open_data: File):
    sizes = [len(chunk) for chunk in open_data.chunks()]
    assert sum(sizes) == len(DATA)
    assert max(sizes) <= 8 * MB


def test_an_empty_file_has_no_bytes(tmp_path: Path):
    (tmp_path / "empty").touch()
    file = open_one(tmp_path / "empty")
    assert file.read([0, 0], [0, 0]) == [b"", b""]
    assert list(file.chunks()) == []


def test_offsets_beyond_four_gigabytes_are_read(tmp_path: Path):
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
        rng = random.Random(number)
        starts = [rng.randrange(len(DATA) - 5000) for _ in range(50)]
        stops = [start + rng.randrange(5000) for start in starts]
        return file.read(starts, stops) == [DATA[a:b] for a, b in zip(starts, stops, strict=True)]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(64)))


# Files that change.


def test_a_range_beyond_the_end_is_an_error_with_both_offsets(path: Path):
    size = len(DATA)
    message = rf"The file ends at byte {size:,}, but bytes up to {size + 9:,} are needed.* Copy it"
    with pytest.raises(CorruptFileError, match=message) as e:
        open_one(path).read([0, size - 1], [10, size + 9])
    assert e.value.path == str(path)


def test_chunks_beyond_the_end_are_an_error(path: Path):
    with pytest.raises(CorruptFileError, match="The file ends at byte"):
        list(open_one(path).chunks(0, len(DATA) + 1))


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("change", ["append", "truncate", "rewrite", "touch"])
def test_a_changed_file_is_an_error(path: Path, is_open: bool, change: str):
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
    with pytest.raises(ChangedFileError, match=r"has changed since.*Create the source again") as e:
        files[0].read_one(0, 9)
    assert e.value.path == str(path)
    assert OpenFiles(find_files(path))[0].read_one(0, 9) == path.read_bytes()[:9]


def test_a_file_that_changes_between_two_chunks_is_an_error(path: Path):
    chunks = iter(open_one(path).chunks())
    next(chunks)
    os.truncate(path, 5 * MB)
    with pytest.raises(ChangedFileError):
        list(chunks)


def test_an_open_file_that_was_replaced_is_still_read(path: Path):
    files = OpenFiles(find_files(path))
    files[0].read_one(0, 9)
    (path.parent / "other").write_bytes(DATA[::-1])
    os.replace(path.parent / "other", path)
    assert files[0].read_one(5, 9) == DATA[5:9]
    with pytest.raises(ChangedFileError):
        pickle.loads(pickle.dumps(files))[0].read_one(5, 9)


def test_a_deleted_file_is_missing_when_it_is_opened_again(path: Path):
    files = OpenFiles(find_files(path))
    files[0].read_one(0, 9)
    path.unlink()
    assert files[0].read_one(5, 9) == DATA[5:9]
    with pytest.raises(MissingFileError, match=r"There is no such file"):
        pickle.loads(pickle.dumps(files))[0].read_one(5, 9)


READ_FORBIDDEN = f"""
import os, sys
from gristmill.errors import ForbiddenFileError
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill._io.paths import find_files
{DROP_PRIVILEGES}
for step in (lambda: OpenFiles([find_file(sys.argv[1])])[0], lambda: find_file(sys.argv[2])):
    try:
        step()
    except ForbiddenFileError as error:
        print(error)
"""


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that all users may read; `tmp_path` is private."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_file_without_read_permission_is_an_error(public_folder: Path):
    secret, hidden = public_folder / "secret.bin", public_folder / "folder" / "hidden.bin"
    hidden.parent.mkdir()
    for path in (secret, hidden):
        path.write_bytes(b"data")
    secret.chmod(0)
    hidden.parent.chmod(0)
    printed = run(READ_FORBIDDEN, secret, hidden).decode().splitlines()
    message = (
        "This process has no permission to read the file. Change its permissions, or run as its "
        "owner."
    )
    assert printed == [f"{message} ({secret})", f"{message} ({hidden})"]
    hidden.parent.chmod(0o755)


def test_too_many_open_files_are_an_error(tmp_path: Path):
    script = """
import os, resource, sys
from gristmill.errors import FileError
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files
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
    printed = run(script, tmp_path / "a.bin").decode()
    assert printed == (
        "Too many files are open. Raise the limit with `ulimit -n`, or use fewer processes.\n"
    )


def test_a_pipe_is_refused_without_opening_it(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(FileError, match=r"\(.*pipe\)$"):
        find_file(tmp_path / "pipe")


def test_file_errors_are_subclasses_of_the_errors_of_python():
    assert issubclass(MissingFileError, FileNotFoundError)
    assert issubclass(ForbiddenFileError, PermissionError)
    assert issubclass(CorruptFileError, ValueError)
