"""Real stores on loopback with injected faults: HTTP, and S3 behind a proxy.

    faults = on_first_attempts(2, fails_with(503), resets_midway)
    with http_server({"a.bin": data}, faults=faults) as store:
        find_file(store.url("a.bin"), store.storage(num_retries=3))

A fault schedule selects the fault of each request, if any. Random faults depend on the request, so
that the same requests have the same faults in every run, in any order.
"""

import contextlib
import hashlib
import http.client
import logging
import os
import random
import re
import selectors
import socket
import struct
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol, cast, final
from urllib.parse import unquote, urlsplit

import boto3
from moto.server import ThreadedMotoServer

from gristmill.options import StorageOptions
from tests.time_limits import PATIENCE_S

LOOPBACK = "127.0.0.1"


@final
@dataclass(frozen=True)
class Request:
    """A request of a client."""

    attempt: int
    """The number of identical requests before."""
    method: str
    path: str
    query: str
    span: tuple[int, int | None] | None
    """The requested byte range `[start, stop)`; `None` for the whole file."""


@final
@dataclass(frozen=True)
class Response:
    """A response of a server."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


Fault = Callable[["Exchange"], None]
"""Handles a request with a fault."""

FaultSchedule = Callable[[Request], Fault | None]
"""Selects the fault of a request."""


# Faults.


def fails_with(status: int) -> Fault:
    """Respond with an error status, in the format of S3."""
    codes = {403: "AccessDenied", 404: "NoSuchKey", 429: "SlowDown", 503: "SlowDown"}
    code = codes.get(status, "InternalError")
    body = (
        f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected fault</Message></Error>"
    )

    def fault(exchange: "Exchange") -> None:
        exchange.send(Response(status, {"Content-Type": "application/xml"}, body.encode()))

    return fault


def stalls(exchange: "Exchange") -> None:
    """Never respond."""
    exchange.hold()


def stalls_midway(exchange: "Exchange") -> None:
    """Stop sending after half of the bytes, without closing the connection."""
    exchange.send_half()
    exchange.hold()


def resets_midway(exchange: "Exchange") -> None:
    """Reset the connection after half of the bytes."""
    exchange.send_half()
    exchange.disconnect(reset=True)


def closes_midway(exchange: "Exchange") -> None:
    """Close the connection, without a reset, after half of the announced bytes."""
    exchange.send_half()
    exchange.disconnect()


def returns_less(exchange: "Exchange") -> None:
    """Respond with half of the requested range, and announce that length, as servers may."""
    response = exchange.correct_response()
    if response.status == 206:
        body = response.body[: len(response.body) // 2]
        start, rest = response.headers["Content-Range"].removeprefix("bytes ").split("-")
        content_range = f"bytes {start}-{int(start) + len(body) - 1}/{rest.split('/')[1]}"
        length = {"Content-Length": str(len(body))}
        response = Response(
            206, {**response.headers, "Content-Range": content_range, **length}, body
        )
    exchange.send(response)


def ignores_range(exchange: "Exchange") -> None:
    """Respond with the whole file, even if a range of it was requested."""
    exchange.send(exchange.correct_response(ranged=False))


def omits_length(exchange: "Exchange") -> None:
    """Respond without a length: the end of the connection is the end of the bytes."""
    exchange.send(exchange.correct_response(), with_length=False)


def omits_length_and_ignores_range(exchange: "Exchange") -> None:
    """Respond with the whole file, and nothing in the headers that reports its size."""
    exchange.send(exchange.correct_response(ranged=False), with_length=False)


def waits_for(num_requests: int, *, timeout_s: float = PATIENCE_S) -> Fault:
    """Respond correctly, but only once `num_requests` are in flight at the same time."""

    def fault(exchange: "Exchange") -> None:
        exchange.server.wait_until_in_flight(num_requests, timeout_s)
        exchange.send(exchange.correct_response())

    return fault


# Fault schedules.


def never(request: Request) -> None:
    """No request has a fault."""


def always(fault: Fault) -> FaultSchedule:
    """Every request has the fault."""
    return lambda request: fault


def on_first_attempts(times: int, *faults: Fault) -> FaultSchedule:
    """The first `times` attempts of each request have faults, each of `faults` in turn."""
    return lambda request: (
        faults[request.attempt % len(faults)] if request.attempt < times else None
    )


def at_random(probability: float, *faults: Fault, seed: int = 0, at_most: int = 6) -> FaultSchedule:
    """Requests have a fault with a probability, each one of `faults`.

    After `at_most` attempts a request succeeds: the default number of retries is enough, however
    the attempts of several threads and the random names of buckets fall out.
    """

    def select(request: Request) -> Fault | None:
        if request.attempt >= at_most:
            return None
        key = (seed, request.attempt, request.method, request.path, request.query, request.span)
        rng = random.Random(repr(key))
        return rng.choice(faults) if rng.random() < probability else None

    return select


def only_for(method: str, schedule: FaultSchedule) -> FaultSchedule:
    """Restrict a schedule to the requests of one method, `GET` or `HEAD`."""
    return lambda request: schedule(request) if request.method == method else None


# Backends.


class Backend(Protocol):
    """Makes the correct response to a request."""

    def __call__(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Response: ...


class FileBackend:
    """Files in memory, which a test may change while they are served."""

    def __init__(self, files: Mapping[str, bytes], *, sends_etags: bool) -> None:
        self._files: dict[str, tuple[bytes, str]] = {}
        self._changes = Counter[str]()
        self._sends_etags = sends_etags
        for name, data in files.items():
            self.put(name, data)

    def put(self, name: str, data: bytes) -> None:
        """Add or replace a file."""
        self._changes[name] += 1
        self._files[name] = data, f'"{hashlib.blake2b(data, digest_size=8).hexdigest()}"'

    def remove(self, name: str) -> None:
        """Remove a file."""
        del self._files[name]

    def __call__(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Return a file, or the range of it that the headers request."""
        name = unquote(urlsplit(target).path).lstrip("/")
        if name not in self._files:
            return Response(404, body=b"not here")
        data, tag = self._files[name]
        date = formatdate(self._changes[name] * 3600.0, usegmt=True)
        if headers.get("If-Match", tag) != tag:
            return Response(412)
        response_headers = {"ETag": tag} if self._sends_etags else {"Last-Modified": date}
        response_headers |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        span = span_of(headers.get("Range"))
        if span is None or method == "HEAD":
            return Response(200, response_headers, data)
        start = span[0] if span[0] >= 0 else max(0, len(data) + span[0])
        stop = len(data) if span[1] is None else min(span[1], len(data))
        if start >= stop:
            return Response(416, {"Content-Range": f"bytes */{len(data)}"})
        response_headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Response(206, response_headers, data[start:stop])


