import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill._io.local as local
from gristmill._data.sources.records.text.json_items import index_items
from gristmill._io.file import File
from gristmill._io.open_files import open_file
from gristmill._io.paths import find_file
from gristmill.errors import CorruptFileError, FormatError

VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('\\"[]{},a\u00e9 '),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('\\"]},'), inner),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("json") / "a.json"


def opened(path: Path, text: str | bytes) -> File:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return open_file(find_file(path))


@pytest.fixture(scope="module", params=[3, 4, 4 * 2**20])
def chunk_bytes(request: pytest.FixtureRequest) -> Iterator[int]:
    """Let files be read in chunks so small that everything is split between two of them."""
    with mock.patch.object(local, "CHUNK_BYTES", request.param):
        yield request.param


@settings(deadline=None, max_examples=150)
@given(st.lists(VALUES, max_size=6), st.sampled_from([None, 0, 2]), st.booleans(), st.booleans())
def test_items_are_those_of_the_array(
    path: Path, chunk_bytes: int, items: list[Any], indent: int, is_ascii: bool, has_mark: bool
):
    text = json.dumps(items, indent=indent, ensure_ascii=is_ascii)
    file = opened(path, (b"\xef\xbb\xbf" if has_mark else b"") + f" {text}\n".encode())
    index = index_items(file)
    found = [json.loads(value) for value in file.read(index["starts"], index["stops"])]
    assert found == items


@pytest.mark.parametrize("text", ["[]", " [ \n] "])
def test_an_empty_array_has_no_items(path: Path, text: str):
    assert len(index_items(opened(path, text))["starts"]) == 0


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ('{"a": [1]}', r"^The file begins with a JSON object, .*`JsonLinesSource`.*`jq", 0),
        ("  3", r"^The file does not begin with a JSON array\. Check the path\.", 2),
        ("", r"^The file does not begin with a JSON array\. Check the path\.", 0),
    ],
)
def test_another_value_is_an_error(path: Path, text: str, message: str, offset: int):
    with pytest.raises(FormatError, match=message) as caught:
        index_items(opened(path, text))
    assert caught.value.offset == offset


@pytest.mark.parametrize(
    ("text", "problem", "offset"),
    [
        ("[1, 2", r"The JSON array does not end: the file is truncated", 5),
        ('["a]', r"The JSON array does not end: the file is truncated", 4),
        ("[1}", "the array is closed by a brace", 2),
        ("[1] 2", "there is more after the array", 4),
        ("[1]\n[2]", "there is more after the array", 4),
    ],
)
@pytest.mark.usefixtures("chunk_bytes")
def test_damage_is_an_error(path: Path, text: str, problem: str, offset: int):
    with pytest.raises(CorruptFileError, match=problem) as caught:
        index_items(opened(path, text))
    assert caught.value.offset == offset
