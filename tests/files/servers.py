"""Real stores on loopback that misbehave as they are told: HTTP, and S3 behind a proxy.

    with http_server({"a.bin": data}, faults=on({0: answers(503), 2: cuts})) as store:
        find_file(store.url("a.bin"), store.storage(num_retries=3))

A plan of faults says for each request what goes wrong with it, if anything. It goes by the number
of a request, or by chance: then the same requests meet the same faults in every run, in whatever
order they come.
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

PATIENCE_S = 20.0
"""Only a test that fails waits so long."""

LOOPBACK = "127.0.0.1"


@final
@dataclass(frozen=True)
class Request:
    """What a client asked for."""

    number: int
    """On this server, from 0."""
    attempt: int
    """How often just the same was asked for before."""
    method: str
    path: str
    query: str
    span: tuple[int, int | None] | None
    """`[start, stop)` of the bytes; None for all of them."""


@final
@dataclass(frozen=True)
class Answer:
    """What a server gives."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b""


Fault = Callable[["Exchange"], None]
"""Answers a request, badly."""

Plan = Callable[[Request], Fault | None]
"""Says what goes wrong with a request."""


# What can go wrong.


def answers(status: int) -> Fault:
    """Give an error, as HTTP and S3 have them."""
    codes = {403: "AccessDenied", 404: "NoSuchKey", 429: "SlowDown", 503: "SlowDown"}
    code = codes.get(status, "InternalError")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>told to</Message></Error>"

    def fault(exchange: "Exchange") -> None:
        exchange.send(Answer(status, {"Content-Type": "application/xml"}, body.encode()))

    return fault


def stalls(exchange: "Exchange") -> None:
    """Say nothing at all."""
    exchange.hold()


def stalls_midway(exchange: "Exchange") -> None:
    """Say nothing more after half of the bytes."""
    exchange.send_part()
    exchange.hold()


def cuts(exchange: "Exchange") -> None:
    """Reset the connection after half of the bytes."""
    exchange.send_part()
    exchange.hang_up(reset=True)


def stops_short(exchange: "Exchange") -> None:
    """Close the connection, in good order, after half of the bytes that were announced."""
    exchange.send_part()
    exchange.hang_up()


