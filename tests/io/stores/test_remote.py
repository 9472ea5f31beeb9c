import asyncio
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fsspec
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
    MissingFileError,
    StoreError,
)
from gristmill.options import StorageOptions
from tests.io.conftest import Serve
from tests.io.programs import command, run
from tests.io.servers import (
    S3,
    Fault,
    Store,
    always,
    at_random,
    closes_midway,
    fails_with,
    http_server,
    ignores_range,
    never,
    omits_length,
    omits_length_and_ignores_range,
    on_first_attempts,
    only_for,
    resets_midway,
    returns_less,
    s3_server,
    stalls,
    stalls_midway,
    waits_for,
)
from tests.time_limits import PATIENCE_S

MB = 2**20
DATA = random.Random(0).randbytes(3 * MB)
SHORT_TIMEOUT_S = 0.5
"""Seconds until a request times out, for faults that stall it."""

FAR_APART = MB // 2
"""Larger than the gap between ranges that are merged into one request."""

Put = Callable[[Mapping[str, bytes]], str]


def open_one(address: str, storage: StorageOptions | None = None) -> File:
    return OpenFiles([find_file(address, storage)])[0]


def far_apart(count: int, *, length: int = 100) -> tuple[list[int], list[int]]:
    starts = [FAR_APART * number for number in range(count)]
    return starts, [start + length for start in starts]


# Contents.


@pytest.fixture(scope="module")
def files(s3: S3) -> Iterator[dict[str, File]]:
    """Open the same bytes in three kinds of store."""
    with http_server({"a.bin": DATA}) as web, s3_server(s3, {"a.bin": DATA}) as bucket:
        fsspec.filesystem("memory").pipe_file("/spans/a.bin", DATA)
        yield {
            "http": open_one(web.url("a.bin"), web.storage()),
            "s3": open_one(bucket.url("a.bin"), bucket.storage()),
            "memory": open_one("memory://spans/a.bin"),
        }
        fsspec.filesystem("memory").rm("/spans", recursive=True)


def spans(size: int) -> st.SearchStrategy[list[tuple[int, int]]]:
    """Draw any ranges: in any order, separate, adjacent, overlapping, equal, empty."""
    offsets = st.integers(0, size)
    near = st.builds(lambda at, more: (at, min(at + more, size)), offsets, st.integers(0, 300))
    anywhere = st.tuples(offsets, offsets).map(lambda ends: (min(ends), max(ends)))
    return st.lists(near | anywhere, max_size=12)


@pytest.mark.parametrize("kind", ["http", "s3", "memory"])
@pytest.mark.parametrize("as_arrays", [False, True])
@settings(max_examples=20, deadline=None)
@given(ranges=spans(len(DATA)))
def test_any_ranges_are_the_bytes_of_the_file(
    files: dict[str, File], kind: str, as_arrays: bool, ranges: list[tuple[int, int]]
):
    starts: Any = [start for start, _ in ranges]
    stops: Any = [stop for _, stop in ranges]
    if as_arrays:
        starts, stops = np.array(starts, np.int64), np.array(stops, np.int64)
    assert files[kind].read(starts, stops) == [DATA[start:stop] for start, stop in ranges]


@pytest.mark.parametrize("kind", ["http", "s3", "memory"])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (5, None), (5, 2 * MB), (7, 7), (0, 0)])
def test_chunks_are_the_bytes_from_front_to_back(
    files: dict[str, File], kind: str, start: int, stop: int | None
):
    assert b"".join(files[kind].chunks(start, stop)) == DATA[start:stop]


@pytest.mark.parametrize("kind", ["http", "s3", "memory"])
def test_a_range_beyond_the_end_is_an_error_with_both_offsets(files: dict[str, File], kind: str):
    size = len(DATA)
    with pytest.raises(CorruptFileError, match=f"ends at byte {size:,}.* up to {size + 9:,}") as e:
        files[kind].read([0, size - 1], [10, size + 9])
    assert e.value.path == files[kind].ref.path


