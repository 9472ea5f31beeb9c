"""Build an index of a file in one pass, and save it for the next time."""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np

from gristmill._base.progress import progress
from gristmill._io.file import INDEX_SUFFIX, File, FileRef
from gristmill._io.folders.atomic_write import write_atomically
from gristmill._io.folders.cache import cache_folder
from gristmill._io.folders.safe_files import read_regular_file
from gristmill._io.index_checks import identity_of, is_trusted
from gristmill.types import AnyArray, Indices

_NAME_PREFIX = "array "
"""In front of each array name, because some names are also parameters of `np.savez`."""

_MAGIC = b"gristmill index 2\n"

_MIN_LIMIT_BYTES = 2**24
_MAX_GROWTH = 256
"""An index has at most this many bytes for each byte of its file, beyond the minimum."""

Arrays: TypeAlias = Mapping[str, AnyArray]
Header: TypeAlias = Mapping[str, str | int]


def load_index(
    file: File, kind: str, build: Callable[[File], Arrays], fits: Callable[[Arrays, int], bool]
) -> dict[str, AnyArray]:
    """Return the index of a file: the saved one if it is up to date, otherwise a new one.

    A new index is saved in the user's cache folder; with `StorageOptions(index_beside_data=True)`,
    as `NAME.KIND.gristmill-index` beside a local file, if that is possible. Either is used if it
    exists. If an index cannot be saved, it is built each time.

    Args:
        file: The file to index.
        kind: What the index holds. A file may have one index of each kind.
        build: Reads the file and returns the named arrays of the index.
        fits: Returns whether arrays can be an index of this kind, of a file of some size. A saved
            index that does not fit is built again.
    """
    header = {
        "kind": kind,
        "size": file.ref.size,
        "version": file.ref.version,
        "identity": identity_of(file),
    }
    beside, cached = _path_beside(file.ref, kind), _path_in_cache(file.ref, kind)
    asks_for_beside = file.ref.storage.index_beside_data
    for path in [*beside, *cached]:
        saved = _load(path, header, file.ref, fits)
        if saved is not None:
            if asks_for_beside and path in cached:
                _save_beside(beside, header, saved)
            return saved
    with progress(f"Indexing {file.ref.name}", total=file.ref.size, unit="B") as advance:
        built = dict(build(_ProgressFile(file, advance)))
    if not (asks_for_beside and _save_beside(beside, header, built)):
        for path in cached:
            _save(path, header, built, mode=0o600)  # only for this user: see `is_trusted`
    return built


@final
class _ProgressFile(File):
    """A file that reports how far it has been read."""

    def __init__(self, file: File, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self._reported = 0

    @property
    def ref(self) -> FileRef:
        return self._file.ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        data = self._file.read(starts, stops)
        if len(stops):
            self._report(int(max(stops)))
        return data

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        for chunk in self._file.chunks(start, stop):
            yield chunk
            start += len(chunk)
            self._report(start)

    def local_path(self) -> Path:
        return self._file.local_path()

    def check_unchanged(self) -> None:
        self._file.check_unchanged()

    def _report(self, offset: int) -> None:
        self._advance(max(0, offset - self._reported))
        self._reported = max(offset, self._reported)


def _path_beside(ref: FileRef, kind: str) -> list[Path]:
    """Return where an index may be beside its file: nowhere, if the file is in a store."""
    path = Path(ref.path)
    return [path.with_name(f"{path.name}.{kind}{INDEX_SUFFIX}")] if ref.is_local else []


def _path_in_cache(ref: FileRef, kind: str) -> list[Path]:
    """Return where an index may be in the cache folder: nowhere, if the user has none."""
    try:
        folder = cache_folder() / "indexes"
    except OSError:  # no folder that belongs to this user alone
        return []
    address = str(Path(ref.path).absolute()) if ref.is_local else ref.path
    return [folder / f"{_hash(address, kind)}{INDEX_SUFFIX}"]


def _hash(path: str, kind: str) -> str:
    name = f"{path}\n{kind}".encode(errors="surrogateescape")
    return hashlib.sha256(name).hexdigest()[:32]


def _load(
    path: Path, header: Header, ref: FileRef, fits: Callable[[Arrays, int], bool]
) -> dict[str, AnyArray] | None:
    """Return the saved index if it is intact, belongs to this version of the file, and fits it."""
    max_bytes = _MIN_LIMIT_BYTES + _MAX_GROWTH * ref.size
    try:
        if not is_trusted(path, ref):
            return None
        data = read_regular_file(path, max_bytes=max_bytes)
    except OSError:
        return None
    expected = _MAGIC + json.dumps(header).encode() + b"\n"
    body = memoryview(data)[len(expected) + 4 :]
    checksum = data[len(expected) : len(expected) + 4]
    if not data.startswith(expected) or checksum != zlib.crc32(body).to_bytes(4, "little"):
        return None
    try:
        arrays = _parse(body)
    except (ValueError, OSError, LookupError, EOFError, MemoryError, zipfile.BadZipFile):
        return None
    return arrays if fits(arrays, ref.size) else None


def _parse(body: "memoryview[int]") -> dict[str, AnyArray]:
    with zipfile.ZipFile(io.BytesIO(body)) as members:  # nothing is compressed: see `_save`
        if sum(member.file_size for member in members.infolist()) > len(body):
            raise ValueError("The arrays are larger than the index.")
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name.removeprefix(_NAME_PREFIX): arrays[name] for name in arrays.files}


def _save_beside(paths: list[Path], header: Header, arrays: Arrays) -> bool:
    """Write an index beside its file, for all users; return whether that was possible."""
    return any(_save(path, header, arrays, mode=0o666) for path in paths)


def _save(path: Path, header: Header, arrays: Arrays, *, mode: int) -> bool:
    """Write an index atomically; return whether that was possible."""
    body = io.BytesIO()
    named: dict[str, Any] = {f"{_NAME_PREFIX}{name}": array for name, array in arrays.items()}
    np.savez(body, **named)
    checksum = zlib.crc32(body.getbuffer()).to_bytes(4, "little")
    content = [_MAGIC, json.dumps(header).encode(), b"\n", checksum, body.getbuffer()]
    try:
        write_atomically(path, content, mode=mode)
    except OSError:
        return False
    return True
