"""A file object over a `File` behaves like a file object of Python."""

import io
import random
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._io.file import File
from gristmill._io.file_object import as_file_object
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_files

DATA = random.Random(0).randbytes(1000)

STEPS = st.lists(
    st.tuples(st.just("seek"), st.integers(0, 1200), st.just(io.SEEK_SET))
    | st.tuples(st.just("seek"), st.integers(0, 300), st.just(io.SEEK_CUR))
    | st.tuples(st.just("seek"), st.integers(-1000, 100), st.just(io.SEEK_END))
    | st.tuples(st.just("read"), st.integers(-1, 500))
    | st.tuples(st.sampled_from(["read", "readall", "tell"]))
)


@pytest.fixture(scope="module")
def file() -> Iterator[File]:
    with tempfile.NamedTemporaryFile() as temporary:
        temporary.write(DATA)
        temporary.flush()
        yield OpenFiles(find_files(temporary.name))[0]


@given(steps=STEPS)
def test_it_reads_and_seeks_like_a_file_of_python(file: File, steps: list[tuple[str, int]]):
    ours = as_file_object(file)
    with tempfile.TemporaryFile(buffering=0) as theirs:
        theirs.write(DATA)
        theirs.seek(0)
        for method, *arguments in steps:
            expected = getattr(theirs, method)(*arguments)
            assert getattr(ours, method)(*arguments) == expected


def test_file_objects_over_one_file_have_their_own_positions(file: File):
    first, second = as_file_object(file), as_file_object(file)

    assert first.read(10) == DATA[:10]
    assert second.read(5) == DATA[:5]
    assert first.read(10) == DATA[10:20]


def test_it_can_be_buffered(file: File):
    buffered = io.BufferedReader(as_file_object(file), buffer_size=64)

    assert buffered.read(100) == DATA[:100]
    assert buffered.peek(1)[:1] == DATA[100:101]
    assert buffered.read() == DATA[100:]


def test_it_is_read_only(file: File):
    assert not as_file_object(file).writable()