@pytest.mark.parametrize("kind", ["http", "s3", "memory"])
def test_files_are_read_inside_a_running_event_loop(files: dict[str, File], kind: str):
    async def in_a_notebook() -> bytes:
        return files[kind].read_one(3, 9)

    assert asyncio.run(in_a_notebook()) == DATA[3:9]


@pytest.mark.parametrize("name", ["a b.bin", "ü/é.bin", "a+b.bin", "a%20b.bin", "x=1/y&z.bin"])
def test_names_may_have_any_characters(serve_s3: Serve, put_in_memory: Put, name: str):
    store = serve_s3({name: DATA[:100]})
    assert open_one(store.url(name), store.storage()).read_one(0, 100) == DATA[:100]
    assert open_one(put_in_memory({name: DATA[:100]}) + name).read_one(0, 100) == DATA[:100]


def test_an_address_may_have_a_query(serve_http: Serve):
    store = serve_http({"a b.bin": DATA[:100]})
    address = store.url("a%20b.bin?token=a%2Fb&day=1")
    assert open_one(address, store.storage()).read_one(0, 100) == DATA[:100]
    assert {unquote(request.query) for request in store.requests} == {"token=a/b&day=1"}


def test_an_empty_file_has_no_bytes(serve: Serve):
    store = serve({"empty": b""})
    file = open_one(store.url("empty"), store.storage())
    assert file.ref.size == 0
    assert file.read([0, 0], [0, 0]) == [b"", b""]
    assert list(file.chunks()) == []


# Number and concurrency of requests.


def test_adjacent_ranges_are_one_request(serve: Serve):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.reset_log()
    starts = list(range(0, 100_000, 100))
    random.Random(0).shuffle(starts)
    got = file.read(starts, [start + 90 for start in starts])
    assert got == [DATA[start : start + 90] for start in starts]
    assert len(store.gets()) == 1


def test_repeated_ranges_are_one_request(serve: Serve):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.reset_log()
    assert file.read([5] * 50, [9] * 50) == [DATA[5:9]] * 50
    assert len(store.gets()) == 1


def test_bytes_between_distant_ranges_are_not_read(serve: Serve):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.reset_log()
    file.read([0, 2 * MB], [10, 2 * MB + 10])
    assert sorted(str(request.span) for request in store.gets()) == [
        "(0, 10)",
        f"({2 * MB}, {2 * MB + 10})",
    ]


def test_distant_ranges_are_requested_concurrently(serve: Serve):
    store = serve({"a.bin": bytes(8 * FAR_APART)})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.faults = always(waits_for(8))
    assert file.read(*far_apart(8)) == [bytes(100)] * 8
    assert store.server.max_in_flight >= 8


def test_a_long_range_is_split_into_concurrent_requests(serve: Serve):
    data = random.Random(1).randbytes(10 * MB)
    store = serve({"a.bin": data})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.faults = always(waits_for(2))
    assert file.read_one(1, 10 * MB - 1) == data[1:-1]
    assert store.server.max_in_flight >= 2


def test_the_number_of_concurrent_requests_is_limited(serve: Serve):
    names = ["a.bin", "b.bin"]
    store = serve(dict.fromkeys(names, bytes(4 * FAR_APART)))
    found = find_files([store.url(name) for name in names], store.storage(num_parallel=3))
    files = OpenFiles(found)
    assert [files[0].ref.size, files[1].ref.size] == [4 * FAR_APART] * 2
    store.server.faults = always(waits_for(4, timeout_s=0.2))  # a fourth request would be noticed
    with ThreadPoolExecutor(2) as threads:
        read = [threads.submit(files[number].read, *far_apart(4)) for number in range(2)]
    assert [future.result() for future in read] == [[bytes(100)] * 4] * 2
    assert store.server.max_in_flight == 3


def test_waiting_for_other_requests_does_not_count_towards_the_timeout(serve_http: Serve):
    # Each request stalls once. One after another, they take several times the timeout.
    store = serve_http({"a.bin": bytes(5 * FAR_APART)})
    options = store.storage(num_parallel=1, num_retries=1, timeout_s=0.1)
    file = open_one(store.url("a.bin"), options)
    store.server.reset_log()
    store.server.faults = on_first_attempts(1, stalls)
    assert file.read(*far_apart(5)) == [bytes(100)] * 5


