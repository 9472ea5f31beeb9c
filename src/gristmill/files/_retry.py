"""Ask a store again for what it did not give."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from gristmill.errors import (
    FileError,
    ForbiddenFileError,
    MissingFileError,
    StoreError,
)
from gristmill.options import StorageOptions

FIRST_PAUSE_S = 0.1
"""The pause before the second attempt; it doubles from then on."""

LONGEST_PAUSE_S = 20.0

_MISSING = (404, 410)
_FORBIDDEN = (401, 403)
_WORTH_ASKING_AGAIN = (408, 409, 425, 429)

T = TypeVar("T")


async def with_retries(
    ask: Callable[[], Awaitable[T]],
    *,
    address: str,
    gate: asyncio.Semaphore,
    options: StorageOptions,
) -> T:
    """Await what `ask` gives, again and again if need be, or explain why there is no more to do.

    The gate lets a few requests through at a time; pauses, and waiting for it, are outside.
    """
    for attempt in range(options.num_retries + 1):
        if attempt:
            longest = min(FIRST_PAUSE_S * 2 ** (attempt - 1), LONGEST_PAUSE_S)
            # Not all at the same moment: what one of many clients does, the others do, too.
            await asyncio.sleep(longest * random.uniform(0.5, 1.0))
        try:
            async with gate:
                return await asyncio.wait_for(ask(), options.timeout_s)
        except Exception as error:
            cause = _root(error)
            final = _final(cause, address)
            if final is not None:
                raise final from error
            if attempt == options.num_retries:
                raise _gave_up(cause, address, options) from error
    raise AssertionError("the last attempt returns or raises")


def _root(error: Exception) -> Exception:
    """Give what is behind an error: fsspec says `FileNotFoundError` for whatever went wrong."""
    cause = error.__cause__
    is_of_http = type(cause).__module__.partition(".")[0] == "aiohttp"
    is_unclear = is_of_http or isinstance(cause, ConnectionError | TimeoutError)
    if isinstance(error, FileNotFoundError) and isinstance(cause, Exception) and is_unclear:
        return _root(cause)
    return error


def _final(error: Exception, address: str) -> FileError | None:
    """Give the error to raise at once, where asking again is of no use."""
    status: Any = getattr(error, "status", None)
    if isinstance(error, FileError) and not isinstance(error, StoreError):
        return error
    if isinstance(error, FileNotFoundError) or status in _MISSING:
        return MissingFileError("There is no such file. Check the address.", path=address)
    if isinstance(error, PermissionError) or status in _FORBIDDEN:
        return ForbiddenFileError(
            "The store does not let this process read the file. Give it credentials with "
            "`StorageOptions(filesystem={...})`, or in the environment.",
            path=address,
        )
    is_refusal = isinstance(status, int) and 400 <= status < 500
    if is_refusal and status not in _WORTH_ASKING_AGAIN:
        return StoreError(f"The store answered {status}: {error}.", path=address)
    if isinstance(error, TypeError | ValueError | NotImplementedError | IsADirectoryError):
        return StoreError(f"The store cannot be read so: {_told(error)}.", path=address)
    return None


def _gave_up(error: Exception, address: str, options: StorageOptions) -> StoreError:
    if isinstance(error, TimeoutError):
        told = f"it took longer than {options.timeout_s:g} s"
    else:
        told = _told(error)
    times = options.num_retries + 1
    return StoreError(
        f"The store did not give the file in {times} attempt{'s' * (times > 1)}; the last time: "
        f"{told}. Try again later, or raise `num_retries` or `timeout_s` in `StorageOptions`.",
        path=address,
    )


def _told(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.rstrip(".")
