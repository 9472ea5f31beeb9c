"""Cache data read from remote stores in a local folder of limited size.

    FOLDER/3f/3f9a...                one remote file: the hash of its address and version
                  /00000007          one block of it, after a checksum
                  /whole/train.ar    all of it, for libraries that can only read local files

Several processes may share the folder. Files appear atomically, by renaming, and may disappear at
any time, which is the same as if they had never been cached.
"""

import fcntl
import hashlib
import os
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias, final

from gristmill._base.progress import progress
from gristmill._io.atomic_write import write_atomically
from gristmill._io.file import FileRef
from gristmill.errors import FileError, PlanError

BLOCK_BYTES = 2**20

_CHECKSUM_BYTES = 4
_MAX_NAME_LENGTH = 100
_EVICTION_TARGET = 0.9
"""A full folder is reduced to this share of its limit, so that not every block evicts another."""

_STALE_TEMP_FILE_S = 3600
"""A temporary file that is older than this was left by a killed process."""

ReadRanges: TypeAlias = Callable[[list[int], list[int]], list[bytes]]
"""Reads the byte ranges `[start, stop)` of one file, given all starts and all stops."""


def cache_folder() -> Path:
    """Return the folder of this user for data that can be recreated."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "gristmill"
    try:
        return Path.home() / ".cache" / "gristmill"
    except RuntimeError:  # a user without a home folder
        return Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"


@final
class BlockCache:
    """The cached blocks of one remote file."""

    def __init__(self, ref: FileRef) -> None:
        self._folder = _file_folder(ref)
        self._size = ref.size
        self._quota = _DiskQuota(_cache_root(ref), ref.storage.cache_bytes)

    def reader(self, read: ReadRanges) -> ReadRanges:
        """Return a function that reads ranges, calling `read` only for blocks not in the cache."""

        def read_cached(starts: list[int], stops: list[int]) -> list[bytes]:
            wanted = {
                number
                for start, stop in zip(starts, stops, strict=True)
                for number in range(start // BLOCK_BYTES, -(-stop // BLOCK_BYTES))
            }
            blocks = {number: self._load(number) for number in sorted(wanted)}
            missing = [number for number, block in blocks.items() if block is None]
            begins = [number * BLOCK_BYTES for number in missing]
            ends = [min(begin + BLOCK_BYTES, self._size) for begin in begins]
            for number, block in zip(missing, read(begins, ends) if missing else [], strict=True):
                self._store(number, block)
                blocks[number] = block
            return [_join(blocks, start, stop) for start, stop in zip(starts, stops, strict=True)]

        return read_cached

    def _load(self, number: int) -> bytes | None:
        path = self._path(number)
        try:
            data = path.read_bytes()
            os.utime(path)  # mark as recently used
        except OSError:
            return None
        block = data[_CHECKSUM_BYTES:]
        length = min(BLOCK_BYTES, self._size - number * BLOCK_BYTES)
        is_intact = len(block) == length and data[:_CHECKSUM_BYTES] == _checksum(block)
        return block if is_intact else None

    def _store(self, number: int, block: bytes) -> None:
        # A full disk is no error: the block is then not cached.
        with suppress(OSError), self._quota.reserve(len(block) + _CHECKSUM_BYTES) as is_reserved:
            if is_reserved:
                write_atomically(self._path(number), [_checksum(block), block])

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}"


def download(ref: FileRef, chunks: Callable[[], Iterable[bytes]]) -> Path:
    """Return the path of a local copy of a remote file, downloading it if it is not cached.

    Args:
        ref: The remote file.
        chunks: Called to download the file; returns its bytes from front to back.

    Raises:
        FileError: If the cache folder cannot be written.
        PlanError: If the file is larger than the limit of the cache folder.
    """
    path = _file_folder(ref) / "whole" / (ref.name[:_MAX_NAME_LENGTH] or "file")
    try:
        return _download_once(ref, path, chunks)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"The whole file must be downloaded, and {path.parent} cannot be written: "
            f"{error.strerror or error}. Free some space there, or choose another `cache_dir` in "
            "`StorageOptions`.",
            path=ref.path,
        ) from error


def _download_once(ref: FileRef, path: Path, chunks: Callable[[], Iterable[bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive_lock(path.parent / ".lock"):  # one process downloads, the others wait
        if not path.exists() or path.stat().st_size != ref.size:
            quota = _DiskQuota(_cache_root(ref), ref.storage.cache_bytes)
            with quota.reserve(ref.size) as is_reserved:
                if not is_reserved:
                    raise PlanError(
                        f"The whole of {ref.path} must be downloaded, and its {ref.size:,} bytes "
                        f"exceed `cache_bytes`, {ref.storage.cache_bytes:,}. Raise it in "
                        "`StorageOptions`."
                    )
            with progress(f"Downloading {path.name}", total=ref.size, unit="B") as advance:
                write_atomically(path, _report_progress(chunks(), advance))
        with suppress(OSError):  # mark as recently used, and keep the modification time
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    return path


def _report_progress(chunks: Iterable[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        advance(len(chunk))


@contextmanager
def _exclusive_lock(path: Path) -> Generator[IO[bytes]]:
    """Hold an exclusive lock on a file, and yield the file, while the `with` block runs."""
    with open(path, "a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _join(blocks: dict[int, bytes | None], start: int, stop: int) -> bytes:
    first = start // BLOCK_BYTES
    joined = b"".join([blocks[number] or b"" for number in range(first, -(-stop // BLOCK_BYTES))])
    return joined[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]


def _checksum(block: bytes) -> bytes:
    return zlib.crc32(block).to_bytes(_CHECKSUM_BYTES, "little")


def _cache_root(ref: FileRef) -> Path:
    chosen = ref.storage.cache_dir
    return cache_folder() / "files" if chosen is None else Path(chosen)


def _file_folder(ref: FileRef) -> Path:
    identity = f"{ref.path}\n{ref.size}\n{ref.version}"
    name = hashlib.sha256(identity.encode()).hexdigest()[:32]
    return _cache_root(ref) / name[:2] / name


@final
class _DiskQuota:
    """The size limit of a folder. A file in the folder counts the used bytes for all processes."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes

    @contextmanager
    def reserve(self, num_bytes: int) -> Generator[bool]:
        """Evict the least recently used files until `num_bytes` more fit; yield whether they do.

        A lock keeps other processes from counting or evicting until the `with` block ends, so that
        the new file is written by then.
        """
        if num_bytes > self._limit_bytes:
            yield False
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(self._folder / ".used") as counter:
            counter.seek(0)
            count = counter.read()
            used_bytes = int.from_bytes(count, "little") if count else self._limit_bytes
            if used_bytes + num_bytes > self._limit_bytes:
                used_bytes = self._evict(num_bytes)  # counts the files, as some may be gone
            counter.truncate(0)
            counter.write((used_bytes + num_bytes).to_bytes(8, "little"))
            counter.flush()
            yield True

    def _evict(self, num_bytes: int) -> int:
        files = sorted(_files_in(self._folder))
        used_bytes = sum(size for _, size, _ in files)
        if used_bytes + num_bytes <= self._limit_bytes:
            return used_bytes
        for _, size, path in files:
            if used_bytes + num_bytes <= self._limit_bytes * _EVICTION_TARGET:
                break
            with suppress(OSError):
                os.unlink(path)
            used_bytes -= size
        return used_bytes


def _files_in(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Yield the access time, the size and the path of each file that counts or may be evicted."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            with suppress(OSError):
                found = os.stat(path)
                if not name.startswith(".") or time.time() - found.st_mtime > _STALE_TEMP_FILE_S:
                    yield found.st_atime, found.st_size, path