def test_chunks_are_prefetched(serve: Serve):
    store = serve({"a.bin": bytes(13 * MB)})
    file = open_one(store.url("a.bin"), store.storage(read_ahead_bytes=8 * MB))
    store.server.faults = always(waits_for(2))
    first = next(iter(file.chunks()))
    assert store.server.max_in_flight >= 2
    assert first == bytes(len(first))


def test_prefetching_of_chunks_is_limited(serve_http: Serve):
    store = serve_http({"a.bin": bytes(64 * MB)})
    file = open_one(store.url("a.bin"), store.storage(read_ahead_bytes=8 * MB))
    store.server.reset_log()
    chunks = iter(file.chunks())
    taken = len(next(chunks))
    assert store.num_bytes() <= taken + 8 * MB
    chunks.close()  # type: ignore[attr-defined]


def test_a_file_of_a_server_without_ranges_is_downloaded_once(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.reset_log()
    store.server.faults = always(ignores_range)
    starts, stops = far_apart(5)
    expected = [DATA[start:stop] for start, stop in zip(starts, stops, strict=True)]
    for _ in range(6):
        assert file.read(starts, stops) == expected
    assert b"".join(file.chunks(5)) == DATA[5:]
    assert file.local_path().read_bytes() == DATA
    assert len(store.gets()) <= 6  # each range at most once, and the whole file once


@pytest.mark.parametrize(
    "read", [lambda file: file.local_path().read_bytes(), lambda file: b"".join(file.chunks())]
)
def test_a_whole_file_is_read_from_a_server_without_ranges(
    serve_http: Serve, read: Callable[[File], bytes]
):
    data = DATA * (1 + 9 * MB // len(DATA))  # several requests
    store = serve_http({"a.bin": data})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.faults = always(ignores_range)

    assert read(file) == data


def test_threads_share_a_file_of_a_server_without_ranges(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.faults = always(ignores_range)

    def read(number: int) -> bool:
        return file.read_one(number, number + 50) == DATA[number : number + 50]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(40)))


def test_a_local_copy_may_be_requested_while_a_server_without_ranges_is_read(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    first, second = (open_one(store.url("a.bin"), store.storage()) for _ in range(2))
    store.server.faults = always(ignores_range)
    assert first.read_one(0, 9) == DATA[:9]
    assert second.read_one(0, 9) == DATA[:9]
    second.local_path()
    assert first.read_one(5, 9) == DATA[5:9]


def test_finding_files_reads_none_of_their_bytes(serve: Serve):
    store = serve({f"{number}.bin": DATA for number in range(3)})
    find_files([store.url(f"{number}.bin") for number in range(3)], store.storage())
    assert store.gets() == []


# Transient faults.

TRANSIENT: dict[str, Fault] = {
    "500": fails_with(500),
    "502": fails_with(502),
    "503": fails_with(503),
    "429": fails_with(429),
    "resets midway": resets_midway,
    "closes midway": closes_midway,
    "returns less": returns_less,
    "ignores range": ignores_range,
    "omits length": omits_length,
    "stalls": stalls,
    "stalls midway": stalls_midway,
}


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
def test_a_request_with_one_fault_is_retried(serve: Serve, fault: Fault):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(timeout_s=SHORT_TIMEOUT_S))
    store.server.faults = on_first_attempts(1, fault)
    starts, stops = far_apart(3)
    assert file.read(starts, stops) == [DATA[a:b] for a, b in zip(starts, stops, strict=True)]


@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT.keys())
def test_chunks_are_complete_despite_faults(serve_http: Serve, fault: Fault):
    data = random.Random(1).randbytes(9 * MB)
    store = serve_http({"a.bin": data})
    file = open_one(store.url("a.bin"), store.storage(timeout_s=3 * SHORT_TIMEOUT_S))
    store.server.faults = on_first_attempts(1, fault)
    assert b"".join(file.chunks()) == data


