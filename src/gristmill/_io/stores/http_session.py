"""Make the sessions in which fsspec requests files and pages from HTTP servers.

fsspec and aiohttp trust servers and logs with more than they should. In these sessions:

- the user's headers, passwords and cookies, which may be secrets, follow no redirect to another
  server. aiohttp sends those of a session to any server, so they become headers of requests;
- no body is decompressed, and pages, which list files, are read up to a limit;
- debug messages of fsspec show no credentials.
"""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from http.cookies import SimpleCookie
from typing import Any

from gristmill._addresses import strip_credentials
from gristmill._base.extras import load_extra
from gristmill.errors import StoreError

SIZE = re.compile(r"\d{1,19}")
"""A size as servers write it."""

_PUBLIC_HEADERS = {
    "accept",
    "accept-encoding",
    "accept-language",
    "if-match",
    "if-range",
    "range",
    "user-agent",
}
"""Headers that may be sent to another server. Any other one may be a secret."""

MAX_PAGE_BYTES = 2**25
"""A page of a server that lists some 100,000 files has 10 to 15 MB."""


def http_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options for fsspec, for sessions that trust no server with more than it needs.

    Args:
        options: The options of the user, for an `HTTPFileSystem` of fsspec.
    """
    http = load_extra("fsspec.implementations.http", extra="fsspec", wanted_by="Reading over HTTP")
    aiohttp = load_extra("aiohttp", extra="fsspec", wanted_by="Reading over HTTP")
    make_client: Callable[..., Awaitable[Any]] = options.get("get_client", http.get_client)
    logging.getLogger("fsspec.http").addFilter(_remove_credentials)

    async def get_client(**arguments: Any) -> Any:
        trace = aiohttp.TraceConfig()
        trace.on_request_redirect.append(_remove_secrets)
        arguments["trace_configs"] = [*(arguments.get("trace_configs") or ()), trace]
        response_class = arguments.get("response_class", aiohttp.ClientResponse)
        arguments["response_class"] = _bounded(response_class)
        arguments["auto_decompress"] = False
        return await make_client(**arguments)

    return {**_with_secrets_in_headers(options, aiohttp), "get_client": get_client}


async def _remove_secrets(session: Any, context: Any, redirect: Any) -> None:
    """Remove headers from a request that is redirected to another server."""
    response = redirect.response
    location = response.headers.get("Location") or response.headers.get("URI")
    target = None if location is None else response.url.join(type(response.url)(location))
    if target is None or _origin(target) != _origin(response.url):
        for name in [name for name in redirect.headers if name.lower() not in _PUBLIC_HEADERS]:
            redirect.headers.popall(name, None)


def _origin(url: Any) -> tuple[object, ...]:
    return url.scheme, url.host, url.port


def _with_secrets_in_headers(options: Mapping[str, Any], aiohttp: Any) -> dict[str, Any]:
    """Return options in which passwords and cookies are headers of each request."""
    request = dict(options)
    session = dict(options.get("client_kwargs") or {})
    cookies: SimpleCookie = SimpleCookie()
    headers: dict[str, tuple[str, Any]] = {}
    for arguments in (session, request):  # those of a request come last, and win
        for name, value in dict(arguments.get("headers") or {}).items():
            headers[str(name).lower()] = str(name), value
        if "cookies" in arguments:
            arguments["cookies"] = _take_cookies(arguments["cookies"], cookies)
    if "authorization" not in headers:
        for arguments in (session, request):
            if isinstance(arguments.get("auth"), aiohttp.BasicAuth):
                headers["authorization"] = "Authorization", arguments.pop("auth").encode()
    if cookies:
        pairs = [f"{cookie.key}={cookie.coded_value}" for cookie in cookies.values()]
        if "cookie" in headers:
            pairs.insert(0, headers["cookie"][1])
        headers["cookie"] = "Cookie", "; ".join(pairs)
    return {**request, "headers": dict(headers.values()), "client_kwargs": session}


def _take_cookies(given: Any, taken: SimpleCookie) -> SimpleCookie:
    """Move the cookies that have no domain, which any server would get; return the others."""
    others: SimpleCookie = SimpleCookie()
    pairs: Any = dict(given or {})
    for name, value in pairs.items():
        others[name] = value
    for name in [name for name, cookie in others.items() if not cookie["domain"]]:
        taken[name] = others.pop(name)
    return others


def _bounded(response_class: Any) -> Any:
    """Return a class of responses that are read as pages up to a limit, and never unpacked."""

    class Page(response_class):
        async def text(self, encoding: str | None = None, errors: str = "strict") -> str:
            try:
                check_encoding(self)
                page = await read_bounded(self, MAX_PAGE_BYTES)
            except StoreError as error:  # which fsspec would take for an empty folder
                raise ValueError(str(error)) from None
            return page.decode(encoding or "utf-8", errors)

    return Page


async def read_bounded(response: Any, max_bytes: int) -> bytes:
    """Return the body of a response.

    Raises:
        StoreError: If it has more than `max_bytes`, of which no more are then read.
    """
    length = response.headers.get("Content-Length", "")
    size = int(length) if SIZE.fullmatch(length) else None
    if size is not None and size > max_bytes:
        raise too_large(size, max_bytes)
    chunks: list[bytes] = []
    num_read = 0
    async for chunk in response.content.iter_any():
        num_read += len(chunk)
        if num_read > max_bytes:
            raise too_large(num_read, max_bytes)
        chunks.append(chunk)
    if size not in (None, num_read):
        raise StoreError(f"got {num_read:,} bytes of the {size:,} announced")
    return b"".join(chunks)


def check_encoding(response: Any) -> None:
    """Check that a body is not compressed: nothing bounds the size of its content."""
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() not in ("identity", ""):
        raise StoreError(f"the server sent it with the encoding {encoding[:40]!r}")


def too_large(num_bytes: int, max_bytes: int) -> StoreError:
    """Return the error for a file that has more bytes than it may have."""
    return StoreError(f"the server sends {num_bytes:,} bytes or more of at most {max_bytes:,}")


def _remove_credentials(record: logging.LogRecord) -> bool:
    """Remove credentials from the message of fsspec, which logs addresses as they are."""
    message = record.getMessage()
    stripped = strip_credentials(message)
    if stripped != message:
        record.msg, record.args = stripped, ()
    return True
