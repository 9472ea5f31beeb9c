"""File names that are not UTF-8, or that contain control characters."""

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill.options import StorageOptions
from gristmill.sources import CsvSource, JsonLinesSource, TarSource, TFRecordSource
from tests.hostile.parsers import make_csv, make_jsonl, make_tar, make_tfrecord, plain

FORMATS = {
    "csv": (make_csv, CsvSource),
    "jsonl": (make_jsonl, JsonLinesSource),
    "tar": (make_tar, TarSource),
    "tfrecord": (make_tfrecord, TFRecordSource),
}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
@pytest.mark.parametrize(("make", "open_source"), FORMATS.values(), ids=FORMATS)
def test_a_file_whose_name_is_not_utf_8_is_read_and_indexed(
    make: Callable[[Path], None],
    open_source: Callable[..., Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    reference, path = tmp_path / "sample", folder / os.fsdecode(b"\xff\xfe.data")
    make(reference)
    path.write_bytes(reference.read_bytes())
    expected = repr(plain(list(open_source(reference))))

    assert repr(plain(list(open_source(path)))) == expected
    assert len(list(cache.rglob("*.gristmill-index"))) == 2
    assert repr(plain(list(open_source(path)))) == expected  # with the saved index
    shutil.rmtree(cache)
    storage = StorageOptions(index_beside_data=True)
    assert repr(plain(list(open_source(path, storage=storage)))) == expected
    (beside,) = folder.glob("*.gristmill-index")
    assert repr(plain(list(open_source(path)))) == expected  # with the saved index
    beside.unlink()
    beside.mkdir()  # so that the index cannot be saved there
    for _ in range(2):
        assert repr(plain(list(open_source(path, storage=storage)))) == expected
    assert len(list(cache.rglob("*.gristmill-index"))) == 1
