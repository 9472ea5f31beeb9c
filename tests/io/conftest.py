"""Stores to read from, and isolation from the settings of this machine."""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping

import fsspec
import pytest

from gristmill._io.stores import retry as _retry
from tests.io.servers import (
    LOOPBACK,
    S3,
    FaultSchedule,
    Store,
    http_server,
    moto_server,
    never,
    s3_server,
)

Serve = Callable[..., Store]


@pytest.fixture(autouse=True)
def _only_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """Remove proxies, credentials and the cache folder of the user."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", LOOPBACK)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _short_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry at once; `test_remote.py` tests the backoff."""
    monkeypatch.setattr(_retry, "INITIAL_BACKOFF_S", 0.001)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """Run one S3 server for all tests, as it takes a second to start."""
    with moto_server() as service:
        yield service


@pytest.fixture
def serve_http() -> Iterator[Serve]:
    """Return a function that serves files over HTTP until the end of the test."""
    with contextlib.ExitStack() as running:

        def serve(
            files: Mapping[str, bytes], faults: FaultSchedule = never, **options: bool
        ) -> Store:
            return running.enter_context(http_server(files, faults=faults, **options))

        yield serve


@pytest.fixture
def serve_s3(s3: S3) -> Iterator[Serve]:
    """Return a function that serves files in a new bucket until the end of the test."""
    with contextlib.ExitStack() as running:

        def serve(files: Mapping[str, bytes], faults: FaultSchedule = never) -> Store:
            bucket = f"bucket-{uuid.uuid4().hex}"
            return running.enter_context(s3_server(s3, files, bucket=bucket, faults=faults))

        yield serve


@pytest.fixture(params=["http", "s3"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Return a function that serves files, for each kind of store with injected faults."""
    return request.getfixturevalue(f"serve_{request.param}")


@pytest.fixture
def put_in_memory() -> Iterator[Callable[[Mapping[str, bytes]], str]]:
    """Return a function that puts files into fsspec's store in memory and returns the address."""
    store = fsspec.filesystem("memory")
    roots: list[str] = []

    def put(files: Mapping[str, bytes]) -> str:
        roots.append(f"/{uuid.uuid4().hex}")
        for name, data in files.items():
            store.pipe_file(f"{roots[-1]}/{name}", data)
        return f"memory://{roots[-1]}/"

    yield put
    for root in roots:
        store.rm(root, recursive=True)
