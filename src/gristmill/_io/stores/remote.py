"""Read files in remote stores, many byte ranges at the same time.

All requests run in fsspec's event loop, which has its own thread in each process. The calling
thread waits for the results and can be interrupted at any time.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import final

from gristmill._io.byte_ranges import merge_ranges, split_merged
from gristmill._io.file import CHUNK_BYTES, File, FileRef
from gristmill._io.folders.cache import BlockCache, download
from gristmill._io.local import LocalFile, find_local, folder_error, truncated_error
from gristmill._io.stores.http import NoRangesError, Sink
from gristmill._io.stores.store import PendingRequest, get_store, make_ref
from gristmill.errors import StoreError
from gristmill.options import StorageOptions
from gristmill.types import Indices

_MAX_GAP_BYTES = 128 * 1024
"""Reading this many unneeded bytes costs less than another request."""


@final
class RemoteFile(File):
    """A file in a store."""

    def __init__(self, ref: FileRef) -> None:
        self._ref = ref
        self._store = get_store(ref.path, ref.storage)
        self._store.submit_check(ref).result()
        self._cache = None if ref.storage.cache_dir is None else BlockCache(ref)
        self._local_copy: LocalFile | None = None
        self._has_ranges = True

    @property
    def ref(self) -> FileRef:
        return self._ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        merged = merge_ranges(starts, stops, max_gap=_MAX_GAP_BYTES)
        for start, stop in zip(merged.starts, merged.stops, strict=True):
            if stop > self._ref.size:
                raise truncated_error(self._ref, start=start, stop=stop, end=self._ref.size)
        read = self._read_ranges if self._cache is None else self._cache.reader(self._read_ranges)
        if self._has_ranges:
            try:
                data = read(merged.starts, merged.stops)
                return split_merged(merged, data, starts, stops)
            except NoRangesError:
                self._has_ranges = False
        return self._downloaded().read(starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        if self._cache is not None or not self._has_ranges:
            return self._large_chunks(start, stop)
        return self._chunks(start, stop)

    def local_path(self) -> Path:
        if self._has_ranges:
            try:
                return download(self._ref, self._write_by_range)
            except NoRangesError:
                self._has_ranges = False
        return download(self._ref, self._write_at_once)

    def check_unchanged(self) -> None:
        self.local_path()

    def _downloaded(self) -> LocalFile:
        """Return a local copy of the file, for a server that does not support ranges."""
        if self._local_copy is None:
            path = download(self._ref, self._write_at_once)
            self._local_copy = LocalFile(find_local(str(path), self._ref.storage))
        return self._local_copy

    def _write_by_range(self, sink: Sink) -> None:
        for chunk in self._chunks_by_range(0, None):
            sink.write(chunk)

    def _write_at_once(self, sink: Sink) -> None:
        self._store.read_whole(self._ref, sink)

    def _read_ranges(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Read all ranges at the same time, long ones in several requests."""
        pending = [
            [
                self._store.submit(self._ref, begin, min(begin + CHUNK_BYTES, stop))
                for begin in range(start, stop, CHUNK_BYTES)
            ]
            for start, stop in zip(starts, stops, strict=True)
        ]
        check = self._store.submit_check(self._ref)  # at the same time
        try:
            data = [b"".join([request.result() for request in requests]) for requests in pending]
            check.result()
            return data
        except StoreError:
            check.result()  # a changed file may be the reason, and is then the better error
            raise
        finally:
            _cancel([check, *(request for requests in pending for request in requests)])

    def _chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        try:
            for chunk in self._chunks_by_range(start, stop):
                yield chunk
                start += len(chunk)
        except NoRangesError:
            self._has_ranges = False
            yield from self._large_chunks(start, stop)

    def _chunks_by_range(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Yield chunks, each from one request, with requests for the next ones under way."""
        end = self._ref.size if stop is None else stop
        num_ahead = max(1, self._ref.storage.read_ahead_bytes // CHUNK_BYTES)
        pending: deque[PendingRequest] = deque()
        position = start
        begins = iter(range(start, end, CHUNK_BYTES))
        try:
            while position < end:
                for begin in islice(begins, num_ahead + 1 - len(pending)):
                    request = self._store.submit(self._ref, begin, min(begin + CHUNK_BYTES, end))
                    pending.append(request)
                chunk = pending.popleft().result()
                if not pending:  # before the last chunk: all must be of the same file
                    self._store.submit_check(self._ref).result()
                yield chunk
                position += len(chunk)
        except StoreError:
            self._store.submit_check(self._ref).result()
            raise
        finally:
            _cancel(pending)

    def _large_chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Yield chunks through the cache or the local copy, each as large as the read-ahead."""
        end = self._ref.size if stop is None else stop
        step = max(CHUNK_BYTES, self._ref.storage.read_ahead_bytes)
        for begin in range(start, end, step):
            yield self.read_one(begin, min(begin + step, end))


def find(address: str, storage: StorageOptions) -> FileRef:
    """Return the ref of a file, or raise a `FileError` that explains why not."""
    info = get_store(address, storage).info(address)
    if info.get("type") == "directory":
        raise folder_error(address)
    return make_ref(address, info, storage)


def find_pattern(pattern: str, storage: StorageOptions) -> list[FileRef]:
    """Return the refs of the files that match `pattern`, sorted by address."""
    found = get_store(pattern, storage).glob(pattern)
    return [make_ref(address, info, storage) for address, info in found.items()]


def find_folder(folder: str, storage: StorageOptions) -> list[FileRef]:
    """Return the refs of all files in a folder and its subfolders, sorted by address."""
    found = get_store(folder, storage).find(folder)
    return [make_ref(address, info, storage) for address, info in found.items()]


def _cancel(requests: Iterable[PendingRequest]) -> None:
    for request in requests:
        request.cancel()
