"""Cache data read from remote stores in a local folder of limited size.

    FOLDER/CACHEDIR.TAG              marks a folder that this module created
          /3f/3f9a...                one remote file: the hash of its address and version
                     /00000007       one block of it, after a checksum
                     /whole/train.ar all of it, for libraries that can only read local files
                     /whole/712.a.gz all of it, decompressed to 712 bytes

FOLDER is a subfolder of the one that the user chose. Only files with names like these are counted
and removed, and only in a folder with the mark, so that no file of the user is ever deleted.

Several processes may share the folder. Files appear atomically, by renaming, and may disappear at
any time, which is the same as if they had never been cached.
"""

import hashlib
import os
import re
import stat
import tempfile
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias, final

from gristmill._base.progress import progress
from gristmill._io.file import FileRef
from gristmill._io.folders.atomic_write import atomic_writer, write_atomically
from gristmill._io.folders.cache_mark import MARK, is_cache, mark_as_cache
from gristmill._io.folders.file_lock import lock_exclusively
from gristmill._io.folders.safe_files import (
    make_private_folder,
    open_regular_file,
    read_regular_file,
)
from gristmill._io.stores.http import Sink
from gristmill.errors import FileError, PlanError

BLOCK_BYTES = 2**20

_SUBFOLDER = "gristmill-cache"
_FILE_FOLDER = re.compile(r"[0-9a-f]{2}/[0-9a-f]{32}")
_BLOCK_NAME = re.compile(r"[0-9]{8,}")
_CHECKSUM_BYTES = 4
_COUNTER_BYTES = 8
_MAX_NAME_BYTES = 100
_EVICTION_TARGET = 0.9
"""A full folder is reduced to this share of its limit, so that not every block evicts another."""

_RESERVED_BYTES = 64 * 2**20
"""Space that a file of unknown size reserves at a time."""

_STALE_TEMP_FILE_S = 3600
"""A temporary file that is older than this was left by a killed process."""

ReadRanges: TypeAlias = Callable[[list[int], list[int]], list[bytes]]
"""Reads the byte ranges `[start, stop)` of one file, given all starts and all stops."""


def cache_folder() -> Path:
    """Return the folder of this user for data that can be recreated.

    Raises:
        PermissionError: If the user has no home folder, and the folder among the temporary files
            was made by another user or is open to others.
    """
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "gristmill"
    try:
        return Path.home() / ".cache" / "gristmill"
    except RuntimeError:  # a user without a home folder
        folder = Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"
        make_private_folder(folder)
        return folder


@final
class BlockCache:
    """The cached blocks of one remote file."""

    def __init__(self, ref: FileRef) -> None:
        root = _cache_root(ref)
        self._folder = _file_folder(ref, root)
        self._size = ref.size
        self._quota = _DiskQuota(root, ref.storage.cache_bytes)

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
            data = read_regular_file(path, max_bytes=BLOCK_BYTES + _CHECKSUM_BYTES)
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


def download(ref: FileRef, fetch: Callable[[Sink], None]) -> Path:
    """Return the path of a local copy of a remote file, downloading it if it is not cached.

    Args:
        ref: The remote file.
        fetch: Downloads the file: writes its bytes in order.

    Raises:
        FileError: If the cache folder cannot be written.
        PlanError: If the file is larger than the limit of the cache folder, or the cache folder
            holds files of others.
    """
    try:
        root = _cache_root(ref)
        mark_as_cache(root)  # before anything else is in it
        path = _file_folder(ref, root) / "whole" / _file_name(ref)
        return _download_once(ref, path, _DiskQuota(root, ref.storage.cache_bytes), fetch)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            "The whole file must be downloaded, and the cache folder cannot be written: "
            f"{error.strerror or error}. Free some space there, or choose another `cache_dir` in "
            "`StorageOptions`.",
            path=ref.path,
        ) from error


