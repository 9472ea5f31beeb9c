"""Read files from HTTP servers, and check the status and headers of each response first.

fsspec reads the body of any response to its end, and returns it whatever its headers are.
This module uses fsspec's session, and:

- reads a body only if the status, the range, the total size, the tag and the encoding are right;
- never reads more bytes than were requested.
"""

import re
from collections.abc import Callable, Mapping
from typing import IO, Any, final

from gristmill._io.file import FileRef
from gristmill._io.local import changed_error
from gristmill._io.stores.http_session import SIZE, check_encoding, read_bounded
from gristmill.errors import FileError, StoreError

_VERSION_HEADERS = ("ETag", "Content-MD5", "Digest", "Last-Modified")
_CONTENT_RANGE = re.compile(r"bytes (?P<first>\d{1,19})-(?P<last>\d{1,19})/(?P<total>\d{1,19}|\*)")


class NoRangesError(FileError):
    """A server can only return whole files. Never reaches the user."""


class StatusError(Exception):
    """A server responded with a status that is not a success."""

    def __init__(self, status: int, reason: str | None) -> None:
        super().__init__(f"HTTP status {status}{f' ({reason})' if reason else ''}")
        self.status = status


@final
class Sink:
    """An open file that a download is written to."""

    def __init__(self, file: IO[bytes], advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self._written = 0

    def write(self, chunk: bytes) -> None:
        """Append some bytes."""
        self._file.write(chunk)
        self._written += len(chunk)
        self._advance(len(chunk))

    def reset(self) -> None:
        """Remove all bytes, to start again."""
        self._file.seek(0)
        self._file.truncate()
        self._advance(-self._written)
        self._written = 0


def is_http(address: str) -> bool:
    """Return whether an address is that of an HTTP server.

    >>> is_http("https://host/a.csv"), is_http("s3://bucket/a.csv")
    (True, False)
    """
    return address.partition("://")[0].lower() in ("http", "https")


@final
class HttpClient:
    """Requests to HTTP servers in the session of an `HTTPFileSystem` of fsspec."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    async def info(self, address: str) -> dict[str, Any]:
        """Return the size and the version of a file, in the format of fsspec."""
        try:
            info = await self._info(address, "HEAD", {})
        except Exception:  # some servers, and some signed addresses, only allow GET
            info = {}
        if info.get("size") is None:
            info = await self._info(address, "GET", {"Range": "bytes=0-0"})
        return info

    async def _info(self, address: str, method: str, headers: Mapping[str, str]) -> dict[str, Any]:
        async with await self._send(method, address, headers) as response:
            try:
                size = _size_of(response)
            finally:
                response.close()  # without the body
        versions = {name: response.headers.get(name) for name in _VERSION_HEADERS}
        return {"name": address, "type": "file", "size": size, **versions}

    async def read_range(self, ref: FileRef, start: int, stop: int) -> bytes:
        """Return the bytes `[start, stop)` of a file.

        Raises:
            NoRangesError: If the server can only return the whole file.
            StoreError: If the response is not what was requested.
            ChangedFileError: If the file has changed.
        """
        if start == stop:
            return b""
        is_whole = (start, stop) == (0, ref.size)
        headers = {"Range": f"bytes={start}-{stop - 1}", **_precondition(ref)}
        async with await self._send("GET", ref.path, headers) as response:
            try:
                _check(response, ref)
                if response.status == 206:
                    check_range(response.headers.get("Content-Range", ""), ref, start, stop)
                elif not is_whole:
                    raise NoRangesError("The server ignores byte ranges.", path=ref.path)
                chunks: list[bytes] = []
                await _read_body(response, stop - start, chunks.append)
            except BaseException:
                response.close()
                raise
        return b"".join(chunks)

    async def read_whole(self, ref: FileRef, write: Callable[[bytes], None]) -> None:
        """Read all bytes of a file in one request, and pass them to `write` as they arrive."""
        async with await self._send("GET", ref.path, _precondition(ref)) as response:
            try:
                _check(response, ref)
                if response.status == 206:
                    check_range(response.headers.get("Content-Range", ""), ref, 0, ref.size)
                await _read_body(response, ref.size, write)
            except BaseException:
                response.close()
                raise

    async def read_object(self, address: str, max_bytes: int) -> bytes:
        """Return all bytes of a file whose size is not known, in one request.

        Raises:
            StoreError: If the response is not the file, or has more than `max_bytes`.
        """
        async with await self._send("GET", address, {}) as response:
            try:
                check_encoding(response)
                if response.status != 200:
                    raise StatusError(response.status, response.reason)
                return await read_bounded(response, max_bytes)
            except BaseException:
                response.close()
                raise

    async def _send(self, method: str, address: str, headers: Mapping[str, str]) -> Any:
        filesystem = self._filesystem
        options: dict[str, Any] = dict(filesystem.kwargs)
        merged = {**options.pop("headers", {}), **headers, "Accept-Encoding": "identity"}
        options.setdefault("allow_redirects", True)
        session = await filesystem.set_session()
        url = filesystem.encode_url(address)
        response = await session.request(method, url, headers=merged, **options)
        is_empty_range = response.status == 416 and method == "GET"
        if response.status not in (200, 206) and not is_empty_range:
            response.close()
            raise StatusError(response.status, response.reason)
        return response


def _size_of(response: Any) -> int | None:
    """Return the size of the file that the headers of a response report, if they do."""
    check_encoding(response)
    content_range = response.headers.get("Content-Range", "")
    if response.status in (206, 416):
        total = content_range.rpartition("/")[2]
        if response.status == 416 and total != "0":
            raise StatusError(416, response.reason)
        return int(total) if SIZE.fullmatch(total) else None
    length = response.headers.get("Content-Length", "")
    return int(length) if SIZE.fullmatch(length) else None


def _precondition(ref: FileRef) -> dict[str, str]:
    """Return the header that makes a server refuse a request for another version of the file."""
    tag = ref.version[1:-1]  # as `repr`
    is_strong_tag = len(tag) > 1 and tag[0] == tag[-1] == '"'  # a weak one never matches
    return {"If-Match": tag} if is_strong_tag else {}


def _check(response: Any, ref: FileRef) -> None:
    """Check that a response is about the version of the file that the ref was created for."""
    check_encoding(response)
    if response.status == 416:
        raise StatusError(416, response.reason)
    header = _header_of(ref.version)
    sent: str | None = None if header is None else response.headers.get(header)
    if sent is not None and repr(sent) != ref.version:
        raise changed_error(ref)
    if sent is None and header == "ETag":  # which a server must repeat, other than a date
        raise StoreError("the server sent no `ETag`, and sent one earlier")


def _header_of(version: str) -> str | None:
    """Return the header that a version was made from, as far as its form shows."""
    is_date = version.endswith(" GMT'")
    return "ETag" if is_tag(version) else "Last-Modified" if is_date else None


def is_tag(version: str) -> bool:
    """Return whether a version is the tag (`ETag`) of a file."""
    return version[1:2] == '"' or version[1:4] == 'W/"'


def check_range(sent: str, ref: FileRef, start: int, stop: int) -> None:
    """Check the header `Content-Range` of a response to a request for `[start, stop)`.

    Raises:
        StoreError: If it is another range, or that of a file of another size.
    """
    found = _CONTENT_RANGE.fullmatch(sent)
    if found is None:
        raise StoreError(f"the server sent a range that cannot be parsed, {sent[:80]!r}")
    if found["total"] not in ("*", str(ref.size)):
        raise StoreError(f"the server reports {found['total']} bytes, and earlier {ref.size:,}")
    if (int(found["first"]), int(found["last"])) != (start, stop - 1):
        raise StoreError(f"the server sent {sent!r}, and {start}-{stop - 1} was requested")


async def _read_body(response: Any, size: int, write: Callable[[bytes], None]) -> None:
    """Pass a body of exactly `size` bytes to `write`; stop at the first byte too many."""
    length = response.headers.get("Content-Length")
    if length is not None and length != str(size):
        raise StoreError(f"the server announces {length[:20]} bytes of the {size:,} requested")
    num_read = 0
    async for chunk in response.content.iter_any():
        num_read += len(chunk)
        if num_read > size:
            raise StoreError(f"the server sent more than the {size:,} bytes requested")
        write(chunk)
    if num_read < size:
        raise StoreError(f"got {num_read:,} bytes of the {size:,} requested")
