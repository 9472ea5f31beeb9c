"""An S3 server may respond with anything: the result is right or an error, within bounds."""

import random
from pathlib import Path

import pytest

from gristmill.errors import ChangedFileError, FileError, StoreError
from tests.hostile.test_http_servers import ENDLESS, LIES, MB, SOCKET_BUFFERS, open_one
from tests.io.conftest import Serve
from tests.io.servers import Exchange, Fault, Response, always, ignores_range, only_for

DATA = random.Random(0).randbytes(3 * MB)

BELIEVED = ("another encoding",)
"""Of an object in S3 the encoding is metadata that its owner chose: the bytes are as stored."""

REFUSED = {name: lie for name, lie in LIES.items() if name not in BELIEVED}


@pytest.mark.parametrize("lie", REFUSED.values(), ids=list(REFUSED))
def test_a_response_that_is_not_what_was_requested_is_an_error(serve_s3: Serve, lie: Fault):
    store = serve_s3({"a.bin": DATA})
    file = open_one(store)
    store.server.faults = only_for("GET", always(lie))

    with pytest.raises(FileError):
        file.read_one(1000, 1100)


def test_an_object_is_read_as_it_is(serve_s3: Serve):
    file = open_one(serve_s3({"a.bin": DATA, "empty": b""}))

    assert file.read_one(1000, 1100) == DATA[1000:1100]
    assert b"".join(file.chunks()) == DATA
    assert file.read([5, 0, 7], [9, 0, 7]) == [DATA[5:9], b"", b""]


def test_another_tag_is_a_changed_file(serve_s3: Serve):
    store = serve_s3({"a.bin": DATA})
    file = open_one(store)
    store.server.faults = only_for("GET", always(LIES["another tag"]))

    with pytest.raises(ChangedFileError):
        file.read_one(1000, 1100)


@pytest.mark.parametrize("announced", [None, ENDLESS])
@pytest.mark.parametrize("status", [200, 206])
def test_a_body_is_not_read_beyond_the_requested_bytes(
    serve_s3: Serve, tmp_path: Path, announced: int | None, status: int
):
    store = serve_s3({"a.bin": DATA})
    file = open_one(store, cache_dir=tmp_path)
    sent: list[int] = []

    def floods(exchange: Exchange) -> None:
        response = exchange.correct_response()
        headers = {k: v for k, v in response.headers.items() if k.lower() != "content-length"}
        headers |= {} if announced is None else {"Content-Length": str(announced)}
        sent.append(exchange.send_endlessly(Response(status, headers), at_most=ENDLESS))

    store.server.faults = only_for("GET", always(floods))
    with pytest.raises(StoreError):
        file.read_one(1000, 1100)
    store.server.wait_until_idle(20)
    assert sent
    assert sum(sent) < len(sent) * SOCKET_BUFFERS


def test_a_download_of_a_whole_object_is_not_read_beyond_its_size(serve_s3: Serve, tmp_path: Path):
    store = serve_s3({"a.bin": 3 * DATA})
    file = open_one(store, cache_dir=tmp_path)
    sent: list[int] = []

    def floods(exchange: Exchange) -> None:
        if "Range" in exchange.headers:
            ignores_range(exchange)
            return
        response = exchange.correct_response()
        headers = {k: v for k, v in response.headers.items() if k.lower() != "content-length"}
        sent.append(exchange.send_endlessly(Response(200, headers), at_most=ENDLESS))

    store.server.faults = only_for("GET", always(floods))
    with pytest.raises(StoreError, match="more than the 9,437,184 bytes requested"):
        file.local_path()
    store.server.wait_until_idle(20)
    assert 0 < sum(sent) < len(sent) * SOCKET_BUFFERS
