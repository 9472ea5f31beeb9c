"""Probe of an address: whether the head of a Ray cluster answers there, without Ray.

Ray itself would wait for a minute if nothing answers, and for half a minute if another process of
Ray does. So this sends one request that only a head knows, as gRPC does: over HTTP/2.
"""

import socket
import time

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
"""What an HTTP/2 connection begins with."""

_DATA, _HEADERS, _SETTINGS = 0, 1, 4
"""Types of HTTP/2 frames."""

_END_STREAM, _END_HEADERS = 1, 4
"""Flags of HTTP/2 frames."""

_EMPTY_MESSAGE = bytes(5)
"""A message of gRPC without fields: not compressed, of length 0."""

_HEAD_BYTES = 9
"""Bytes before the payload of a frame: its length, type, flags and stream."""

_LAST_TYPE, _MAX_FRAME_BYTES = 9, 1 << 15
"""Bounds of what a server of HTTP/2 sends first. Other protocols answer with letters."""

_GRPC = b"application/grpc"
_UNKNOWN_METHOD = b"grpc-status\x0212"
"""The header by which a server of gRPC answers that it does not know a method, with its length."""

OTHER_PORT = "another port of Ray answered, such as that of a node or of Ray Client"


def explain_no_answer(address: str, timeout_s: float) -> str | None:
    """Return why no head of a cluster responds at an address; `None` if one does.

    >>> explain_no_answer("localhost", 1.0)
    'it is not of the form "host:port"'
    """
    host, separator, port = address.rpartition(":")
    if not separator or not port.isdigit() or int(port) >= 1 << 16:
        return 'it is not of the form "host:port"'
    deadline = time.monotonic() + timeout_s
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout_s) as connection:
            connection.sendall(_request())
            answer = _answer(connection, deadline)
    except TimeoutError:
        return f"nothing answered within {timeout_s:g} s"
    except OSError as error:
        return str(error.strerror or error).lower()
    if _GRPC not in answer:
        return "something else answered"
    # A head that requires a token answers with another status, which Ray explains.
    return OTHER_PORT if _UNKNOWN_METHOD in answer else None


def _request() -> bytes:
    fields = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": b"/ray.rpc.NodeInfoGcsService/CheckAlive",
        b":authority": b"ray",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    # Each field as a literal that is not added to the table of the connection (RFC 7541, 6.2.2).
    headers = b"".join(
        bytes([0, len(name)]) + name + bytes([len(value)]) + value for name, value in fields.items()
    )
    return (
        _PREFACE
        + _frame(_SETTINGS, 0, 0, b"")
        + _frame(_HEADERS, _END_HEADERS, 1, headers)
        + _frame(_DATA, _END_STREAM, 1, _EMPTY_MESSAGE)
    )


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return (
        len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload
    )


def _answer(connection: socket.socket, deadline: float) -> bytes:
    """Return the first headers of the answer; nothing if what answers does not speak HTTP/2."""
    received = b""
    while True:
        while len(received) >= _HEAD_BYTES:
            stop = _HEAD_BYTES + int.from_bytes(received[:3], "big")
            if received[3] == _HEADERS and len(received) >= stop:
                return received[_HEAD_BYTES:stop]
            if received[3] > _LAST_TYPE or stop > _MAX_FRAME_BYTES:
                return b""
            if len(received) < stop:
                break
            received = received[stop:]
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = connection.recv(4096)
        if not chunk:
            return b""
        received += chunk
