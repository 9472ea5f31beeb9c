import json
import pickle
import tempfile
import threading
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.sources.records.text.jsonl import JsonLinesSource
from gristmill.errors import CorruptFileError, FormatError, MissingFileError
from gristmill.options import StorageOptions

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def write(folder: Path, *lines: str | bytes, name: str = "a.jsonl") -> Path:
    path = folder / name
    encoded = [line if isinstance(line, bytes) else line.encode() for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in encoded))
    return path


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(VALUES, max_size=8), min_size=1, max_size=3),
    st.sampled_from(["\n", "\r\n", "\n\n", "\n \r\n"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_records_equal_the_lines_parsed_by_json(
    files: list[list[Any]], end: str, is_ended: bool, has_mark: bool, is_ascii: bool, data: Any
):
    with tempfile.TemporaryDirectory() as folder:
        for number, values in enumerate(files):
            lines = [json.dumps(value, ensure_ascii=is_ascii) for value in values]
            text = end.join(lines) + (end if is_ended else "")
            encoded = text.encode("utf-8", "surrogatepass")
            mark = b"\xef\xbb\xbf" if has_mark else b""
            Path(folder, f"{number}.jsonl").write_bytes(mark + encoded)
        source = JsonLinesSource(f"{folder}/*.jsonl")
        expected = [value for values in files for value in values]

        assert len(source) == len(expected)
        assert [source[index] for index in range(len(source))] == expected
        if expected:
            indices = data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20))
            wanted = [expected[index] for index in indices]
            assert source.__getitems__(indices) == wanted
            assert source.__getitems__(np.array(indices, dtype=np.int64)) == wanted
            assert source.__getitems__(range(len(expected))) == expected


def test_records_are_not_shared(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, "[1]"))
    first, second = source.__getitems__([0, 0])
    first.append(2)
    assert second == source[0] == [1]


def test_creating_the_source_reads_nothing(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, "not JSON"))
    assert list(tmp_path.iterdir()) == [tmp_path / "a.jsonl"]
    assert len(source) == 1
    assert list(tmp_path.iterdir()) == [tmp_path / "a.jsonl"]  # the index is in the cache


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        JsonLinesSource(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_out_of_bounds_is_an_error(tmp_path: Path, index: int):
    source = JsonLinesSource(write(tmp_path, "1", "2"))
    message = rf"^`index` must be in \[0, 2\), got {index}\.$"
    with pytest.raises(IndexError, match=message):
        source[index]
    with pytest.raises(IndexError, match=message):
        source.__getitems__([0, index])


@pytest.mark.parametrize(
    ("line", "reason", "offset"),
    [
        (b'{"a": 1', "Expecting ',' delimiter", 7),
        ('{"é": x}'.encode(), "Expecting value", 7),
        (b'"a\xff"', "not UTF-8: invalid start byte", 2),
        (b'{"a": 1} {"b": 2}', "Extra data", 9),
        (b"1" * 5000, "Exceeds the limit", 0),
    ],
)
def test_a_line_that_is_not_json_is_an_error_with_its_offset(
    tmp_path: Path, line: bytes, reason: str, offset: int
):
    path = write(tmp_path, '{"a": 0}', "", line, '{"a": 2}')
    source = JsonLinesSource(path)
    assert source[0] == {"a": 0}
    for read in (lambda: source[1], lambda: source.__getitems__([2, 0, 1])):
        with pytest.raises(CorruptFileError) as caught:
            read()
        message = str(caught.value)
        assert message.startswith(f"The line is not JSON ({reason}")
        assert "Correct it, or skip such records with `SkipErrors`." in message
        assert (caught.value.path, caught.value.offset) == (str(path), 10 + offset)
        assert caught.value.record == 1
        assert len(message) < 400 + len(str(path))


def test_the_error_quotes_only_a_few_characters(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, '"' + "a" * 1000 + '" oops ' + "b" * 1000))
    with pytest.raises(CorruptFileError, match=r"Extra data\): \.\.\.'a{18}\" oops b+'\.\.\.\. "):
        source[0]


@pytest.mark.parametrize(
    ("value", "kind", "remedy"),
    [
        ([{"a": 1}, {"a": 2}], "array", r"Use `JsonArraySource`\."),
        ({"a": {"b": 1}}, "value", r"Convert it, for example with `jq -c`\."),
    ],
)
def test_a_value_over_several_lines_is_an_error(tmp_path: Path, value: Any, kind: str, remedy: str):
    source = JsonLinesSource(write(tmp_path, json.dumps(value, indent=2)))
    message = (
        rf"^The file holds a JSON {kind} over several lines, not one value on each line\. "
        rf"{remedy} \("
    )
    with pytest.raises(FormatError, match=message):
        len(source)


def test_an_array_with_an_element_on_each_line_is_an_error(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, '[{"a": 1},', '{"a": 2}]'))
    with pytest.raises(FormatError, match="JSON array over several lines"):
        source[1]


def test_a_damaged_first_line_is_an_error_when_it_is_read(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, '{"a": oops}', '{"a": 1}'))
    assert source[1] == {"a": 1}
    with pytest.raises(CorruptFileError, match=r"Expecting value\).*byte 6, record 0\)$"):
        source[0]


def test_lone_surrogates_are_read_as_json_reads_them(tmp_path: Path):
    line = b'"\xed\xa0\x80"'
    assert JsonLinesSource(write(tmp_path, line))[0] == json.loads(line) == "\ud800"


def test_arrays_on_lines_of_their_own_are_records(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, "[1]", "[2, 3]"))
    assert [source[0], source[1]] == [[1], [2, 3]]


def test_it_can_be_pickled_at_any_time(tmp_path: Path):
    path = write(tmp_path, "1", "2")
    fresh = JsonLinesSource(path)
    used = JsonLinesSource(path)
    assert used[1] == 2
    for source in (fresh, used):
        assert list(pickle.loads(pickle.dumps(source))) == [1, 2]


def test_a_pickled_source_contains_the_index(tmp_path: Path):
    storage = StorageOptions(index_beside_data=True)
    source = JsonLinesSource(write(tmp_path, "1", "2"), storage=storage)
    assert len(source) == 2
    (tmp_path / "a.jsonl.lines.gristmill-index").write_bytes(b"another")
    copy = pickle.loads(pickle.dumps(source))
    assert copy[1] == 2
    assert (tmp_path / "a.jsonl.lines.gristmill-index").read_bytes() == b"another"


def test_threads_may_share_it(tmp_path: Path):
    source = JsonLinesSource(write(tmp_path, *map(str, range(1000))))
    start = threading.Barrier(8)
    read: list[list[int]] = []

    def work() -> None:
        start.wait()
        read.append(source.__getitems__(range(1000)))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert read == [list(range(1000))] * 8


def test_its_repr_contains_the_files_without_their_folder(tmp_path: Path):
    one = write(tmp_path, "1", name="a.jsonl")
    write(tmp_path, "2", name="b.jsonl")
    assert repr(JsonLinesSource(one)) == "JsonLinesSource('a.jsonl')"
    assert repr(JsonLinesSource(f"{tmp_path}/*.jsonl")) == (
        "JsonLinesSource(<2 files>, 'a.jsonl', ...)"
    )


def test_files_in_a_store_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fsspec.filesystem("memory").pipe_file("/test_jsonl/a.jsonl", b'1\n\n"b"\n')
    source = JsonLinesSource("memory://test_jsonl/a.jsonl")
    assert (len(source), source.__getitems__([1, 0])) == (2, ["b", 1])
