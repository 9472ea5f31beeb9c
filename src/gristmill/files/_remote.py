"""Files in a store that fsspec reads: many ranges at the same time, asked for again if need be.

All requests run in fsspec's own event loop, which has a thread of its own in each process; who
wants bytes waits for them, and may give up waiting at any time.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import final

from gristmill.errors import CorruptFileError, FormatError, StoreError
from gristmill.files._cache import BlockCache, fetch_whole
from gristmill.files._file import CHUNK, File, FileRef
from gristmill.files._local import LocalFile, local_ref
from gristmill.files._spans import cut, merge
from gristmill.files._store import NoRangesError, Reply, Store, ref_from, store_of
from gristmill.options import StorageOptions
from gristmill.types import Indices

_GAP = 128 * 1024
"""Reading so many bytes in vain costs less than another request."""


@final
class RemoteFile(File):
    """A file in a store."""

    def __init__(self, ref: FileRef) -> None:
        self._ref = ref
        self._store: Store = store_of(ref.path, ref.storage)
        self._store.submit_check(ref).result()
        storage = ref.storage
        self._cache = None if storage.cache_dir is None else BlockCache(ref)
        self._whole: LocalFile | None = None

    @property
    def ref(self) -> FileRef:
        return self._ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        runs = merge(starts, stops, gap=_GAP)
        for start, stop in zip(runs.starts, runs.stops, strict=True):
            if stop > self._ref.size:
                raise CorruptFileError(
                    f"The file ends at byte {self._ref.size:,}, and bytes up to {stop:,} are "
                    "needed: it was cut short. Copy it anew.",
                    path=self._ref.path,
                    offset=start,
                )
        read = self._read_runs if self._cache is None else self._cache.reader(self._read_runs)
        if self._whole is None:
            try:
                return cut(runs, read(runs.starts, runs.stops), starts, stops)
            except NoRangesError:
                self._whole = self._fetch_at_once()
        return self._whole.read(starts, stops)

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        if self._cache is not None or self._whole is not None:
            return self._several_chunks(start, stop)
        return self._chunks(start, stop)

    def local_path(self) -> Path:
        try:
            return fetch_whole(self._ref, lambda: self._chunks_by_range(0, None))
        except NoRangesError:
            return fetch_whole(self._ref, lambda: [self._store.read_whole(self._ref)])

    def _fetch_at_once(self) -> LocalFile:
        """Fetch all of the file, from a server that gives no parts."""
        path = fetch_whole(self._ref, lambda: [self._store.read_whole(self._ref)])
        return LocalFile(local_ref(str(path), self._ref.storage))

    def _read_runs(self, starts: list[int], stops: list[int]) -> list[bytes]:
        """Read all runs at the same time, long ones in several requests."""
        waiting = [
            [
                self._store.submit(self._ref, begin, min(begin + CHUNK, stop))
                for begin in range(start, stop, CHUNK)
            ]
            for start, stop in zip(starts, stops, strict=True)
        ]
        check = self._store.submit_check(self._ref)  # at the same time
        try:
            data = [b"".join([reply.result() for reply in parts]) for parts in waiting]
            check.result()
            return data
        except StoreError:
            check.result()  # what cannot be had may be so because the file is another one
            raise
        finally:
            _cancel([check, *(reply for parts in waiting for reply in parts)])

    def _chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        try:
            for chunk in self._chunks_by_range(start, stop):
                yield chunk
                start += len(chunk)
        except NoRangesError:
            yield from self._several_chunks(start, stop)

    def _chunks_by_range(self, start: int, stop: int | None) -> Iterator[bytes]:
        end = self._ref.size if stop is None else stop
        ahead = max(1, self._ref.storage.read_ahead_bytes // CHUNK)
        waiting: deque[Reply] = deque()
        given = start
        begins = iter(range(start, end, CHUNK))
        try:
            while given < end:
                for begin in islice(begins, ahead + 1 - len(waiting)):
                    waiting.append(self._store.submit(self._ref, begin, min(begin + CHUNK, end)))
                chunk = waiting.popleft().result()
                if not waiting:  # before the last is given: all are of one file
                    self._store.submit_check(self._ref).result()
                yield chunk
                given += len(chunk)
        except StoreError:
            self._store.submit_check(self._ref).result()
            raise
        finally:
            _cancel(waiting)

    def _several_chunks(self, start: int, stop: int | None) -> Iterator[bytes]:
        """Give what is in the cache from there, several chunks at a time."""
        end = self._ref.size if stop is None else stop
        step = max(CHUNK, self._ref.storage.read_ahead_bytes)
        for begin in range(start, end, step):
            yield self.read_one(begin, min(begin + step, end))


def find(address: str, storage: StorageOptions) -> FileRef:
    """Look a file up, or say why there is none."""
    info = store_of(address, storage).info(address)
    if info.get("type") == "directory":
        raise FormatError(
            "It is a folder. Pass the files in it, for instance with `/*` at the end.",
            path=address,
        )
    return ref_from(address, info, storage)


def find_pattern(pattern: str, storage: StorageOptions) -> list[FileRef]:
    """Look up the files that match."""
    found = store_of(pattern, storage).glob(pattern)
    return [ref_from(address, info, storage) for address, info in found.items()]


def find_folder(folder: str, storage: StorageOptions) -> list[FileRef]:
    """Look up all files in a folder and below."""
    found = store_of(folder, storage).find(folder)
    return [ref_from(address, info, storage) for address, info in found.items()]


def _cancel(replies: Iterable[Reply]) -> None:
    for reply in replies:
        reply.cancel()
