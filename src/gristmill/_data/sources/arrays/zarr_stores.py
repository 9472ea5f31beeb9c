"""Stores of Zarr that read files as other sources do, within bounds."""

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

from gristmill._addresses import strip_credentials
from gristmill._io.file import FileRef
from gristmill._io.stores.http import NoRangesError
from gristmill._io.stores.remote import find
from gristmill._io.stores.store import Store, get_store, safe_options
from gristmill.errors import MissingFileError, StoreError
from gristmill.options import StorageOptions

OpenStore: TypeAlias = Callable[[int], Any]
"""Returns a store over files of at most so many bytes."""


def find_store(zarr: Any, path: str, storage: StorageOptions) -> OpenStore:
    """Return a function that opens a folder, with a limit for the files in it."""
    if "://" not in path:
        return partial(_local_store, zarr, path)
    return _find_remote_store(zarr, path, storage)


def _find_remote_store(zarr: Any, address: str, storage: StorageOptions) -> OpenStore:
    """Return a function that opens a folder of a remote store, with a limit for its files.

    Files are requested with retries, and responses are checked, as those of other sources. Only
    lists of files come from fsspec directly.
    """
    options = dict(safe_options(address, storage))
    listed = zarr.storage.FsspecStore.from_url(address, storage_options=options, read_only=True)
    files = get_store(address, storage)
    return lambda max_bytes: _remote_store(zarr, listed, files, storage, max_bytes)


def _local_store(zarr: Any, folder: str, max_bytes: int) -> Any:
    """Return a store over the regular files of a folder, of at most `max_bytes`.

    Others may never end, such as pipes and devices, to which links may lead.
    """
    files: Any = zarr.storage.LocalStore(folder, read_only=True)

    class _LocalStore(zarr.storage.WrapperStore):
        async def get(self, key: str, *args: Any, **options: Any) -> Any:
            with suppress(OSError):  # a file that is missing is one of zeros; others fail below
                found = os.stat(os.path.join(folder, key))
                is_usual = stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)
                if not is_usual or found.st_size > max_bytes:
                    raise ValueError(
                        f"{key!r} is not a regular file of at most {max_bytes:,} bytes"
                    )
            return await files.get(key, *args, **options)

    return _LocalStore(files)


def _remote_store(
    zarr: Any, listed: Any, files: Store, storage: StorageOptions, max_bytes: int
) -> Any:
    """Return a store over files of at most `max_bytes`.

    Args:
        zarr: The library.
        listed: The store that lists the files.
        files: The store that reads them.
        storage: How they are read.
        max_bytes: What a file may have.
    """
    root = listed.fs.unstrip_protocol(listed.path).rstrip("/")
    refs: dict[str, FileRef] = {}

    class _RemoteStore(zarr.storage.WrapperStore):
        def __str__(self) -> str:  # in warnings of zarr
            return strip_credentials(root)

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            address = f"{root}/{key}" if key else root
            try:
                if byte_range is None:
                    data = await files.submit_object(address, max_bytes).wait()
                else:
                    data = await self._get_range(address, byte_range)
            except MissingFileError:
                return None  # such as a chunk with nothing but the fill value
            return prototype.buffer.from_bytes(data)

        async def _get_range(self, address: str, byte_range: Any) -> bytes:
            """Return a part of a shard, which has several chunks."""
            if address not in refs:
                refs[address] = await asyncio.to_thread(find, address, storage)
            ref = refs[address]
            start, stop = _as_span(zarr, byte_range, ref.size)
            if not 0 <= start <= stop <= ref.size or stop - start > max_bytes:
                raise StoreError(
                    f"The shard has a chunk in the bytes {start:,} to {stop:,} of {ref.size:,}.",
                    path=address,
                )
            try:
                return await files.submit(ref, start, stop).wait()
            except NoRangesError:
                return (await files.submit_object(address, max_bytes).wait())[start:stop]

    return _RemoteStore(listed)


def _as_span(zarr: Any, byte_range: Any, size: int) -> tuple[int, int]:
    kinds = zarr.abc.store
    if isinstance(byte_range, kinds.SuffixByteRequest):
        return max(0, size - byte_range.suffix), size
    if isinstance(byte_range, kinds.OffsetByteRequest):
        return byte_range.offset, size
    return byte_range.start, byte_range.end
