"""Transient errors are retried with backoff; permanent errors are not."""

import asyncio
import random
import re
import socket

import pytest

from gristmill._base import log_once as _log_once
from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill._io.stores import retry as _retry
from gristmill._io.stores.retry import with_retries
from gristmill.errors import (
    CorruptFileError,
    FileError,
    ForbiddenFileError,
    MissingFileError,
    StoreError,
)
from gristmill.options import StorageOptions
from tests.io.conftest import Serve
from tests.io.servers import always, fails_with, returns_less, stalls

DATA = random.Random(0).randbytes(10_000)


class StatusError(Exception):
    """An error with an HTTP status, like those of aiohttp."""

    def __init__(self, status: int) -> None:
        super().__init__("refused")
        self.status = status


def open_one(address: str, storage: StorageOptions) -> File:
    return OpenFiles([find_file(address, storage)])[0]


def attempt(*errors: Exception, num_retries: int = 3) -> int:
    """Make a request that raises each error in turn; return the number of attempts."""
    remaining = list(errors)
    num_attempts = 0

    async def request() -> int:
        nonlocal num_attempts
        num_attempts += 1
        if remaining:
            raise remaining.pop(0)
        return num_attempts

    async def run() -> int:
        options = StorageOptions(num_retries=num_retries)
        gate = asyncio.Semaphore(1)
        return await with_retries(request, address="s3://a", gate=gate, options=options)

    return asyncio.run(run())


BUSY = socket.gaierror(socket.EAI_AGAIN, "try again")


@pytest.mark.parametrize(
    "error",
    [StatusError(500), StatusError(429), StatusError(408), OSError("reset"), TimeoutError(), BUSY],
    ids=repr,
)
def test_a_transient_error_is_retried(error: Exception):
    assert attempt(error, error) == 3


def test_the_first_retry_of_a_host_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(_log_once, "_seen", set[str]())
    for _ in range(2):
        attempt(OSError("Connection refused"), OSError("Connection refused"), num_retries=8)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert re.fullmatch(
        r"A request to a failed and is repeated up to 8 times within \d+ s \(`num_retries` of "
        r"`StorageOptions`\), apart from the requests themselves: Connection refused\.",
        record.getMessage(),
    )


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (StatusError(404), MissingFileError, "There is no such file"),
        (StatusError(410), MissingFileError, "There is no such file"),
        (FileNotFoundError(), MissingFileError, "There is no such file"),
        (StatusError(401), ForbiddenFileError, "does not allow this process"),
        (PermissionError(), ForbiddenFileError, "does not allow this process"),
        (StatusError(400), StoreError, "The store answered 400: refused"),
        (ValueError("bad option."), StoreError, r"cannot be read like this: bad option\. "),
        (socket.gaierror(socket.EAI_NONAME, "unknown"), StoreError, "There is no host of this"),
        (CorruptFileError("It is damaged."), CorruptFileError, "It is damaged"),
    ],
    ids=lambda value: repr(value) if isinstance(value, Exception) else "",
)
def test_a_permanent_error_is_raised_at_once(
    error: Exception, expected: type[FileError], message: str
):
    with pytest.raises(expected, match=message) as caught:
        attempt(error)
    assert type(caught.value) is expected


def test_a_lookup_of_credentials_is_retried_twice():
    class NoCredentialsError(Exception):  # as in botocore
        pass

    error = NoCredentialsError("Unable to locate credentials")
    assert attempt(error, error) == 3
    with pytest.raises(ForbiddenFileError, match=r'^No credentials .*={"anon": True}'):
        attempt(error, error, error)


def test_a_missing_file_that_was_a_connection_error_is_retried():
    error = FileNotFoundError("a.bin")
    error.__cause__ = ConnectionResetError()

    assert attempt(error) == 2


def test_the_retries_are_limited():
    errors = [OSError("first"), OSError("second.")]

    assert attempt(*errors, num_retries=2) == 3
    with pytest.raises(StoreError, match=r"in 2 attempts; the last error: second\. Try again"):
        attempt(*errors, num_retries=1)


def test_the_backoff_doubles_up_to_a_limit(serve_http: Serve, monkeypatch: pytest.MonkeyPatch):
    backoffs_s: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        backoffs_s.append(seconds)
        await sleep(0)

    store = serve_http({"a.bin": DATA}, always(fails_with(503)))
    monkeypatch.setattr(_retry, "INITIAL_BACKOFF_S", 1.0)
    monkeypatch.setattr(_retry, "MAX_BACKOFF_S", 30.0)
    monkeypatch.setattr(asyncio, "sleep", record)
    with pytest.raises(StoreError):
        find_file(store.url("a.bin"), store.storage(num_retries=8))
    max_backoffs_s = [1, 2, 4, 8, 16, 30, 30, 30]
    for backoff_s, max_backoff_s in zip(backoffs_s, max_backoffs_s, strict=True):
        assert max_backoff_s / 2 <= backoff_s <= max_backoff_s
    assert len(set(backoffs_s)) == 8, "many clients must not retry at the same moment"


@pytest.mark.parametrize("num_retries", [0, 1, 3])
def test_the_last_error_names_the_address_the_attempts_and_the_cause(
    serve: Serve, num_retries: int
):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(num_retries=num_retries))
    store.server.reset_log()
    store.server.faults = always(fails_with(503))
    with pytest.raises(StoreError) as e:
        file.read_one(10, 20)
    plural = "s" if num_retries else ""
    assert f"in {num_retries + 1} attempt{plural}; the last error: " in str(e.value)
    assert re.search("503|injected fault|Service Unavailable", str(e.value))
    assert store.url("a.bin") in str(e.value)
    assert "`num_retries`" in str(e.value)
    assert len([request for request in store.gets() if request.span == (10, 20)]) == num_retries + 1


def test_the_error_of_a_store_that_never_responds_names_the_timeout(serve: Serve):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(num_retries=1, timeout_s=1.5))
    store.server.faults = always(stalls)
    with pytest.raises(StoreError, match=r"in 2 attempts; .* longer than 1\.5 s"):
        file.read_one(10, 20)


def test_the_error_of_a_store_that_returns_too_little_names_the_sizes(serve: Serve):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage(num_retries=1))
    store.server.faults = always(returns_less)
    expected = r"got 50 bytes of the 100 requested|sent 'bytes 0-49/.*0-99 was requested"
    with pytest.raises(StoreError, match=expected):
        file.read_one(0, 100)


PERMANENT_STATUSES = [(404, MissingFileError), (403, ForbiddenFileError)]


@pytest.mark.parametrize(("status", "kind"), PERMANENT_STATUSES)
def test_a_permanent_error_is_not_retried(serve: Serve, status: int, kind: type[Exception]):
    store = serve({"a.bin": DATA})
    file = open_one(store.url("a.bin"), store.storage())
    store.server.reset_log()
    store.server.faults = always(fails_with(status))
    with pytest.raises(kind, match=store.url("a.bin")):
        file.read_one(0, 10)
    assert len([request for request in store.gets("a.bin") if request.span == (0, 10)]) == 1


@pytest.mark.parametrize(("status", "kind"), PERMANENT_STATUSES)
def test_a_permanent_error_of_a_lookup_is_not_retried(
    serve: Serve, status: int, kind: type[Exception]
):
    store = serve({"a.bin": DATA}, always(fails_with(status)))
    with pytest.raises(kind, match=store.url("a.bin")):
        find_file(store.url("a.bin"), store.storage())
    assert len({request.attempt for request in store.requests}) == 1
