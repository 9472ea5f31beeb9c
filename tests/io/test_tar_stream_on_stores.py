"""Shards in a store are read as a stream, without downloading them first."""

import io
import tarfile
from pathlib import Path

from gristmill.experimental import TarIterDataset
from gristmill.options import StorageOptions
from gristmill.sources import TarSource
from tests.io.conftest import Serve
from tests.io.test_sources_on_stores import FAULTS


def archive(first: int, count: int, size: int) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as file:
        for number in range(first, first + count):
            member = tarfile.TarInfo(f"{number:03}.bin")
            member.size = size
            file.addfile(member, io.BytesIO(bytes([number]) * size))
    return content.getvalue()


def test_a_stream_over_a_faulty_store_equals_that_of_the_files(serve: Serve, tmp_path: Path):
    files = {f"{shard}.tar": archive(20 * shard, 20, 40_000) for shard in range(3)}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    source = TarSource(f"{tmp_path}/*.tar")
    expected = [source[index] for index in range(60)]
    store = serve(files, FAULTS)

    dataset = TarIterDataset(store.url("{0..2}.tar"), storage=store.storage())
    iterator = iter(dataset)
    head = [next(iterator) for _ in range(33)]
    resumed = iter(dataset)
    resumed.set_state(iterator.get_state())

    assert head + list(resumed) == expected


def test_the_first_record_needs_only_the_first_bytes(serve_http: Serve):
    store = serve_http({"a.tar": archive(0, 30, 10**6), "b.tar": archive(30, 3, 10**6)})
    storage = StorageOptions(read_ahead_bytes=0)
    iterator = iter(TarIterDataset(store.url("{a,b}.tar"), storage=storage))
    store.server.reset_log()

    assert next(iterator)["bin"] == bytes(10**6)

    assert len(store.gets()) <= 2  # of 4 MB each, and perhaps the next
    for _ in range(24):
        next(iterator)
    resumed = iter(TarIterDataset(store.url("{a,b}.tar"), storage=storage))
    store.server.reset_log()
    resumed.set_state(iterator.get_state())
    assert next(resumed)["bin"] == bytes([25]) * 10**6
    assert len(store.gets()) <= 2