def gives_less(exchange: "Exchange") -> None:
    """Give half of the range that was asked for, and announce no more, as servers may."""
    answer = exchange.ask()
    if answer.status == 206:
        body = answer.body[: len(answer.body) // 2]
        start, rest = answer.headers["Content-Range"].removeprefix("bytes ").split("-")
        told = f"bytes {start}-{int(start) + len(body) - 1}/{rest.split('/')[1]}"
        length = {"Content-Length": str(len(body))}
        answer = Answer(206, {**answer.headers, "Content-Range": told, **length}, body)
    exchange.send(answer)


def ignores_range(exchange: "Exchange") -> None:
    """Give the whole file, whatever part of it was asked for."""
    exchange.send(exchange.ask(ranged=False))


def tells_no_length(exchange: "Exchange") -> None:
    """Give all bytes, but let the end of the connection say where they end."""
    exchange.send(exchange.ask(), with_length=False)


def waits_for(num_requests: int, *, patience_s: float = PATIENCE_S) -> Fault:
    """Answer well, but only once so many requests are under way at the same time."""

    def fault(exchange: "Exchange") -> None:
        exchange.server.wait_until_under_way(num_requests, patience_s)
        exchange.send(exchange.ask())

    return fault


# When it goes wrong.


def never(request: Request) -> None:
    """Nothing goes wrong."""


def always(fault: Fault) -> Plan:
    """Every request goes wrong."""
    return lambda request: fault


def on(faults: Mapping[int, Fault]) -> Plan:
    """Requests go wrong by their number."""
    return lambda request: faults.get(request.number)


def until_asked(times: int, *faults: Fault) -> Plan:
    """Whatever is asked for goes wrong the first `times` times, by each of the faults in turn."""
    return lambda request: (
        faults[request.attempt % len(faults)] if request.attempt < times else None
    )


def by_chance(probability: float, *faults: Fault, seed: int = 0) -> Plan:
    """Requests go wrong with a probability, each by one of the faults."""

    def plan(request: Request) -> Fault | None:
        asked = (seed, request.attempt, request.method, request.path, request.query, request.span)
        chance = random.Random(repr(asked))
        return chance.choice(faults) if chance.random() < probability else None

    return plan


def only_for(method: str, plan: Plan) -> Plan:
    """Keep a plan to the requests of one method, `GET` or `HEAD`."""
    return lambda request: plan(request) if request.method == method else None


# What is served.


class Backend(Protocol):
    """Where a server has its answers from."""

    def __call__(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes
    ) -> Answer: ...


class FileBackend:
    """Files in memory, which a test may change while they are served."""

    def __init__(self, files: Mapping[str, bytes], *, tells_tags: bool) -> None:
        self._files: dict[str, tuple[bytes, str]] = {}
        self._changes = Counter[str]()
        self._tells_tags = tells_tags
        for name, data in files.items():
            self.put(name, data)

    def put(self, name: str, data: bytes) -> None:
        """Put a file there, or another in place of one."""
        self._changes[name] += 1
        self._files[name] = data, f'"{hashlib.blake2b(data, digest_size=8).hexdigest()}"'

    def remove(self, name: str) -> None:
        """Take a file away."""
        del self._files[name]

    def __call__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Give a file, or the span of it that the headers ask for."""
        name = unquote(urlsplit(target).path).lstrip("/")
        if name not in self._files:
            return Answer(404, body=b"not here")
        data, tag = self._files[name]
        date = formatdate(self._changes[name] * 3600.0, usegmt=True)
        if headers.get("If-Match", tag) != tag:
            return Answer(412)
        told = {"ETag": tag} if self._tells_tags else {"Last-Modified": date}
        told |= {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}
        span = span_of(headers.get("Range"))
        if span is None or method == "HEAD":
            return Answer(200, told, data)
        start = span[0] if span[0] >= 0 else max(0, len(data) + span[0])
        stop = len(data) if span[1] is None else min(span[1], len(data))
        if start >= stop:
            return Answer(416, {"Content-Range": f"bytes */{len(data)}"})
        told["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return Answer(206, told, data[start:stop])


class ProxyBackend:
    """Another server on this machine."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)

    def __call__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """Pass a request on."""
        with contextlib.closing(http.client.HTTPConnection(*self._address)) as connection:
            connection.request(method, target, body, {**headers, "Connection": "close"})
            response = connection.getresponse()
            headers = {name.title(): value for name, value in response.getheaders()}
            told = {name: value for name, value in headers.items() if name not in _PER_HOP}
            return Answer(response.status, told, response.read())


_PER_HOP = {"Connection", "Keep-Alive", "Transfer-Encoding", "Server", "Date"}


def span_of(header: str | None) -> tuple[int, int | None] | None:
    """Read a `Range` header; a negative start counts from the end.

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
    """Answers from a backend, and by a plan of faults; knows what it was asked for."""

    daemon_threads = False  # `server_close` waits for them: none outlives the test
    request_queue_size = 256

    def __init__(self, backend: Backend, faults: Plan) -> None:
        super().__init__((LOOPBACK, 0), _Handler)
        self.backend = backend
        self.faults = faults
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._asked: Counter[tuple[object, ...]] = Counter()
        self._num_under_way = 0
        self._most_under_way = 0
        self._connections: set[socket.socket] = set()
        self._is_closed = False
        self._ends = socket.socketpair()  # readable at one end once the server closes
        self.mistakes: list[BaseException] = []

    @property
    def requests(self) -> list[Request]:
        """All requests so far."""
        with self._changed:
            return list(self._requests)

    @property
    def most_under_way(self) -> int:
        """How many requests there were at the same time, at most."""
        with self._changed:
            return self._most_under_way

    def forget(self) -> None:
        """Count from here."""
        with self._changed:
            self._requests.clear()
            self._asked.clear()
            self._most_under_way = self._num_under_way

    @contextlib.contextmanager
    def under_way(
        self, method: str, path: str, query: str, span: tuple[int, int | None] | None
    ) -> Iterator[Request]:
        """Take a request down, and count it as long as it takes."""
        with self._changed:
            asked = (method, path, query, span)
            request = Request(len(self._requests), self._asked[asked], *asked)
            self._asked[asked] += 1
            self._requests.append(request)
            self._num_under_way += 1
            self._most_under_way = max(self._most_under_way, self._num_under_way)
            self._changed.notify_all()
        try:
            yield request
        finally:
            with self._changed:
                self._num_under_way -= 1
                self._changed.notify_all()

    def wait_until_under_way(self, num_requests: int, patience_s: float) -> None:
        """Wait until there were so many requests at the same time; give up in the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._most_under_way >= num_requests or self._is_closed, patience_s
            )

    def wait_until_asked(self, what: Callable[[Request], bool], patience_s: float) -> None:
        """Wait for a request."""
        with self._changed:
            assert self._changed.wait_for(lambda: any(map(what, self._requests)), patience_s)

    def wait_until_idle(self, patience_s: float) -> None:
        """Wait until nothing is under way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._num_under_way == 0, patience_s)

    def wait_for_end_of(self, connection: socket.socket) -> None:
        """Wait until the client hangs up, or the server closes."""
        with selectors.DefaultSelector() as selector:  # `select` takes no descriptor past 1,023
            for watched in (connection, self._ends[0]):
                selector.register(watched, selectors.EVENT_READ)
            while self._ends[0] not in [key.fileobj for key, _ in selector.select()]:
                with contextlib.suppress(ConnectionError):
                    if connection.recv(65536):
                        continue  # more requests, which nobody will answer
                return

    def get_request(self) -> tuple[socket.socket, Any]:
        """Take the next connection."""
        connection, address = super().get_request()
        with self._changed:
            self._connections.add(connection)
            if self._is_closed:
                connection.shutdown(socket.SHUT_RDWR)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection, and close it."""
        with self._changed:
            self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Take it as it comes that clients hang up; anything else is a mistake of the tests."""
        error = sys.exception()
        if error is not None and not isinstance(error, ConnectionError):
            self.mistakes.append(error)

    def server_close(self) -> None:
        """Let go of everybody, and wait until they are gone."""
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
    """One request and the answer to it, with all the ways to get that wrong."""

    def __init__(self, handler: "_Handler", body: bytes) -> None:
        self._handler = handler
        self._body = body
        self.server = cast("FaultyServer", handler.server)
        self.method = handler.command

    def ask(self, *, ranged: bool = True) -> Answer:
        """Give the right answer: to what was asked, or to the same without a range."""
        headers = dict(self._handler.headers.items())
        if not ranged:
            headers.pop("Range", None)
        return self.server.backend(self.method, self._handler.path, headers, self._body)

    def send(self, answer: Answer, *, with_length: bool = True) -> None:
        """Give an answer as a whole."""
        self._send_head(answer, with_length=with_length)
        if self.method != "HEAD":
            self._handler.wfile.write(answer.body)

    def send_part(self) -> None:
        """Give the head of the right answer and half of its bytes; nothing where it has none."""
        answer = self.ask()
        if self.method != "HEAD" and len(answer.body) > 1:
            self._send_head(answer, with_length=True)
            self._handler.wfile.write(answer.body[: len(answer.body) // 2])

    def hold(self) -> None:
        """Keep the connection open, until the client or the test has enough of it."""
        self._handler.close_connection = True
        self.server.wait_for_end_of(self._handler.connection)

    def hang_up(self, *, reset: bool = False) -> None:
        """Close the connection; with a reset, what is still on its way is lost."""
        self._handler.close_connection = True
        if reset:
            no_linger = struct.pack("ii", 1, 0)
            self._handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_linger)
            os.close(self._handler.connection.detach())  # `close` would wait for the files on it

    def _send_head(self, answer: Answer, *, with_length: bool) -> None:
        headers = dict(answer.headers)
        told = headers.pop("Content-Length", str(len(answer.body)))
        self._handler.send_response(answer.status)
        for name, value in headers.items():
            self._handler.send_header(name, value)
        if with_length:
            self._handler.send_header("Content-Length", told)
        else:
            self._handler.send_header("Connection", "close")  # and so does the handler
        self._handler.end_headers()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 0

    def _answer(self) -> None:
        server = cast("FaultyServer", self.server)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url, span = urlsplit(self.path), span_of(self.headers.get("Range"))
        with server.under_way(self.command, unquote(url.path), url.query, span) as request:
            exchange = Exchange(self, body)
            fault = server.faults(request)
            try:
                exchange.send(exchange.ask()) if fault is None else fault(exchange)
            except ConnectionError:  # the client has hung up
                self.close_connection = True

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815 (their names)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


# Stores, as tests see them.


@final
@dataclass(frozen=True)
class Store:
    """Files in a store, and the server that gives them."""

    server: FaultyServer
    root: str
    """Where the files are: `http://127.0.0.1:1234/`, `s3://bucket/`."""
    filesystem: Mapping[str, Any]
    """What fsspec needs to get there."""
    put: Callable[[str, bytes], None]
    """Puts a file there, or another in place of one."""
    remove: Callable[[str], None]

    def url(self, name: str) -> str:
        """Give the address of a file, or of a pattern."""
        return self.root + name

    def storage(self, **options: Any) -> StorageOptions:
        """Give options to read from here."""
        return StorageOptions(filesystem=self.filesystem, **options)

    @property
    def requests(self) -> list[Request]:
        """All requests so far."""
        return self.server.requests

    def num_bytes(self) -> int:
        """Give how many bytes were asked for so far, in ranges with an end."""
        spans = [request.span for request in self.gets() if request.span is not None]
        return sum(stop - start for start, stop in spans if stop is not None)

    def gets(self, name: str = "") -> list[Request]:
        """Give the requests so far for the bytes of a file, or of any."""
        return [
            request
            for request in self.requests
            if request.method == "GET" and request.path.endswith(name) and not request.query
        ]


@contextlib.contextmanager
def http_server(
    files: Mapping[str, bytes], *, faults: Plan = never, tells_tags: bool = True
) -> Iterator[Store]:
    """Serve files over HTTP; with tags, or with dates only as the simplest of servers do."""
    backend = FileBackend(files, tells_tags=tells_tags)
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
    """An S3 that works, and the server in front of it that does not."""

    client: Any
    """Goes to what works."""
    server: FaultyServer
    filesystem: Mapping[str, Any]


@contextlib.contextmanager
def moto_server() -> Iterator[S3]:
    """Run an S3 with no buckets yet."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request otherwise
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
                # One attempt each: boto waits seconds between them, and ours are to be seen.
                "config_kwargs": {"retries": {"total_max_attempts": 1}, "proxies": {}},
            }
            yield S3(client, server, filesystem)
    finally:
        client.close()
        moto.stop()


@contextlib.contextmanager
def s3_server(
    s3: S3, files: Mapping[str, bytes], *, bucket: str = "bucket", faults: Plan = never
) -> Iterator[Store]:
    """Serve files in a bucket; what goes wrong does so between the client and moto's S3.

    There is one bucket at a time whose requests count.
    """

    def put(name: str, data: bytes) -> None:
        s3.client.put_object(Bucket=bucket, Key=name, Body=data)

    def remove(name: str) -> None:
        s3.client.delete_object(Bucket=bucket, Key=name)

    s3.client.create_bucket(Bucket=bucket)
    for name, data in files.items():
        put(name, data)
    s3.server.forget()
    s3.server.faults = faults
    try:
        yield Store(s3.server, f"s3://{bucket}/", s3.filesystem, put, remove)
    finally:
        s3.server.faults = never
        s3.server.wait_until_idle(PATIENCE_S)
        for one in s3.client.list_objects_v2(Bucket=bucket).get("Contents", []):
            remove(one["Key"])
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
    assert not server.mistakes, server.mistakes
