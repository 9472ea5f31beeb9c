"""A missing package is an error with the command that installs it."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gristmill.errors import MissingExtraError
from gristmill.experimental import ParquetIterDataset
from gristmill.sources import (
    ArrayRecordDataSource,
    ArrowSource,
    CsvSource,
    Hdf5Source,
    HuggingFaceSource,
    NumpySource,
    ParquetSource,
    TextSource,
    ZarrSource,
)
from gristmill.transforms import DecodeAudio, DecodeImage, DecodeVideo


def as_zstandard(path: Path) -> Path:
    path.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(10))
    return path


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("array_record", "array-record", lambda path: len(ArrayRecordDataSource(path))),
        ("pyarrow", "parquet", lambda path: len(ParquetSource(path))),
        ("pyarrow", "parquet", lambda path: len(ArrowSource(path))),
        ("pyarrow", "parquet", lambda path: len(CsvSource(path))),
        ("pyarrow", "parquet", lambda path: len(HuggingFaceSource(path.parent))),
        ("pyarrow", "parquet", lambda path: next(iter(ParquetIterDataset(path)))),
        ("soundfile", "audio", lambda path: DecodeAudio(None).map(b"")),
        ("av", "video", lambda path: DecodeVideo(None).map(b"")),
        ("h5py", "hdf5", Hdf5Source),
        ("zarr", "zarr", ZarrSource),
        ("zstandard", "zstd", lambda path: len(TextSource(as_zstandard(path)))),
        ("fsspec", "fsspec", lambda path: NumpySource("s3://bucket/a.npy")),
        ("PIL", "image", lambda path: DecodeImage(None).map(path.read_bytes())),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_error_contains_the_command_that_installs_the_package(
    tmp_path: Path,
    package: str,
    extra: str,
    use: Callable[[Path], Any],
    monkeypatch: pytest.MonkeyPatch,
):
    path = tmp_path / "a"
    path.write_bytes(b"some bytes")
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)

    with pytest.raises(MissingExtraError, match=rf"pip install .gristmill\[{extra}\]."):
        use(path)
