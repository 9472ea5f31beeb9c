"""Send requests to a remote store through fsspec, in fsspec's event loop."""

import asyncio
import os
import threading
import uuid
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeAlias, TypeVar, final

from gristmill._base.extras import load_extra
from gristmill._io.file import FileRef
from gristmill._io.local import changed_error
from gristmill._io.stores.http import HttpClient, NoRangesError, Sink, is_http
from gristmill._io.stores.http_session import http_options, too_large
from gristmill._io.stores.retry import with_retries
from gristmill._io.stores.s3 import S3Client, is_s3
from gristmill.errors import StoreError
from gristmill.options import StorageOptions

FileInfo: TypeAlias = Mapping[str, Any]
"""What fsspec returns about a file: its size, its type, and keys that differ between stores."""

_VERSION_KEYS = ("ETag", "etag", "md5Hash", "Content-MD5", "Digest", "generation", "version_id")
_DATE_KEYS = ("mtime", "LastModified", "Last-Modified", "last_modified", "updated", "created")

_UNCACHED = {"skip_instance_cache": True, "use_listings_cache": False}
"""Makes fsspec create a new filesystem object, which queries the store for each lookup."""

_UNKNOWN_VERSION = "unknown "
"""The prefix of the version of a file whose store reports no version."""

_MAX_SIZE_LOOKUPS = 3

_MIN_BYTES_PER_S = 10**6
"""The download of a whole file times out if it is slower than this."""

T = TypeVar("T")

_stores: dict[tuple[int, str, str], "Store"] = {}
_lock = threading.Lock()


def get_store(address: str, storage: StorageOptions) -> "Store":
    """Return the store of an address. All its files share one object per process."""
    protocol = address.partition("://")[0]
    key = os.getpid(), protocol, f"{storage!r} {sorted(storage.filesystem.items())!r}"
    with _lock:
        if key not in _stores:
            _stores[key] = Store(address, storage)
        return _stores[key]


def safe_options(address: str, storage: StorageOptions) -> Mapping[str, Any]:
    """Return options for fsspec with which it sends the user's headers to no other server."""
    return http_options(storage.filesystem) if is_http(address) else storage.filesystem


def make_ref(address: str, info: FileInfo, storage: StorageOptions) -> FileRef:
    """Return the ref of a file from what its store reports about it."""
    size = info.get("size")
    if size is None:
        raise StoreError(
            "The store does not report the size of the file, so it cannot be read in ranges. "
            "Download it first.",
            path=address,
        )
    versions = [_as_version(info[key]) for key in (*_VERSION_KEYS, *_DATE_KEYS) if info.get(key)]
    return FileRef(
        path=address,
        size=int(size),
        # If unknown, the version is unique, so that cached data of this file is never used for a
        # later file of the same size.
        version=versions[0] if versions else _UNKNOWN_VERSION + uuid.uuid4().hex,
        is_local=False,
        storage=storage,
    )


def is_unchanged(ref: FileRef, now: FileRef) -> bool:
    """Return whether a file is still the same, as far as its store reports."""
    is_known = not ref.version.startswith(_UNKNOWN_VERSION)
    return ref.size == now.size and (ref.version == now.version or not is_known)


def _as_version(value: object) -> str:
    """Return a tag or a date as a string. A listing may use another time zone than a lookup."""
    return repr(value.timestamp() if isinstance(value, datetime) else value)


@final
class PendingRequest:
    """A request that runs in the event loop."""

    def __init__(self, future: "Future[bytes | Exception]") -> None:
        self._future = future

    def result(self) -> bytes:
        """Wait for the request; return its bytes or raise its error."""
        result = self._future.result()
        if isinstance(result, Exception):
            raise result
        return result

    async def wait(self) -> bytes:
        """Wait for the request in another event loop; return its bytes or raise its error."""
        result = await asyncio.wrap_future(self._future)
        if isinstance(result, Exception):
            raise result
        return result

    def cancel(self) -> None:
        """Cancel the request if it has not finished."""
        self._future.cancel()


