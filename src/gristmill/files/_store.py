"""One filesystem of fsspec's, in its event loop."""

import asyncio
import os
import threading
import uuid
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar, final

from gristmill._extras import load_extra
from gristmill.errors import FileError, StoreError
from gristmill.files._file import FileRef
from gristmill.files._local import changed
from gristmill.files._retry import with_retries
from gristmill.options import StorageOptions

_VERSION_KEYS = ("ETag", "etag", "md5Hash", "Content-MD5", "Digest", "generation", "version_id")
_DATE_KEYS = ("mtime", "LastModified", "Last-Modified", "last_modified", "updated", "created")

_PRIVATE = {"skip_instance_cache": True, "use_listings_cache": False}
"""A filesystem of our own, which asks the store each time how a file is."""

_UNKNOWN = "unknown "
"""How the version of a file begins that its store tells none of."""

_TRIES_FOR_SIZE = 3

_SLOW = 10**6
"""Bytes that come in a second, at least."""

T = TypeVar("T")

_stores: dict[tuple[int, str, str], "Store"] = {}
_lock = threading.Lock()


def store_of(address: str, storage: StorageOptions) -> "Store":
    """Give the store of an address; one for all files in it."""
    protocol = address.partition("://")[0]
    key = os.getpid(), protocol, f"{storage!r} {sorted(storage.filesystem.items())!r}"
    with _lock:
        if key not in _stores:
            _stores[key] = Store(address, storage)
        return _stores[key]


def ref_from(address: str, info: Mapping[str, Any], storage: StorageOptions) -> FileRef:
    """Make a ref of what a store tells about a file."""
    size = info.get("size")
    if size is None:
        raise StoreError(
            "The store does not tell how long the file is, so that no part of it can be asked "
            "for. Download it first.",
            path=address,
        )
    tags = [_tag(info[key]) for key in (*_VERSION_KEYS, *_DATE_KEYS) if info.get(key)]
    return FileRef(
        path=address,
        size=int(size),
        # Nobody else's: what is kept of this file must not be taken for a later one of its size.
        version=tags[0] if tags else _UNKNOWN + uuid.uuid4().hex,
        is_local=False,
        storage=storage,
    )


def is_same(ref: FileRef, now: FileRef) -> bool:
    """Tell whether a file is still the one it was, as far as its store tells."""
    is_known = not ref.version.startswith(_UNKNOWN)
    return ref.size == now.size and (ref.version == now.version or not is_known)


def _tag(value: Any) -> str:
    """Give a tag in words; times in one way, as a listing may tell them in another."""
    return repr(value.timestamp() if isinstance(value, datetime) else value)


class NoRangesError(FileError):
    """A server gives whole files only."""


@final
class Reply:
    """Bytes that are on their way."""

    def __init__(self, future: "Future[bytes | Exception]") -> None:
        self._future = future

    def result(self) -> bytes:
        """Wait for them."""
        given = self._future.result()
        if isinstance(given, Exception):
            raise given
        return given

    def cancel(self) -> None:
        """Let nobody wait for them."""
        self._future.cancel()


