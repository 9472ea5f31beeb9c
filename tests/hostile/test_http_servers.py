"""A server may respond with anything: the result is the right bytes or an error, within bounds."""

import gzip
import random
import warnings
from collections.abc import Callable
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
import zarr

from gristmill._io.file import File
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file
from gristmill._io.stores.http_session import MAX_PAGE_BYTES
from gristmill._io.stores.store import get_store
from gristmill.errors import ChangedFileError, FileError, StoreError
from gristmill.options import StorageOptions
from gristmill.sources import ZarrSource
from tests.io.conftest import Serve
from tests.io.servers import (
    Exchange,
    Fault,
    Response,
    Store,
    always,
    fails_with,
    ignores_range,
    only_for,
)

MB = 2**20
DATA = random.Random(0).randbytes(3 * MB)
ENDLESS = 256 * MB
SOCKET_BUFFERS = 32 * MB
"""More than the system keeps of a response that the client does not read."""


def open_one(store: Store, **options: object) -> File:
    storage = store.storage(num_retries=0, **options)
    return OpenFiles([find_file(store.url("a.bin"), storage)])[0]


def alters(change: Callable[[Response], Response]) -> Fault:
    return lambda exchange: exchange.send(change(exchange.correct_response()))


def with_headers(**headers: str) -> Fault:
    """Respond correctly but for some headers; `_` in a name is a `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return alters(lambda response: Response(206, {**response.headers, **named}, response.body))


def shifted(response: Response) -> Response:
    """Announce the requested range, and send the bytes before it, with the right headers of it."""
    content_range = {"Content-Range": f"bytes 0-99/{len(DATA)}"}
    return Response(206, {**response.headers, **content_range}, DATA[:100])


def prefix(response: Response) -> Response:
    return Response(200, {**response.headers, "Content-Range": ""}, DATA[:100])


def untitled(response: Response) -> Response:
    headers = {name: value for name, value in response.headers.items() if name != "Content-Range"}
    return Response(206, headers, response.body)


LIES: dict[str, Fault] = {
    "another range": alters(shifted),
    "no range": alters(untitled),
    "another total": with_headers(Content_Range=f"bytes 1000-1099/{len(DATA) + 1}"),
    "a negative range": with_headers(Content_Range=f"bytes -1000-1099/{len(DATA)}"),
    "a huge range": with_headers(Content_Range=f"bytes 1000-{'9' * 5000}/{len(DATA)}"),
    "another tag": with_headers(ETag='"other"'),
    "another encoding": with_headers(Content_Encoding="gzip"),
    "multipart": with_headers(Content_Range="", Content_Type="multipart/byteranges; boundary=x"),
    "no content": alters(lambda response: Response(204)),
    "a redirect to nowhere": alters(lambda response: Response(302)),
    "an endless redirect": alters(lambda response: Response(302, {"Location": "/a.bin"})),
    "a redirect to a local file": alters(
        lambda response: Response(302, {"Location": "file:///etc/passwd"})
    ),
    "not modified": alters(lambda response: Response(304)),
    "not satisfiable": fails_with(416),
}


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
def test_a_response_that_is_not_what_was_requested_is_an_error(serve_http: Serve, lie: Fault):
    store = serve_http({"a.bin": DATA})
    file = open_one(store)
    store.server.faults = only_for("GET", always(lie))
    with pytest.raises(FileError):
        file.read_one(1000, 1100)


def test_a_prefix_instead_of_a_range_is_never_taken_for_it(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    file = open_one(store)
    store.server.faults = only_for("GET", always(alters(prefix)))
    with pytest.raises(StoreError, match="announces 100 bytes"):
        file.read_one(1000, 1100)


@pytest.mark.parametrize("lie", ["no content", "a redirect to nowhere", "not modified"])
def test_a_file_without_a_successful_response_is_not_an_empty_file(serve_http: Serve, lie: str):
    store = serve_http({"a.bin": DATA}, always(LIES[lie]))
    with pytest.raises(StoreError):
        open_one(store)


def test_a_file_whose_size_is_understated_is_an_error(serve_http: Serve):
    store = serve_http({"a.bin": DATA})

    def understates(exchange: Exchange) -> None:
        response = exchange.correct_response()
        exchange.send(Response(200, {**response.headers, "Content-Length": "100"}))

    store.server.faults = only_for("HEAD", always(understates))
    file = open_one(store)
    for read in (lambda: file.read_one(0, 100), lambda: b"".join(file.chunks())):
        with pytest.raises(StoreError, match=f"reports {len(DATA)} bytes, and earlier 100"):
            read()


def test_another_tag_is_a_changed_file(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    file = open_one(store)
    store.server.faults = only_for("GET", always(LIES["another tag"]))
    with pytest.raises(ChangedFileError):
        file.read_one(1000, 1100)


def without(name: str) -> Fault:
    """Respond correctly but without a header."""

    def change(response: Response) -> Response:
        headers = {key: value for key, value in response.headers.items() if key != name}
        return Response(response.status, headers, response.body)

    return alters(change)


def test_a_response_without_the_tag_that_the_file_had_is_an_error(serve_http: Serve):
    store = serve_http({"a.bin": DATA}, sends_etags=True)
    file = open_one(store)
    store.server.faults = only_for("GET", always(without("ETag")))
    for read in (lambda: file.read_one(0, 100), lambda: b"".join(file.chunks())):
        with pytest.raises(StoreError, match="no `ETag`, and sent one earlier"):
            read()


def test_another_date_is_a_changed_file_also_beside_a_new_tag(serve_http: Serve):
    store = serve_http({"a.bin": DATA}, sends_etags=False)
    file = open_one(store)
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    store.server.faults = only_for("GET", always(with_headers(ETag='"v"', Last_Modified=date)))
    with pytest.raises(ChangedFileError):
        file.read_one(1000, 1100)


def test_a_response_need_not_repeat_the_date(serve_http: Serve):
    store = serve_http({"a.bin": DATA}, sends_etags=False)
    file = open_one(store)
    store.server.faults = only_for("GET", always(without("Last-Modified")))
    assert file.read_one(1000, 1100) == DATA[1000:1100]


# Bounds.


@pytest.mark.parametrize("announced", [None, ENDLESS])
@pytest.mark.parametrize("status", [200, 206])
def test_a_body_is_not_read_beyond_the_requested_bytes(
    serve_http: Serve, tmp_path: Path, announced: int | None, status: int
):
    store = serve_http({"a.bin": DATA})
    file = open_one(store, cache_dir=tmp_path)
    sent: list[int] = []

    def floods(exchange: Exchange) -> None:
        response = exchange.correct_response()
        headers = dict(response.headers)
        headers |= {} if announced is None else {"Content-Length": str(announced)}
        sent.append(exchange.send_endlessly(Response(status, headers), at_most=ENDLESS))

    store.server.faults = only_for("GET", always(floods))
    with pytest.raises(StoreError):
        file.read_one(1000, 1100)
    store.server.wait_until_idle(20)
    assert sent
    assert sum(sent) < len(sent) * SOCKET_BUFFERS


def test_a_server_without_ranges_is_asked_for_the_whole_file_once(serve_http: Serve):
    data = random.Random(1).randbytes(40 * MB)
    store = serve_http({"a.bin": data})
    file = open_one(store)
    sent: list[int] = []

    def counts(exchange: Exchange) -> None:
        if exchange.method == "GET" and "Range" not in exchange.headers:
            sent.append(len(data))
        ignores_range(exchange)

    store.server.faults = always(counts)
    assert b"".join(file.chunks()) == data
    assert file.read_one(5 * MB, 6 * MB) == data[5 * MB : 6 * MB]
    assert b"".join(file.chunks(7)) == data[7:]
    assert sent == [len(data)]


def test_a_download_larger_than_the_cache_is_refused_before_it_starts(
    serve_http: Serve, tmp_path: Path
):
    store = serve_http({"a.bin": DATA})
    file = open_one(store, cache_dir=tmp_path, cache_bytes=MB)
    store.server.faults = always(ignores_range)
    with pytest.raises(ValueError, match="`cache_bytes`"):
        file.read_one(0, 10)
    whole = [request for request in store.gets() if request.span is None]
    assert whole == []


# Redirects.

SECRETS = {"X-Api-Key": "hunter2", "Authorization": "Bearer hunter2", "Cookie": "id=hunter2"}


def redirect_to(target: str) -> Fault:
    return lambda exchange: exchange.send(Response(302, {"Location": target}))


@pytest.mark.parametrize("where", ["headers", "client_kwargs"])
def test_secret_headers_do_not_follow_a_redirect_to_another_server(serve_http: Serve, where: str):
    target = serve_http({"a.bin": DATA})
    received: list[dict[str, str]] = []

    def records(exchange: Exchange) -> None:
        received.append(exchange.headers)
        exchange.send(exchange.correct_response())

    target.server.faults = always(records)
    store = serve_http({"a.bin": DATA}, always(redirect_to(target.url("a.bin"))))
    client = {"trust_env": False, **({"headers": SECRETS} if where == "client_kwargs" else {})}
    options = {"client_kwargs": client, **({"headers": SECRETS} if where == "headers" else {})}
    storage = StorageOptions(filesystem=options, num_retries=0)
    file = OpenFiles([find_file(store.url("a.bin"), storage)])[0]
    assert file.read_one(5, 9) == DATA[5:9]
    assert received
    assert "hunter2" not in str(received)
    assert any(headers.get("Range") == "bytes=5-8" for headers in received)


PASSWORD = {"Authorization": "Basic bWU6aHVudGVyMg=="}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    AUTH = aiohttp.BasicAuth("me", "hunter2")


@pytest.mark.parametrize(
    ("secret", "header"),
    [
        ({"auth": AUTH}, PASSWORD),
        ({"cookies": {"id": "hunter2"}}, {"Cookie": "id=hunter2"}),
        ({"cookies": [("id", "hunter2")]}, {"Cookie": "id=hunter2"}),
        (
            {"cookies": {"id": "hunter2"}, "headers": {"cookie": "a=hunter2"}},
            {"Cookie": "a=hunter2; id=hunter2"},
        ),
    ],
)
@pytest.mark.parametrize("is_of_session", [True, False])
@pytest.mark.parametrize("is_same", [True, False])
def test_passwords_and_cookies_follow_redirects_only_to_the_same_server(
    serve_http: Serve,
    secret: dict[str, Any],
    header: dict[str, str],
    is_of_session: bool,
    is_same: bool,
):
    received: list[dict[str, str]] = []

    def records(exchange: Exchange) -> None:
        received.append(exchange.headers)
        exchange.send(exchange.correct_response())

    store = serve_http({"a.bin": DATA})
    target = store if is_same else serve_http({"a.bin": DATA})
    redirect = redirect_to(target.url("a.bin"))
    target.server.faults = always(records)
    store.server.faults = lambda request: redirect if request.path == "/old.bin" else records
    session = {"trust_env": False, **(secret if is_of_session else {})}
    options = {"client_kwargs": session, **({} if is_of_session else secret)}
    storage = StorageOptions(filesystem=options, num_retries=0)
    file = OpenFiles([find_file(store.url("old.bin"), storage)])[0]
    assert file.read_one(5, 9) == DATA[5:9]
    [(name, value)] = header.items()
    assert {headers.get(name) for headers in received} == {value if is_same else None}
    assert is_same or value not in str(received)


def test_a_cookie_of_another_domain_is_not_sent(serve_http: Serve):
    received: list[dict[str, str]] = []

    def records(exchange: Exchange) -> None:
        received.append(exchange.headers)
        exchange.send(exchange.correct_response())

    store = serve_http({"a.bin": DATA}, always(records))
    cookies: SimpleCookie = SimpleCookie("id=hunter2; Domain=example.com")
    storage = StorageOptions(filesystem={**store.filesystem, "cookies": cookies}, num_retries=0)
    assert OpenFiles([find_file(store.url("a.bin"), storage)])[0].read_one(5, 9) == DATA[5:9]
    assert received
    assert "hunter2" not in str(received)


def test_an_endless_redirect_is_named(serve_http: Serve):
    store = serve_http({"a.bin": DATA}, always(LIES["an endless redirect"]))
    with pytest.raises(StoreError, match="10 redirects in a row, which may be a loop"):
        open_one(store)


def test_headers_follow_a_redirect_to_the_same_server(serve_http: Serve):
    store = serve_http({"a.bin": DATA})
    received: list[dict[str, str]] = []

    def redirects_once(exchange: Exchange) -> None:
        received.append(exchange.headers)
        exchange.send(exchange.correct_response())

    def schedule(request: object) -> Fault:
        path: str = getattr(request, "path")  # noqa: B009
        return redirect_to("/a.bin") if path == "/old.bin" else redirects_once

    store.server.faults = schedule
    options = {**store.filesystem, "headers": SECRETS}
    storage = StorageOptions(filesystem=options, num_retries=0)
    file = OpenFiles([find_file(store.url("old.bin"), storage)])[0]
    assert file.read_one(5, 9) == DATA[5:9]
    assert {headers.get("X-Api-Key") for headers in received} == {"hunter2"}


# Pages that list files.

PAGE = {"Content-Type": "text/html"}


@pytest.mark.parametrize("announced", [None, ENDLESS])
def test_a_page_that_lists_files_is_read_up_to_a_limit(serve_http: Serve, announced: int | None):
    sent: list[int] = []

    def floods(exchange: Exchange) -> None:
        length = {} if announced is None else {"Content-Length": str(announced)}
        response = Response(200, {**PAGE, **length})
        sent.append(exchange.send_endlessly(response, at_most=ENDLESS))

    store = serve_http({}, always(floods))
    pattern = store.url("a/*.bin")
    with pytest.raises(StoreError, match="bytes or more of at most"):
        get_store(pattern, store.storage(num_retries=0)).glob(pattern)
    store.server.wait_until_idle(20)
    assert sent
    assert sum(sent) < len(sent) * (MAX_PAGE_BYTES + SOCKET_BUFFERS)


def test_a_compressed_page_is_not_decompressed(serve_http: Serve):
    page = gzip.compress(b"<a href='a.bin'>a</a>")
    response = Response(200, {**PAGE, "Content-Encoding": "gzip"}, page)
    store = serve_http({}, always(lambda exchange: exchange.send(response)))
    pattern = store.url("a/*.bin")
    with pytest.raises(StoreError, match="the encoding 'gzip'"):
        get_store(pattern, store.storage(num_retries=0)).glob(pattern)


def test_the_files_of_a_page_are_found(serve_http: Serve):
    page = "<a href='a.bin'>ä</a> <a href='b.txt'>b</a>".encode("latin-1")
    store = serve_http({"a/": page, "a/a.bin": b"content"})
    store.server.faults = always(
        alters(lambda response: Response(response.status, {**response.headers, **PAGE}, page))
    )
    pattern = store.url("a/*.bin")
    found = get_store(pattern, store.storage(num_retries=0)).glob(pattern)
    assert list(found) == [store.url("a/a.bin")]


# Zarr, which requests whole chunks, whose size is not known.


@pytest.fixture
def group(serve_http: Serve, tmp_path: Path) -> Store:
    numbers = np.arange(60).reshape(20, 3)
    zarr.create_array(tmp_path / "x", data=numbers, chunks=(5, 3))
    zarr.create_array(tmp_path / "s", data=numbers, chunks=(5, 3), shards=(10, 3))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    return serve_http({str(path.relative_to(tmp_path)): path.read_bytes() for path in files})


@pytest.mark.parametrize("name", ["x", "s"])
def test_secret_headers_of_zarr_do_not_follow_a_redirect_to_another_server(
    serve_http: Serve, group: Store, name: str
):
    received: list[dict[str, str]] = []

    def records(exchange: Exchange) -> None:
        received.append(exchange.headers)
        exchange.send(exchange.correct_response())

    group.server.faults = always(records)
    store = serve_http({})
    store.server.faults = lambda request: redirect_to(group.url(request.path.removeprefix("/")))
    storage = StorageOptions(filesystem={**store.filesystem, "headers": SECRETS}, num_retries=0)
    assert ZarrSource(store.url(name), storage=storage)[7]["array"].tolist() == [21, 22, 23]
    assert received
    assert "hunter2" not in str(received)


@pytest.mark.parametrize("announced", [None, ENDLESS])
@pytest.mark.parametrize("member", ["x/zarr.json", "x/c/1/0", "s/c/0/0"])
def test_a_chunk_of_zarr_is_not_read_beyond_the_bytes_that_it_may_have(
    group: Store, announced: int | None, member: str
):
    source = ZarrSource(group.url(member[0]), storage=group.storage(num_retries=0))
    sent: list[int] = []

    def floods(exchange: Exchange) -> None:
        headers = {} if announced is None else {"Content-Length": str(announced)}
        sent.append(exchange.send_endlessly(Response(200, headers), at_most=ENDLESS))

    group.server.faults = lambda request: floods if request.path.endswith(member) else None
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("gristmill._data.sources.arrays.zarr._MAX_METADATA_BYTES", MB)
        with pytest.raises(FileError):
            source[7]
    group.server.wait_until_idle(20)
    assert sent
    assert sum(sent) < len(sent) * SOCKET_BUFFERS


@pytest.mark.parametrize("lie", ["another encoding", "no content", "a redirect to nowhere"])
def test_a_chunk_of_zarr_without_a_successful_response_is_not_empty(group: Store, lie: str):
    source = ZarrSource(group.url("x"), storage=group.storage(num_retries=0))
    assert len(source) == 20
    group.server.faults = only_for("GET", always(LIES[lie]))
    with pytest.raises(StoreError):
        source[7]


def test_a_shard_of_a_server_without_ranges_is_read_as_a_whole(group: Store):
    group.server.faults = always(ignores_range)
    source = ZarrSource(group.url("s"), storage=group.storage())
    assert source[7]["array"].tolist() == [21, 22, 23]