def write_once(ref: FileRef, write: Callable[[Callable[[bytes], None]], None]) -> Path:
    """Return the path of a local file that is made from another one, writing it if not cached.

    Its size is known only at its end, and is then part of its name. While it is written, its space
    is reserved step by step, so that it can never take more than the cache may.

    Args:
        ref: The file that it is made from. Another size or version makes another file.
        write: Writes the file: gets a function that appends bytes.

    Raises:
        FileError: If the cache folder cannot be written.
        PlanError: If the file becomes larger than the limit of the cache folder.
    """
    try:
        root = _cache_root(ref)
        mark_as_cache(root)
        folder = _file_folder(ref, root) / "whole"
        folder.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(folder / ".lock"):  # one process writes, the others wait
            found = _find_written(folder)
            if found is None:
                found = _write_reserved(ref, folder, root, write)
            with suppress(OSError):  # mark as recently used, and keep the modification time
                os.utime(found, ns=(time.time_ns(), found.stat().st_mtime_ns))
        return found
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            "The file must be decompressed, and the cache folder cannot be written: "
            f"{error.strerror or error}. Free some space there, or choose another `cache_dir` in "
            "`StorageOptions`.",
            path=ref.path,
        ) from error


def _find_written(folder: Path) -> Path | None:
    """Return the complete file in a folder: the one whose name begins with its size."""
    for name in sorted(os.listdir(folder)):
        size = name.partition(".")[0]
        if size.isdecimal() and _is_complete(folder / name, int(size)):
            return folder / name
    return None


def _write_reserved(
    ref: FileRef, folder: Path, root: Path, write: Callable[[Callable[[bytes], None]], None]
) -> Path:
    quota = _DiskQuota(root, ref.storage.cache_bytes)
    temporary = folder / "new"
    size = reserved = 0
    with atomic_writer(temporary) as file:

        def append(data: bytes) -> None:
            nonlocal size, reserved
            size += len(data)
            if size > reserved:
                step = max(_RESERVED_BYTES, size - reserved)
                step = max(size - reserved, min(step, quota.limit_bytes - reserved))
                with quota.reserve(step) as is_reserved:
                    if not is_reserved or size > quota.limit_bytes:
                        raise PlanError(
                            f"{ref.address} has {ref.size:,} bytes, and more than `cache_bytes`, "
                            f"{ref.storage.cache_bytes:,}, once it is decompressed. Raise it in "
                            "`StorageOptions`."
                        )
                reserved += step
            file.write(data)

        write(append)
    path = folder / f"{size}.{_file_name(ref)}"
    os.replace(temporary, path)
    return path