@pytest.mark.parametrize("fault", ["500", "503", "429", "resets midway", "closes midway", "stalls"])
def test_a_lookup_with_faults_is_retried(serve: Serve, fault: str):
    # Twice: fsspec sends a `GET` after a `HEAD` that failed.
    store = serve({"a.bin": DATA}, on_first_attempts(2, TRANSIENT[fault]))
    ref = find_file(store.url("a.bin"), store.storage(timeout_s=SHORT_TIMEOUT_S))
    assert ref.size == len(DATA)


@pytest.mark.parametrize("fault", ["500", "503", "resets midway", "stalls"])
def test_a_listing_with_one_fault_is_retried(serve_s3: Serve, fault: str):
    store = serve_s3(
        {f"{n}.bin": DATA[:n] for n in range(4)}, on_first_attempts(1, TRANSIENT[fault])
    )
    found = find_files(store.url("*.bin"), store.storage(timeout_s=SHORT_TIMEOUT_S))
    assert [ref.size for ref in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_share_a_file_get_their_bytes_from_a_faulty_store(serve: Serve, seed: int):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(timeout_s=SHORT_TIMEOUT_S))
    store.server.faults = at_random(0.4, *TRANSIENT.values(), seed=seed)

    def read(number: int) -> bool:
        rng = random.Random(f"{seed} {number}")
        starts = [rng.randrange(len(DATA)) for _ in range(10)]
        stops = [min(start + rng.randrange(2000), len(DATA)) for start in starts]
        return file.read(starts, stops) == [DATA[a:b] for a, b in zip(starts, stops, strict=True)]

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(read, range(16)))


def test_each_attempt_is_one_request_to_s3(serve_s3: Serve):
    store = serve_s3({"a.bin": DATA}, always(TRANSIENT["500"]))
    with pytest.raises(StoreError, match="in 2 attempts"):
        find_file(store.url("a.bin"), store.storage(num_retries=1))
    assert len(store.requests) == 2


# Permanent faults.


@pytest.mark.parametrize("kind", ["http", "s3"])
def test_a_store_that_does_not_exist_is_an_error(kind: str):
    with http_server({}) as gone:
        nowhere = gone.url("")
    storage, address = StorageOptions(num_retries=1), nowhere + "a.bin"
    if kind == "s3":
        address = "s3://bucket/a.bin"
        endpoint = {"endpoint_url": nowhere, "key": "key", "secret": "secret"}
        storage = StorageOptions(num_retries=1, filesystem=endpoint)
    with pytest.raises(StoreError, match="in 2 attempts") as e:
        find_file(address, storage)
    assert e.value.path == address
    assert isinstance(e.value, ConnectionError)


def test_a_store_that_reports_no_size_is_an_error(serve_http: Serve):
    store = serve_http({"a.bin": DATA}, always(omits_length_and_ignores_range))
    with pytest.raises(
        StoreError, match=r"does not report the size of the file.* Download it first"
    ):
        find_file(store.url("a.bin"), store.storage())


def test_a_file_that_does_not_exist_is_missing(serve: Serve, put_in_memory: Put):
    store = serve({"a.bin": DATA})
    with pytest.raises(MissingFileError, match=r"There is no such file\..*/b\.bin"):
        find_file(store.url("b.bin"), store.storage())
    with pytest.raises(MissingFileError, match=r"There is no such file\..*/b\.bin"):
        find_file(put_in_memory({"a.bin": DATA}) + "b.bin")


def test_a_removed_file_is_missing(serve: Serve):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.remove("a.bin")
    with pytest.raises(MissingFileError):
        file.read_one(0, 10)


@pytest.mark.parametrize("other", [DATA[::-1], DATA[:-5], DATA + b"more"], ids=len)
def test_a_file_that_changed_before_it_is_opened_is_an_error(serve: Serve, other: bytes):
    store = serve({"a.bin": DATA})
    refs = find_files([store.url("a.bin")], store.storage())
    store.put("a.bin", other)
    with pytest.raises(ChangedFileError, match="has changed since"):
        OpenFiles(refs)[0].read_one(0, 10)