@final
class Store:
    """Asks for files and parts of files, some at the same time."""

    def __init__(self, address: str, storage: StorageOptions) -> None:
        wanted_by = f"Reading {address!r}"
        fsspec = load_extra("fsspec", extra="fsspec", wanted_by=wanted_by)
        self._asyn: Any = load_extra("fsspec.asyn", extra="fsspec", wanted_by=wanted_by)
        try:
            plain, _ = fsspec.core.url_to_fs(address, **_PRIVATE, **storage.filesystem)
        except (ImportError, ValueError, TypeError) as error:
            raise StoreError(
                f"fsspec cannot open this store: {str(error).rstrip('.')}.", path=address
            ) from error
        if isinstance(getattr(plain, "retries", None), int):
            plain.retries = 1  # S3's and Google's: we ask again ourselves
        self._plain: Any = plain
        self._fs: Any = plain
        if not plain.async_impl:
            module = "fsspec.implementations.asyn_wrapper"
            wrapper = load_extra(module, extra="fsspec", wanted_by=wanted_by)
            self._fs = wrapper.AsyncFileSystemWrapper(plain, asynchronous=False)
        self._storage = storage
        self._gate = asyncio.Semaphore(storage.num_parallel)

    def info(self, address: str) -> Mapping[str, Any]:
        """Look a file up."""
        return self._wait(self._look_up(address))

    def glob(self, pattern: str) -> dict[str, Mapping[str, Any]]:
        """Give what there is to tell about the files that match, sorted by address."""
        return self._files(self._wait(self._ask("glob", pattern, detail=True)))

    def find(self, folder: str) -> dict[str, Mapping[str, Any]]:
        """Give what there is to tell about all files in a folder and below, sorted by address."""
        return self._files(self._wait(self._ask("find", folder, detail=True)))

    def _files(self, found: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
        return {
            self._plain.unstrip_protocol(name): found[name]
            for name in sorted(found)
            if found[name].get("type") != "directory"
        }

    def submit_check(self, ref: FileRef) -> "Reply":
        """Begin to see whether a file is still the one it was."""

        async def check() -> bytes | Exception:
            try:
                info = await self._look_up(ref.path)
                return b"" if is_same(ref, ref_from(ref.path, info, ref.storage)) else changed(ref)
            except Exception as error:
                return error

        return Reply(asyncio.run_coroutine_threadsafe(check(), self._loop()))

    def submit(self, ref: FileRef, start: int, stop: int) -> "Reply":
        """Begin to read one range."""

        async def read() -> bytes | Exception:
            try:
                return await self._range(ref, start, stop)
            except Exception as error:  # not raised there: of many, only one may be waited for
                return error

        return Reply(asyncio.run_coroutine_threadsafe(read(), self._loop()))

    async def _range(self, ref: FileRef, start: int, stop: int) -> bytes:
        async def ask() -> bytes:
            data: bytes = await self._call("cat_file", ref.path, start=start, end=stop)
            if len(data) == ref.size and stop - start < ref.size:
                raise NoRangesError("The server takes no notice of ranges.", path=ref.path)
            if len(data) != stop - start:
                raise StoreError(f"{len(data):,} bytes came where {stop - start:,} were asked for")
            return data

        return await with_retries(ask, address=ref.path, gate=self._gate, options=self._storage)

    def read_whole(self, ref: FileRef) -> bytes:
        """Read a file in one request, however long that takes."""
        patient = replace(self._storage, timeout_s=self._storage.timeout_s + ref.size / _SLOW)

        async def ask() -> bytes:
            data: bytes = await self._call("cat_file", ref.path)
            if len(data) != ref.size:
                raise StoreError(f"{len(data):,} bytes came, and the file has {ref.size:,}")
            return data

        return self._wait(with_retries(ask, address=ref.path, gate=self._gate, options=patient))

    async def _look_up(self, address: str) -> Mapping[str, Any]:
        info: Mapping[str, Any] = {}
        for _ in range(_TRIES_FOR_SIZE):
            info = await self._ask("info", address)
            if info.get("size") is not None or info.get("type") == "directory":
                break  # where the first answer was cut off, fsspec may go on without the size
        return info

    async def _ask(self, verb: str, address: str, **arguments: Any) -> Any:
        return await with_retries(
            lambda: self._call(verb, address, **arguments),
            address=address,
            gate=self._gate,
            options=self._storage,
        )

    def _call(self, verb: str, address: str, **arguments: Any) -> Coroutine[Any, Any, Any]:
        # fsspec has a coroutine for each of its verbs, by the same name with an underscore.
        strip = getattr(self._plain, "_strip_protocol")  # noqa: B009
        return getattr(self._fs, f"_{verb}")(strip(address), **arguments)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(work, self._loop())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._asyn.get_loop()