def _download_once(
    ref: FileRef, path: Path, quota: "_DiskQuota", fetch: Callable[[Sink], None]
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _exclusive_lock(path.parent / ".lock"):  # one process downloads, the others wait
        if not _is_complete(path, ref.size):
            with quota.reserve(ref.size) as is_reserved:
                if not is_reserved:
                    raise PlanError(
                        f"The whole of {ref.address} must be downloaded, and its {ref.size:,} "
                        f"bytes exceed `cache_bytes`, {ref.storage.cache_bytes:,}. Raise it in "
                        "`StorageOptions`."
                    )
            with (
                progress(f"Downloading {path.name}", total=ref.size, unit="B") as advance,
                atomic_writer(path) as file,
            ):
                fetch(Sink(file, advance))
                if file.tell() != ref.size:  # words: a method of file objects
                    raise FileError("The download ended early. Try again.", path=ref.path)
        with suppress(OSError):  # mark as recently used, and keep the modification time
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    return path


def _is_complete(path: Path, size: int) -> bool:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size == size


@contextmanager
def _exclusive_lock(path: Path) -> Generator[IO[bytes]]:
    """Hold an exclusive lock on a file, and yield the file, while the `with` block runs."""
    descriptor = open_regular_file(path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
    with open(descriptor, "a+b") as lock:
        lock_exclusively(lock, path)
        yield lock


def _join(blocks: dict[int, bytes | None], start: int, stop: int) -> bytes:
    first = start // BLOCK_BYTES
    joined = b"".join([blocks[number] or b"" for number in range(first, -(-stop // BLOCK_BYTES))])
    return joined[start - first * BLOCK_BYTES : stop - first * BLOCK_BYTES]


def _checksum(block: bytes) -> bytes:
    return zlib.crc32(block).to_bytes(_CHECKSUM_BYTES, "little")


def _cache_root(ref: FileRef) -> Path:
    """Return the folder of the cache. It is marked as one when something is first written."""
    chosen = ref.storage.cache_dir
    root = cache_folder() / "files" if chosen is None else Path(chosen) / _SUBFOLDER
    with suppress(NotADirectoryError, PermissionError, FileNotFoundError):
        # Listed before the mark is read, because another process may create the cache now.
        names = [name for name in os.listdir(root) if not name.startswith(".")]
        if names and not is_cache(root):
            raise PlanError(
                f"The folder {root} was not created by gristmill and is not empty. It would be "
                "used as a cache, whose oldest files are deleted. Choose another `cache_dir` in "
                "`StorageOptions`."
            )
    return root


def _file_folder(ref: FileRef, root: Path) -> Path:
    identity = f"{ref.path}\n{ref.size}\n{ref.version}"
    name = hashlib.sha256(identity.encode(errors="surrogateescape")).hexdigest()[:32]
    return root / name[:2] / name


def _file_name(ref: FileRef) -> str:
    """Return a name for the local copy, which cannot lead out of its folder or hide there."""
    printable = "".join(char if char.isprintable() else "_" for char in ref.name)
    shortened = printable.encode()[-_MAX_NAME_BYTES:].decode(errors="ignore")
    return f"_{shortened}" if shortened.startswith(".") or not shortened else shortened


@final
class _DiskQuota:
    """The size limit of a folder. A file in the folder counts the used bytes for all processes."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes - _COUNTER_BYTES - len(MARK)

    @property
    def limit_bytes(self) -> int:
        """The size of all cached data, without the files that this module needs itself."""
        return self._limit_bytes

    @contextmanager
    def reserve(self, num_bytes: int) -> Generator[bool]:
        """Evict the least recently used files until `num_bytes` more fit; yield whether they do.

        A lock keeps other processes from counting or evicting until the `with` block ends, so that
        the new file is written by then.
        """
        if num_bytes > self._limit_bytes:
            yield False
            return
        mark_as_cache(self._folder)
        with _exclusive_lock(self._folder / ".used") as counter:
            counter.seek(0)
            count = counter.read(_COUNTER_BYTES)
            used_bytes = int.from_bytes(count, "little") if count else self._limit_bytes
            if used_bytes + num_bytes > self._limit_bytes:
                used_bytes = self._evict(num_bytes)  # counts the files, as some may be gone
            counter.truncate(0)
            counter.write((used_bytes + num_bytes).to_bytes(_COUNTER_BYTES, "little"))
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
    """Yield the access time, the size and the path of each file that counts or may be evicted.

    Anything that this module does not write is not touched, and links are not followed.
    """
    for parent, _, names in os.walk(folder):
        relative = os.path.relpath(parent, folder)
        for name in names:
            path = os.path.join(parent, name)
            with suppress(OSError):
                found = os.lstat(path)
                if stat.S_ISREG(found.st_mode) and _is_own(relative, name, found.st_mtime):
                    yield found.st_atime, found.st_size, path


def _is_own(folder: str, name: str, changed: float) -> bool:
    """Return whether a file is cached data, or a temporary file that a killed process left."""
    if name.startswith(".part-"):
        return _FILE_FOLDER.match(folder) is not None and time.time() - changed > _STALE_TEMP_FILE_S
    if folder.endswith(f"{os.sep}whole"):
        return _FILE_FOLDER.match(folder) is not None and name != ".lock"
    return _FILE_FOLDER.fullmatch(folder) is not None and _BLOCK_NAME.fullmatch(name) is not None