@pytest.mark.parametrize("other", [DATA[::-1], DATA[:-5], DATA + b"more"], ids=len)
def test_a_file_that_changes_between_two_reads_is_an_error(serve: Serve, other: bytes):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(num_retries=2))
    assert file.read_one(0, 10) == DATA[:10]
    store.put("a.bin", other)
    with pytest.raises(ChangedFileError, match="has changed since"):
        file.read_one(len(DATA) - 10, len(DATA))


@pytest.mark.parametrize("other", [DATA[::-1], DATA[:-5]], ids=len)
def test_a_file_that_changes_between_two_chunks_is_an_error(serve_http: Serve, other: bytes):
    store = serve_http({"a.bin": DATA * 10})
    storage = store.storage(read_ahead_bytes=0, num_retries=2)
    chunks = iter(open_one(store.url("a.bin"), storage).chunks())
    next(chunks)
    store.put("a.bin", other * 10)
    with pytest.raises(ChangedFileError, match="has changed since"):
        list(chunks)


def test_a_changed_file_without_an_etag_is_detected_by_its_date(serve_http: Serve):
    store = serve_http({"a.bin": DATA}, sends_etags=False)
    refs = find_files([store.url("a.bin")], store.storage())
    store.put("a.bin", DATA[::-1])
    with pytest.raises(ChangedFileError, match="has changed since"):
        OpenFiles(refs)[0].read_one(0, 10)


def test_a_changed_file_that_a_pattern_found_is_an_error(serve_s3: Serve):
    store = serve_s3({"a.bin": DATA, "b.bin": DATA})
    find_file(store.url("a.bin"), store.storage())  # fsspec may cache listings from here on
    refs = find_files(store.url("*.bin"), store.storage())
    store.put("a.bin", DATA[::-1])
    with pytest.raises(ChangedFileError, match="has changed since"):
        OpenFiles(refs)[0].read_one(0, 10)


def test_a_changed_file_in_memory_is_an_error(put_in_memory: Put):
    root = put_in_memory({"a.bin": DATA})
    refs = find_files(root + "a.bin")
    fsspec.filesystem("memory").pipe_file(root.removeprefix("memory://") + "a.bin", DATA[::-1])
    with pytest.raises(ChangedFileError, match="has changed since"):
        OpenFiles(refs)[0].read_one(0, 10)


# Other processes.

READ_PICKLED = """
import pickle, sys
from gristmill._io.open_files import OpenFiles
files = pickle.load(sys.stdin.buffer)
sys.stdout.buffer.write(b"".join(files[0].read([5, 2_000_000], [50, 2_000_100])))
"""


@pytest.mark.parametrize("is_open", [False, True])
def test_another_process_reads_pickled_files_and_exits_cleanly(serve: Serve, is_open: bool):
    store = serve({"a.bin": DATA})
    files = OpenFiles(find_files(store.url("a.bin"), store.storage()))
    if is_open:
        files[0].read_one(0, 10)
    got = run(READ_PICKLED, stdin=pickle.dumps(files))
    assert got == DATA[5:50] + DATA[2_000_000:2_000_100]


FORK = """
import multiprocessing, pickle, sys
files = pickle.load(sys.stdin.buffer)
def read():
    return files[0].read_one(0, 10)
read()
with multiprocessing.get_context("fork").Pool(1) as pool:
    sys.stdout.buffer.write(pool.apply_async(read).get(15))
"""


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="forking with threads warns from 3.12 on")
def test_a_process_that_was_forked_after_reading_reads(serve: Serve):
    store = serve({"a.bin": DATA})
    files = OpenFiles(find_files(store.url("a.bin"), store.storage(num_retries=1)))
    assert run(FORK, stdin=pickle.dumps(files)) == DATA[:10]


