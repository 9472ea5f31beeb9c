"""Retry failed requests to a store, with exponential backoff."""

import asyncio
import random
import socket
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import urlsplit

from gristmill._addresses import strip_credentials
from gristmill._base.log_once import log_once
from gristmill._printable import printable
from gristmill.errors import (
    FileError,
    ForbiddenFileError,
    MissingFileError,
    StoreError,
)
from gristmill.options import StorageOptions

INITIAL_BACKOFF_S = 0.1
"""The maximum wait before the first retry. It doubles for each further retry."""

MAX_BACKOFF_S = 20.0

_MAX_LOOKUPS_OF_CREDENTIALS = 3
"""Attempts if the library of a store finds no credentials. On a machine of a cloud it asks a local
service for them, which may be overloaded for a moment; elsewhere there are none."""

_NO_CREDENTIALS = ("NoCredentialsError", "DefaultCredentialsError")
"""The names of such errors, of botocore and of google.auth."""

_MISSING_STATUSES = (404, 410)
_FORBIDDEN_STATUSES = (401, 403)
_RETRYABLE_STATUSES = (408, 409, 425, 429)
"""Client errors (4xx) that may not occur again."""

T = TypeVar("T")


async def with_retries(
    request: Callable[[], Awaitable[T]],
    *,
    address: str,
    gate: asyncio.Semaphore,
    options: StorageOptions,
) -> T:
    """Return the result of a request, retrying it as often as the options allow.

    Args:
        request: Makes the request. Called once per attempt.
        address: The address of the file, for error messages.
        gate: Limits the number of concurrent requests. The time spent waiting for it, and the
            waits between attempts, do not count towards the time limit of a request.
        options: The number of retries and the time limit.

    Raises:
        FileError: If the request cannot succeed, or all attempts failed.
    """
    for attempt in range(options.num_retries + 1):
        if attempt:
            backoff_s = min(INITIAL_BACKOFF_S * 2 ** (attempt - 1), MAX_BACKOFF_S)
            # Random, because many clients that fail together must not retry together.
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))
        try:
            async with gate:
                return await asyncio.wait_for(request(), options.timeout_s)
        except Exception as error:
            cause = _root_cause(error)
            permanent = _as_permanent(cause, address, attempt)
            if permanent is not None:
                raise permanent from _without_secrets(error)
            if attempt == options.num_retries:
                raise _exhausted(cause, address, options) from _without_secrets(error)
            _log_retry(cause, address, options)
    raise AssertionError("the last attempt returns or raises")


def _without_secrets(error: Exception) -> Exception | None:
    """Return an error for the traceback, or `None` if it or one of its causes shows credentials."""
    link: BaseException | None = error
    while link is not None:
        shown = f"{link} {link!r}"
        if shown != strip_credentials(shown):
            return None
        link = link.__cause__ or link.__context__
    return error


def _root_cause(error: Exception) -> Exception:
    """Return the cause of an error: fsspec raises `FileNotFoundError` for any HTTP problem."""
    cause = error.__cause__
    is_from_aiohttp = type(cause).__module__.partition(".")[0] == "aiohttp"
    is_transient = is_from_aiohttp or isinstance(cause, ConnectionError | TimeoutError)
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and is_transient:
        return _root_cause(cause)
    return error


def _as_permanent(error: Exception, address: str, attempt: int) -> FileError | None:
    """Return the error to raise at once, or `None` if a retry may succeed."""
    is_last_lookup = attempt + 1 >= _MAX_LOOKUPS_OF_CREDENTIALS
    if type(error).__name__ in _NO_CREDENTIALS and is_last_lookup:
        return ForbiddenFileError(
            "No credentials for the store were found. Set them in the environment, or pass them "
            "with `StorageOptions(filesystem={...})`; a public S3 bucket is read with "
            '`StorageOptions(filesystem={"anon": True})`.',
            path=address,
        )
    status: object = getattr(error, "status", None)
    if isinstance(error, FileError) and not isinstance(error, StoreError):
        return error
    if isinstance(error, FileNotFoundError) or status in _MISSING_STATUSES:
        return MissingFileError("There is no such file. Check the address.", path=address)
    if isinstance(error, PermissionError) or status in _FORBIDDEN_STATUSES:
        return ForbiddenFileError(
            "The store does not allow this process to read the file. Pass credentials with "
            "`StorageOptions(filesystem={...})`, or set them in the environment.",
            path=address,
        )
    if _is_unknown_host(error):
        return StoreError("There is no host of this name. Check the address.", path=address)
    is_client_error = isinstance(status, int) and 400 <= status < 500
    if is_client_error and status not in _RETRYABLE_STATUSES:
        return StoreError(f"The store answered {status}: {error}.", path=address)
    if isinstance(error, TypeError | ValueError | NotImplementedError | IsADirectoryError):
        return StoreError(f"The store cannot be read like this: {_describe(error)}.", path=address)
    return None


def _is_unknown_host(error: BaseException | None) -> bool:
    """Return whether an error was caused by a host name that does not exist."""
    while error is not None:
        reason = getattr(error, "os_error", error)  # as aiohttp wraps it
        if isinstance(reason, socket.gaierror):
            return reason.errno == socket.EAI_NONAME
        error = error.__cause__ or error.__context__
    return False


def _exhausted(error: Exception, address: str, options: StorageOptions) -> StoreError:
    num_attempts = options.num_retries + 1
    return StoreError(
        f"The store did not return the file in {num_attempts} attempt{'s' * (num_attempts > 1)}; "
        f"the last error: {_reason(error, options)}. Try again later, or raise `num_retries` or "
        "`timeout_s` in `StorageOptions`.",
        path=address,
    )


def _log_retry(error: Exception, address: str, options: StorageOptions) -> None:
    """Log that requests to a host are retried, once for each host: else the program seems to hang.

    Args:
        error: The error of the request.
        address: The address of the file.
        options: The number of retries and the time limit.
    """
    host = urlsplit(strip_credentials(address)).netloc.rpartition("@")[2]
    backoffs = (INITIAL_BACKOFF_S * 2**retry for retry in range(options.num_retries))
    longest_s = sum(min(backoff_s, MAX_BACKOFF_S) for backoff_s in backoffs)
    log_once(
        f"retries {host}",
        "A request to %s failed and is repeated up to %d times within %.0f s (`num_retries` of "
        "`StorageOptions`), apart from the requests themselves: %s.",
        printable(host),
        options.num_retries,
        max(1.0, longest_s),
        printable(strip_credentials(_reason(error, options))),
    )


def _reason(error: Exception, options: StorageOptions) -> str:
    is_late = isinstance(error, TimeoutError)
    return f"it took longer than {options.timeout_s:g} s" if is_late else _describe(error)


def _describe(error: Exception) -> str:
    if type(error).__name__ == "TooManyRedirects":  # of aiohttp, whose message is empty
        num_redirects = len(getattr(error, "history", ()))
        return f"the server sent {num_redirects} redirects in a row, which may be a loop"
    return (str(error) or type(error).__name__).rstrip(".")
