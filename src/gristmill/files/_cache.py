"""What was read from stores, kept in a folder on this machine that has a limit.

    FOLDER/3f/3f9a...                one file of a store: the hash of its address and version
                  /00000007          a block of it, with a checksum in front
                  /whole/train.ar    all of it, for libraries that read files only

Any number of processes may share the folder: files appear whole (by renaming) and may vanish at
any time, which is as if they had never been there.
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

from gristmill._progress import progress
from gristmill.errors import FileError, PlanError
from gristmill.files._file import FileRef
from gristmill.files._whole import write_whole

BLOCK = 2**20
"""Bytes of a block."""

_CHECKSUM = 4
_LONGEST_NAME = 100
_FREED = 0.9
"""To which part of the limit the folder is brought once it is full: not for every block anew."""

ReadRuns: TypeAlias = Callable[[list[int], list[int]], list[bytes]]


def cache_folder() -> Path:
    """Give the folder of this user for what can be made again."""
    chosen = os.environ.get("XDG_CACHE_HOME")
    if chosen:
        return Path(chosen) / "gristmill"
    try:
        return Path.home() / ".cache" / "gristmill"
    except RuntimeError:  # a user without a home
        return Path(tempfile.gettempdir()) / f"gristmill-{os.getuid()}"


@final
class BlockCache:
    """The blocks of one file."""

    def __init__(self, ref: FileRef) -> None:
        self._folder = _home(ref)
        self._size = ref.size
        self._room = _Room(_root(ref), ref.storage.cache_bytes)

    def reader(self, read: ReadRuns) -> ReadRuns:
        """Give the function that reads runs, and asks `read` only for blocks that are not here."""

        def read_cached(starts: list[int], stops: list[int]) -> list[bytes]:
            wanted = {
                number
                for start, stop in zip(starts, stops, strict=True)
                for number in range(start // BLOCK, -(-stop // BLOCK))
            }
            blocks = {number: self._load(number) for number in sorted(wanted)}
            absent = [number for number, block in blocks.items() if block is None]
            begins = [number * BLOCK for number in absent]
            ends = [min(begin + BLOCK, self._size) for begin in begins]
            for number, block in zip(absent, read(begins, ends) if absent else [], strict=True):
                self._store(number, block)
                blocks[number] = block
            return [_join(blocks, start, stop) for start, stop in zip(starts, stops, strict=True)]

        return read_cached

    def _load(self, number: int) -> bytes | None:
        path = self._path(number)
        try:
            data = path.read_bytes()
            os.utime(path)  # used just now: others go first
        except OSError:
            return None
        block = data[_CHECKSUM:]
        length = min(BLOCK, self._size - number * BLOCK)
        is_good = len(block) == length and data[:_CHECKSUM] == _checksum(block)
        return block if is_good else None

    def _store(self, number: int, block: bytes) -> None:
        # On a full disk it goes on without.
        with suppress(OSError), self._room.made(len(block) + _CHECKSUM) as is_made:
            if is_made:
                write_whole(self._path(number), [_checksum(block), block])

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}"


def fetch_whole(ref: FileRef, chunks: Callable[[], Iterable[bytes]]) -> Path:
    """Give the path of a copy of a file on this machine; make it, unless it is there."""
    path = _home(ref) / "whole" / (ref.name[:_LONGEST_NAME] or "file")
    try:
        return _fetch_whole(ref, path, chunks)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(
            f"The file must be fetched as a whole, and {path.parent} cannot be written: "
            f"{error.strerror or error}. Make room there, or choose another `cache_dir` in "
            "`StorageOptions`.",
            path=ref.path,
        ) from error


def _fetch_whole(ref: FileRef, path: Path, chunks: Callable[[], Iterable[bytes]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _alone(path.parent / ".lock"):  # not every worker by itself
        if not path.exists() or path.stat().st_size != ref.size:
            with _Room(_root(ref), ref.storage.cache_bytes).made(ref.size) as is_made:
                if not is_made:
                    raise PlanError(
                        f"{ref.path} must be fetched as a whole, and its {ref.size:,} bytes are "
                        f"more than `cache_bytes`, {ref.storage.cache_bytes:,}. Raise it in "
                        "`StorageOptions`."
                    )
            with progress(f"Fetching {path.name}", total=ref.size, unit="B") as advance:
                write_whole(path, _counted(chunks(), advance))
        with suppress(OSError):  # used just now; when it was modified stays as it is
            os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))
    return path


def _counted(chunks: Iterable[bytes], advance: Callable[[int], None]) -> Iterator[bytes]:
    for chunk in chunks:
        yield chunk
        advance(len(chunk))


@contextmanager
def _alone(path: Path) -> Generator[IO[bytes]]:
    """Keep other processes out meanwhile, by a lock on a file."""
    with open(path, "a+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock


def _join(blocks: dict[int, bytes | None], start: int, stop: int) -> bytes:
    first = start // BLOCK
    joined = b"".join([blocks[number] or b"" for number in range(first, -(-stop // BLOCK))])
    return joined[start - first * BLOCK : stop - first * BLOCK]


def _checksum(block: bytes) -> bytes:
    return zlib.crc32(block).to_bytes(_CHECKSUM, "little")


def _root(ref: FileRef) -> Path:
    chosen = ref.storage.cache_dir
    return cache_folder() / "files" if chosen is None else Path(chosen)


def _home(ref: FileRef) -> Path:
    words = f"{ref.path}\n{ref.size}\n{ref.version}"
    name = hashlib.sha256(words.encode()).hexdigest()[:32]
    return _root(ref) / name[:2] / name


@final
class _Room:
    """How much is in a folder, and may be: counted in a file there that all processes share."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit

    @contextmanager
    def made(self, size: int) -> Generator[bool]:
        """Remove what was not used for longest until there is room for so much more, if it can.

        Nobody else counts or removes until what takes the room is written.
        """
        if size > self._limit:
            yield False
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        with _alone(self._folder / ".used") as counter:
            counter.seek(0)
            told = counter.read()
            used = int.from_bytes(told, "little") if told else self._limit
            if used + size > self._limit:
                used = self._clear(size)  # counted anew: somebody may have removed some
            counter.truncate(0)
            counter.write((used + size).to_bytes(8, "little"))
            counter.flush()
            yield True

    def _clear(self, size: int) -> int:
        found = sorted(_files_in(self._folder))
        used = sum(length for _, length, _ in found)
        if used + size <= self._limit:
            return used
        for _, length, path in found:
            if used + size <= self._limit * _FREED:
                break
            with suppress(OSError):
                os.unlink(path)
            used -= length
        return used


def _files_in(folder: Path) -> Iterator[tuple[float, int, str]]:
    """Give when each file was used, its size and its path."""
    for home, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(home, name)
            with suppress(OSError):
                found = os.stat(path)
                if not name.startswith(".") or time.time() - found.st_mtime > _ABANDONED_S:
                    yield found.st_atime, found.st_size, path


_ABANDONED_S = 3600
"""What is still being written after so long is what a killed process left."""