WAIT_INDEFINITELY = """
import pickle, sys
files = pickle.load(sys.stdin.buffer)
try:
    files[0].read_one(0, 10)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_a_wait_for_a_store_can_be_interrupted(serve: Serve):
    store = serve({"a.bin": DATA})
    files = OpenFiles(find_files(store.url("a.bin"), store.storage(timeout_s=600)))
    store.server.reset_log()
    store.server.faults = only_for("GET", always(stalls))
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command(WAIT_INDEFINITELY), stdin=pipe, stdout=pipe, stderr=pipe
    ) as program:
        assert program.stdin is not None
        program.stdin.write(pickle.dumps(files))
        program.stdin.close()
        program.stdin = None
        store.server.wait_for_request(lambda request: request.method == "GET", PATIENCE_S)
        program.send_signal(signal.SIGINT)
        stdout, stderr = program.communicate(timeout=PATIENCE_S)
    assert stderr == b""
    assert stdout == b"interrupted\n"


def test_an_abandoned_iterator_leaves_no_requests(serve_http: Serve):
    store = serve_http({"a.bin": bytes(16 * MB)})
    file = open_one(store.url("a.bin"), store.storage(read_ahead_bytes=16 * MB, timeout_s=600))
    chunks = iter(file.chunks())
    store.server.faults = only_for("GET", lambda r: stalls if r.span and r.span[0] else None)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    store.server.wait_until_idle(PATIENCE_S)


# Local copies.


def test_a_local_copy_has_the_same_bytes(serve: Serve):
    store = serve({"folder/a.bin": DATA})
    path = open_one(store.url("folder/a.bin"), store.storage()).local_path()
    assert path.name == "a.bin"
    assert path.read_bytes() == DATA


def test_a_local_copy_is_downloaded_once(serve: Serve, tmp_path: Path):
    store = serve({"a.bin": DATA})
    storage = store.storage(cache_dir=tmp_path)
    files = [open_one(store.url("a.bin"), storage) for _ in range(4)]
    store.server.reset_log()
    with ThreadPoolExecutor(4) as threads:
        paths = set(threads.map(lambda file: file.local_path(), files))
    assert len(paths) == 1
    assert store.num_bytes() == len(DATA)


def test_a_local_copy_is_complete_despite_faults(serve: Serve):
    data = random.Random(2).randbytes(9 * MB)
    store = serve({"a.bin": data})
    file = open_one(store.url("a.bin"), store.storage(timeout_s=3 * SHORT_TIMEOUT_S))
    store.server.faults = on_first_attempts(2, *TRANSIENT.values())
    assert file.local_path().read_bytes() == data


def test_a_failed_download_leaves_no_file(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": bytes(12 * MB)})
    storage = store.storage(num_retries=0, cache_dir=tmp_path, read_ahead_bytes=0)
    file = open_one(store.url("a.bin"), storage)
    store.server.faults = only_for("GET", lambda r: resets_midway if r.span and r.span[0] else None)
    with pytest.raises(StoreError):
        file.local_path()
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1000
    store.server.faults = never
    assert file.local_path().read_bytes() == bytes(12 * MB)


def test_a_truncated_local_copy_is_downloaded_again(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(cache_dir=tmp_path))
    os.truncate(file.local_path(), 1000)
    assert file.local_path().read_bytes() == DATA


def test_the_file_name_of_a_local_copy_of_a_signed_address_is_not_too_long(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    signed = store.url("a.bin?signature=" + "x" * 600)
    assert open_one(signed, store.storage()).local_path().read_bytes() == DATA


def test_files_share_their_threads(serve: Serve):
    store = serve({"a.bin": DATA})
    open_one(store.url("a.bin"), store.storage()).read_one(0, 10)
    before = {thread for thread in threading.enumerate() if "process_request" not in thread.name}
    for _ in range(5):
        open_one(store.url("a.bin"), store.storage()).read_one(0, 10)
    after = {thread for thread in threading.enumerate() if "process_request" not in thread.name}
    assert after == before


def test_the_test_server_logs_requests(serve: Serve):
    store: Store = serve({"a.bin": DATA})
    open_one(store.url("a.bin"), store.storage()).read_one(7, 9)
    assert [request.span for request in store.gets("a.bin")] == [(7, 9)]
