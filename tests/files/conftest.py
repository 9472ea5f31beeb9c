"""What the tests of files share: stores to read from, and peace from this machine's settings."""

import contextlib
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import fsspec
import pytest

ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:  # makes `tests.files` importable whatever import mode pytest runs with
    sys.path.insert(0, ROOT)

from gristmill.files import _retry  # noqa: E402
from tests.files.servers import (  # noqa: E402
    LOOPBACK,
    S3,
    Plan,
    Store,
    http_server,
    moto_server,
    never,
    s3_server,
)

Serve = Callable[..., Store]


@pytest.fixture(autouse=True)
def _only_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory):
    """No proxies, no credentials and no cache of whoever runs the tests."""
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", LOOPBACK)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again at once: that there is a pause is tested where it is made."""
    monkeypatch.setattr(_retry, "FIRST_PAUSE_S", 0.001)


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """Give one S3 for all tests: it takes a second to start."""
    with moto_server() as service:
        yield service


@pytest.fixture
def serve_http() -> Iterator[Serve]:
    """Give a function that serves files over HTTP until the test is over."""
    with contextlib.ExitStack() as running:

        def serve(files: Mapping[str, bytes], faults: Plan = never, **options: bool) -> Store:
            return running.enter_context(http_server(files, faults=faults, **options))

        yield serve


@pytest.fixture
def serve_s3(s3: S3) -> Iterator[Serve]:
    """Give a function that serves files in a bucket of their own until the test is over."""
    with contextlib.ExitStack() as running:

        def serve(files: Mapping[str, bytes], faults: Plan = never) -> Store:
            bucket = f"bucket-{uuid.uuid4().hex}"
            return running.enter_context(s3_server(s3, files, bucket=bucket, faults=faults))

        yield serve


@pytest.fixture(params=["http", "s3"])
def serve(request: pytest.FixtureRequest) -> Serve:
    """Give a function that serves files, in each kind of store that can misbehave."""
    return request.getfixturevalue(f"serve_{request.param}")


@pytest.fixture
def put_in_memory() -> Iterator[Callable[[Mapping[str, bytes]], str]]:
    """Give a function that puts files into fsspec's store in memory, and gives the address."""
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