class ProxyBackend:
    """Another server on this machine."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def __call__(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Response:
        """Forward a request."""
        with contextlib.closing(http.client.HTTPConnection(*self._address)) as connection:
            connection.request(method, target, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            headers = {name.title(): value for name, value in response.getheaders()}
            forwarded = {name: value for name, value in headers.items() if name not in _HOP_HEADERS}
            return Response(response.status, forwarded, response.read())


_HOP_HEADERS = {"Connection", "Keep-Alive", "Transfer-Encoding", "Server", "Date"}


def span_of(header: str | None) -> tuple[int, int | None] | None:
    """Parse a `Range` header; a negative start counts from the end.

    >>> span_of("bytes=3-9"), span_of("bytes=3-"), span_of("bytes=-3"), span_of(None)
    ((3, 10), (3, None), (-3, None), None)
    """
    found = re.fullmatch(r"bytes=(\d*)-(\d*)", header or "")
    if found is None or found.group() == "bytes=-":
        return None
    start, last = found.groups()
    if not start:
        return -int(last), None
    return int(start), int(last) + 1 if last else None


# The server.


class FaultyServer(ThreadingHTTPServer):
    """Responds from a backend, with scheduled faults, and logs all requests."""

    daemon_threads = False  # `server_close` waits for them, so that none outlives the test
    request_queue_size = 256

    def __init__(self, backend: Backend, faults: FaultSchedule) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.backend = backend
        self.faults = faults
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._attempts: Counter[tuple[object, ...]] = Counter()
        self._num_in_flight = 0
        self._max_in_flight = 0
        self._connections: set[socket.socket] = set()
        self._is_closed = False
        self._ends = socket.socketpair()  # readable at one end once the server closes
        self.errors: list[BaseException] = []

    @property
    def requests(self) -> list[Request]:
        """All requests so far."""
        with self._changed:
            return list(self._requests)

    @property
    def max_in_flight(self) -> int:
        """The maximum number of concurrent requests."""
        with self._changed:
            return self._max_in_flight

    def reset_log(self) -> None:
        """Forget all requests so far."""
        with self._changed:
            self._requests.clear()
            self._attempts.clear()
            self._max_in_flight = self._num_in_flight

    @contextlib.contextmanager
    def in_flight(
        self, method: str, path: str, query: str, span: tuple[int, int | None] | None
    ) -> Iterator[Request]:
        """Log a request, and count it as in flight while the block runs."""
        with self._changed:
            key = (method, path, query, span)
            request = Request(self._attempts[key], *key)
            self._attempts[key] += 1
            self._requests.append(request)
            self._num_in_flight += 1
            self._max_in_flight = max(self._max_in_flight, self._num_in_flight)
            self._changed.notify_all()
        try:
            yield request
        finally:
            with self._changed:
                self._num_in_flight -= 1
                self._changed.notify_all()

    def wait_until_in_flight(self, num_requests: int, timeout_s: float) -> None:
        """Wait until `num_requests` were in flight at the same time, or for the timeout."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._max_in_flight >= num_requests or self._is_closed, timeout_s
            )

    def wait_for_request(self, matches: Callable[[Request], bool], timeout_s: float) -> None:
        """Wait for a request that matches."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(matches, self._requests)), timeout_s)

    def wait_until_idle(self, timeout_s: float) -> None:
        """Wait until no request is in flight."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._num_in_flight == 0, timeout_s)

    def wait_for_disconnect(self, connection: socket.socket) -> None:
        """Wait until the client disconnects, or the server closes."""
        with selectors.DefaultSelector() as selector:  # `select` takes no descriptor past 1,023
            for watched in (connection, self._ends[0]):
                selector.register(watched, selectors.EVENT_READ)
            while self._ends[0] not in [key.fileobj for key, _ in selector.select()]:
                with contextlib.suppress(ConnectionError):
                    if connection.recv(65536):
                        continue  # more requests, which get no response
                return

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept the next connection."""
        connection, address = super().get_request()
        with self._changed:
            self._connections.add(connection)
            if self._is_closed:
                connection.shutdown(socket.SHUT_RDWR)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Close a connection."""
        with self._changed:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect; any other error is a bug of the tests."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.errors.append(error)

    def server_close(self) -> None:
        """Close all connections and wait for their threads."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            self._ends[1].send(b".")
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        super().server_close()
        for end in self._ends:
            end.close()


class Exchange:
    """One request and its response, with methods for faults."""

    def __init__(self, handler: "_Handler", body: bytes) -> None:
        self._handler = handler
        self._body = body
        self.server = cast("FaultyServer", handler.server)
        self.method = handler.command

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request."""
        return dict(self._handler.headers.items())

    def send_endlessly(self, response: Response, *, at_most: int) -> int:
        """Send the head of a response, and zeros until the client disconnects; return how many."""
        self._send_head(response, with_length="Content-Length" in response.headers)
        self._handler.close_connection = True
        num_sent = 0
        with contextlib.suppress(ConnectionError):
            while num_sent < at_most:
                num_sent += self._handler.connection.send(bytes(2**16))
        return num_sent

    def correct_response(self, *, ranged: bool = True) -> Response:
        """Return the correct response, or the one to the same request without a range."""
        headers = dict(self._handler.headers.items())
        if not ranged:
            headers.pop("Range", None)
        return self.server.backend(self.method, self._handler.path, headers, self._body)

    def send(self, response: Response, *, with_length: bool = True) -> None:
        """Send a complete response."""
        self._send_head(response, with_length=with_length)
        if self.method != "HEAD":
            self._handler.wfile.write(response.body)

    def send_half(self) -> None:
        """Send the head of the correct response and half of its bytes, if it has any."""
        response = self.correct_response()
        if self.method != "HEAD" and len(response.body) > 1:
            self._send_head(response, with_length=True)
            self._handler.wfile.write(response.body[: len(response.body) // 2])

    def hold(self) -> None:
        """Keep the connection open until the client or the test closes it."""
        self._handler.close_connection = True
        self.server.wait_for_disconnect(self._handler.connection)

    def disconnect(self, *, reset: bool = False) -> None:
        """Close the connection; with a reset, bytes in transit are lost."""
        self._handler.close_connection = True
        if reset:
            no_linger = struct.pack("ii", 1, 0)
            self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
            os.close(self._handler.connection.detach())  # `close` would wait for its file objects

    def _send_head(self, response: Response, *, with_length: bool) -> None:
        headers = dict(response.headers)
        length = headers.pop("Content-Length", str(len(response.body)))
        self._handler.send_response(response.status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        if with_length:
            self._handler.send_header("Content-Length", length)
        else:
            self._handler.send_header("Connection", "close")  # the handler closes it
        self._handler.end_headers()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 0

    def _handle(self) -> None:
        server = cast("FaultyServer", self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url, span = urlsplit(self.path), span_of(self.headers.get("Range"))
        with server.in_flight(self.command, unquote(url.path), url.query, span) as request:
            exchange = Exchange(self, body)
            fault = server.faults(request)
            try:
                exchange.send(exchange.correct_response()) if fault is None else fault(exchange)
            except ConnectionError:  # the client has disconnected
                self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 (names of the base class)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


# Stores for tests.


@final
@dataclass(frozen=True)
class Store:
    """Files in a store, and its server."""

    server: FaultyServer
    root: str
    """The address of the files: `http://127.0.0.1:1234/`, `s3://bucket/`."""
    filesystem: Mapping[str, Any]
    """The options that fsspec needs."""
    put: Callable[[str, bytes], None]
    """Adds or replaces a file."""
    remove: Callable[[str], None]

    def url(self, name: str) -> str:
        """Return the address of a file or a pattern."""
        return self.root + name

    def storage(self, **options: Any) -> StorageOptions:
        """Return the options to read from this store."""
        return StorageOptions(filesystem=self.filesystem, **options)

    @property
    def requests(self) -> list[Request]:
        """All requests so far."""
        return self.server.requests

    def num_bytes(self) -> int:
        """Return the number of bytes requested so far, in ranges with an end."""
        spans = [request.span for request in self.gets() if request.span is not None]
        return sum(stop - start for start, stop in spans if stop is not None)

    def gets(self, name: str = "") -> list[Request]:
        """Return the requests so far for the bytes of a file, or of any file."""
        return [
            request
            for request in self.requests
            if request.method == "GET" and request.path.endswith(name) and not request.query
        ]


@contextlib.contextmanager
def http_server(
    files: Mapping[str, bytes], *, faults: FaultSchedule = never, sends_etags: bool = True
) -> Iterator[Store]:
    """Serve files over HTTP, with ETags, or only with dates as the simplest servers do."""
    backend = FileBackend(files, sends_etags=sends_etags)
    with _running(FaultyServer(backend, faults)) as server:
        yield Store(
            server,
            root=f"http://{LOOPBACK}:{server.server_port}/",
            filesystem={"client_kwargs": {"trust_env": False}},  # no proxies
            put=backend.put,
            remove=backend.remove,
        )


@final
@dataclass(frozen=True)
class S3:
    """A working S3 server, and a proxy in front of it that injects faults."""

    client: Any
    """A client of the working server."""
    server: FaultyServer
    filesystem: Mapping[str, Any]


@contextlib.contextmanager
def moto_server() -> Iterator[S3]:
    """Run an S3 server without buckets."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs a line for each request
    moto = ThreadedMotoServer(LOOPBACK, port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    region = {"region_name": "us-east-1"}
    client = boto3.client(
        "s3",
        endpoint_url=f"http://{host}:{port}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        **region,
    )
    try:
        with _running(FaultyServer(ProxyBackend(host, port), never)) as server:
            filesystem = {
                "endpoint_url": f"http://{LOOPBACK}:{server.server_port}",
                "key": "key",
                "secret": "secret",
                "client_kwargs": region,
                "config_kwargs": {"proxies": {}},
            }
            yield S3(client, server, filesystem)
    finally:
        client.close()
        moto.stop()


@contextlib.contextmanager
def s3_server(
    s3: S3, files: Mapping[str, bytes], *, bucket: str = "bucket", faults: FaultSchedule = never
) -> Iterator[Store]:
    """Serve files in a bucket, with faults injected between the client and moto's S3.

    Only one bucket at a time may use the log of requests.
    """

    def put(name: str, data: bytes) -> None:
        s3.client.put_object(Bucket=bucket, Key=name, Body=data)

    def remove(name: str) -> None:
        s3.client.delete_object(Bucket=bucket, Key=name)

    s3.client.create_bucket(Bucket=bucket)
    for name, data in files.items():
        put(name, data)
    s3.server.reset_log()
    s3.server.faults = faults
    try:
        yield Store(s3.server, f"s3://{bucket}/", s3.filesystem, put, remove)
    finally:
        s3.server.faults = never
        s3.server.wait_until_idle(PATIENCE_S)
        for entry in s3.client.list_objects_v2(Bucket=bucket).get("Contents", []):
            remove(entry["Key"])
        s3.client.delete_bucket(Bucket=bucket)


@contextlib.contextmanager
def _running(server: FaultyServer) -> Iterator[FaultyServer]:
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert not server.errors, server.errors
