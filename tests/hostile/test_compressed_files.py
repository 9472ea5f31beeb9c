"""Compressed files that unpack to much more, or to nothing: bounded disk, memory and work."""

import bz2
import gzip
import json
import lzma
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from gristmill._io import decompress
from gristmill._io.decompress import COMPRESSIONS
from gristmill.errors import GristmillError, PlanError
from gristmill.options import StorageOptions
from gristmill.sources import JsonArraySource, JsonLinesSource, MdsSource, TextSource, open_source

MB = 2**20
PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
MAX_PEAK_BYTES = 160 * MB
"""What 4 KiB of Zstandard can become."""

suffixes = pytest.mark.parametrize("suffix", PACK)


@pytest.fixture(scope="module")
def bombs() -> dict[str, bytes]:
    return {suffix: pack(bytes(300 * MB)) for suffix, pack in PACK.items()}


def left_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@suffixes
@pytest.mark.parametrize("kind", [TextSource, JsonLinesSource, JsonArraySource, open_source])
def test_a_file_that_unpacks_to_more_than_the_cache_may_take_is_refused(
    tmp_path: Path, bombs: dict[str, bytes], suffix: str, kind: Callable[..., list[object]]
):
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(bombs[suffix])
    storage = StorageOptions(cache_dir=tmp_path / "cache", cache_bytes=100 * MB)
    tracemalloc.start()
    try:
        with pytest.raises(GristmillError) as raised:
            len(kind(path, storage=storage))
        assert tracemalloc.get_traced_memory()[1] < MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()
    if kind is not open_source:
        assert isinstance(raised.value, PlanError)
        assert "`cache_bytes`" in str(raised.value)
    assert left_bytes(tmp_path / "cache") < MB


@suffixes
def test_a_shard_that_unpacks_to_more_than_the_cache_may_take_is_refused(
    tmp_path: Path, bombs: dict[str, bytes], suffix: str
):
    shard = {
        "format": "mds",
        "version": 2,
        "samples": 1,
        "raw_data": {"basename": "0.mds"},
        "zip_data": {"basename": f"0.mds{suffix}"},
        "column_names": ["x"],
        "column_encodings": ["int"],
        "column_sizes": [8],
    }
    (tmp_path / "index.json").write_text(json.dumps({"shards": [shard]}))
    (tmp_path / f"0.mds{suffix}").write_bytes(bombs[suffix])
    storage = StorageOptions(cache_dir=tmp_path / "cache", cache_bytes=100 * MB)
    with pytest.raises(PlanError, match="`cache_bytes`"):
        MdsSource(tmp_path, storage=storage)[0]
    assert left_bytes(tmp_path / "cache") < MB


@suffixes
def test_the_work_for_very_many_empty_streams_is_linear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
):
    # Each stream copies what follows it, of at most one piece of the file.
    largest = 0

    def counted(kind: decompress.Compression) -> decompress.Compression:
        def make() -> Any:
            decoder: Any = kind.make_decoder()
            decode = decoder.decode

            def count(data: bytes) -> Iterator[bytes]:
                nonlocal largest
                largest = max(largest, len(data))
                return decode(data)

            decoder.decode = count
            return decoder

        return replace(kind, make_decoder=make)

    monkeypatch.setattr(decompress, "COMPRESSIONS", tuple(map(counted, COMPRESSIONS)))
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(PACK[suffix](b"") * 5000 + PACK[suffix](b"a\n"))
    source = TextSource(path, storage=StorageOptions(cache_dir=tmp_path / "cache"))
    assert [source[index] for index in range(len(source))] == ["a"]
    assert 0 < largest <= 2**14