@final
class Store:
    """A remote store: makes requests for files and byte ranges, several at the same time."""

    def __init__(self, address: str, storage: StorageOptions) -> None:
        wanted_by = f"Reading {address!r}"
        fsspec = load_extra("fsspec", extra="fsspec", wanted_by=wanted_by)
        self._asyn = load_extra("fsspec.asyn", extra="fsspec", wanted_by=wanted_by)
        try:
            options = safe_options(address, storage)
            plain, _ = fsspec.core.url_to_fs(address, **_UNCACHED, **options)
        except (ImportError, ValueError, TypeError) as error:
            raise StoreError(
                f"fsspec cannot open this store: {str(error).rstrip('.')}.", path=address
            ) from None
        if isinstance(getattr(plain, "retries", None), int):
            plain.retries = 1  # of S3 and Google Cloud Storage: this module does the retries
        if is_s3(plain):  # whose library retries, too, for seconds if there is no such host
            no_retries = {"retries": {"total_max_attempts": 1}}
            plain.config_kwargs = no_retries | plain.config_kwargs
        self._plain: Any = plain
        self._fs: Any = plain
        if not plain.async_impl:
            module = "fsspec.implementations.asyn_wrapper"
            wrapper = load_extra(module, extra="fsspec", wanted_by=wanted_by)
            self._fs = wrapper.AsyncFileSystemWrapper(plain, asynchronous=False)
        self._http = HttpClient(plain) if is_http(address) else None
        self._client = S3Client(plain) if is_s3(plain) else self._http
        self._storage = storage
        self._gate = asyncio.Semaphore(storage.num_parallel)

    def info(self, address: str) -> FileInfo:
        """Return what the store reports about a file."""
        return self._wait(self._look_up(address))

    def glob(self, pattern: str) -> dict[str, FileInfo]:
        """Return what the store reports about the files that match, sorted by address."""
        return self._wait(self._list("glob", pattern))

    def find(self, folder: str) -> dict[str, FileInfo]:
        """Return what the store reports about all files below a folder, sorted by address."""
        return self._wait(self._list("find", folder))

    async def _list(self, method: str, address: str) -> dict[str, FileInfo]:
        """Return the files that a method of fsspec lists, and look up sizes that it leaves out.

        The page on which an HTTP server lists files has none.
        """
        found: Mapping[str, FileInfo] = await self._request(method, address, detail=True)
        files = {
            self._plain.unstrip_protocol(name): found[name]
            for name in sorted(found)
            if found[name].get("type") != "directory"
        }
        unknown = [name for name, info in files.items() if info.get("size") is None]
        files.update(zip(unknown, await asyncio.gather(*map(self._look_up, unknown)), strict=True))
        return files

    def submit_check(self, ref: FileRef) -> PendingRequest:
        """Start to check that a file is unchanged; the result is empty or a `ChangedFileError`."""

        async def check() -> bytes | Exception:
            try:
                info = await self._look_up(ref.path)
                now = make_ref(ref.path, info, ref.storage)
                return b"" if is_unchanged(ref, now) else changed_error(ref)
            except Exception as error:
                return error

        return PendingRequest(asyncio.run_coroutine_threadsafe(check(), self._loop()))

    def submit(self, ref: FileRef, start: int, stop: int) -> PendingRequest:
        """Start to read one byte range."""

        async def read() -> bytes | Exception:
            try:
                return await self._read_range(ref, start, stop)
            except Exception as error:  # returned: not every request is waited for
                return error

        return PendingRequest(asyncio.run_coroutine_threadsafe(read(), self._loop()))

    def submit_object(self, address: str, max_bytes: int) -> PendingRequest:
        """Start to read all of a file whose size is not known, unless that is too large."""

        async def request() -> bytes:
            if self._client is not None:
                return await self._client.read_object(address, max_bytes)
            data: bytes = await self._call("cat_file", address)
            if len(data) > max_bytes:
                raise too_large(len(data), max_bytes)
            return data

        async def read() -> bytes | Exception:
            try:
                return await self._retry(request, address)
            except Exception as error:  # as above
                return error

        return PendingRequest(asyncio.run_coroutine_threadsafe(read(), self._loop()))

    async def _read_range(self, ref: FileRef, start: int, stop: int) -> bytes:
        async def request() -> bytes:
            if self._client is not None:
                return await self._client.read_range(ref, start, stop)
            data: bytes = await self._call("cat_file", ref.path, start=start, end=stop)
            if len(data) == ref.size and stop - start < ref.size:
                raise NoRangesError("The server ignores byte ranges.", path=ref.path)
            if len(data) != stop - start:
                raise StoreError(f"got {len(data):,} bytes of the {stop - start:,} requested")
            return data

        return await with_retries(request, address=ref.path, gate=self._gate, options=self._storage)

    def read_whole(self, ref: FileRef, sink: Sink) -> None:
        """Read a file in one request, with a time limit that grows with its size.

        Args:
            ref: The file.
            sink: Gets the bytes. It is emptied before each attempt.
        """
        timeout_s = self._storage.timeout_s + ref.size / _MIN_BYTES_PER_S
        options = replace(self._storage, timeout_s=timeout_s)

        async def request() -> None:
            sink.reset()
            if self._client is not None:
                await self._client.read_whole(ref, sink.write)
                return
            data: bytes = await self._call("cat_file", ref.path)
            if len(data) != ref.size:
                raise StoreError(f"got {len(data):,} bytes of a file of {ref.size:,}")
            sink.write(data)

        self._wait(with_retries(request, address=ref.path, gate=self._gate, options=options))

    async def _look_up(self, address: str) -> FileInfo:
        info: FileInfo = {}
        http = self._http
        for _ in range(_MAX_SIZE_LOOKUPS):
            if http is not None:
                info = await self._retry(lambda: http.info(address), address)
            else:
                info = await self._request("info", address)
            if info.get("size") is not None or info.get("type") == "directory":
                break  # otherwise a response was cut off, and fsspec left the size out
        return info

    async def _request(self, method: str, address: str, **arguments: Any) -> Any:
        return await self._retry(lambda: self._call(method, address, **arguments), address)

    async def _retry(self, request: Callable[[], Coroutine[Any, Any, T]], address: str) -> T:
        return await with_retries(request, address=address, gate=self._gate, options=self._storage)

    def _call(self, method: str, address: str, **arguments: Any) -> Coroutine[Any, Any, Any]:
        # For each of its methods, fsspec has a coroutine of the same name with an underscore.
        strip = getattr(self._plain, "_strip_protocol")  # noqa: B009
        return getattr(self._fs, f"_{method}")(strip(address), **arguments)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._asyn.get_loop()
