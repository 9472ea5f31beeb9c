"""What it takes a pass over a file to find out, kept for the next time."""

import hashlib
import io
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._progress import progress
from gristmill.files._cache import cache_folder
from gristmill.files._file import File, FileRef
from gristmill.files._whole import write_whole
from gristmill.types import Indices

INDEX_ENDING = ".gristmill-index"
"""What the names of indexes end in, by which patterns leave them out."""

_PREFIX = "array "
"""In front of each name, as some are names of what `np.savez` takes."""

_MAGIC = b"gristmill index 1\n"

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def load_index(file: File, kind: str, build: Callable[[File], Arrays]) -> dict[str, NDArray[Any]]:
    """Give the index of a file: the one that is kept if it is of this very file, or a new one.

    It is kept beside the file, `NAME.KIND.gristmill-index`, or where that cannot be, in the user's
    cache folder; where neither can be, it is built each time.
    """
    header = {"kind": kind, "size": file.ref.size, "version": file.ref.version}
    places = _places(file.ref, kind)
    for place in places:
        kept = _load(place, header)
        if kept is not None:
            return kept
    with progress(f"Indexing {file.ref.name}", total=file.ref.size, unit="B") as advance:
        built = dict(build(_Watched(file, advance)))
    for place in places:
        if _save(place, header, built):
            break
    return built


@final
class _Watched(File):
    """A file that tells how far it has been read."""

    def __init__(self, file: File, advance: Callable[[int], None]) -> None:
        self._file = file
        self._advance = advance
        self._furthest = 0

    @property
    def ref(self) -> FileRef:
        return self._file.ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        pieces = self._file.read(starts, stops)
        if len(stops):
            self._reached(int(max(stops)))
        return pieces

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        for chunk in self._file.chunks(start, stop):
            yield chunk
            start += len(chunk)
            self._reached(start)

    def local_path(self) -> Path:
        return self._file.local_path()

    def _reached(self, place: int) -> None:
        self._advance(max(0, place - self._furthest))
        self._furthest = max(place, self._furthest)


def _places(ref: FileRef, kind: str) -> list[Path]:
    name = hashlib.sha256(f"{ref.path}\n{kind}".encode()).hexdigest()[:32]
    apart = cache_folder() / "indexes" / f"{name}{INDEX_ENDING}"
    if not ref.is_local:
        return [apart]
    path = Path(ref.path)
    absolute = hashlib.sha256(f"{path.absolute()}\n{kind}".encode()).hexdigest()[:32]
    return [
        path.with_name(f"{path.name}.{kind}{INDEX_ENDING}"),
        cache_folder() / "indexes" / f"{absolute}{INDEX_ENDING}",
    ]


def _load(place: Path, header: Mapping[str, Any]) -> dict[str, NDArray[Any]] | None:
    """Give what is kept there, if it is whole and of this very file."""
    try:
        data = place.read_bytes()
    except OSError:
        return None
    wanted = _MAGIC + json.dumps(header).encode() + b"\n"
    body = memoryview(data)[len(wanted) + 4 :]
    checksum = data[len(wanted) : len(wanted) + 4]
    if not data.startswith(wanted) or checksum != zlib.crc32(body).to_bytes(4, "little"):
        return None
    with np.load(io.BytesIO(body), allow_pickle=False) as arrays:
        return {name.removeprefix(_PREFIX): arrays[name] for name in arrays.files}


def _save(place: Path, header: Mapping[str, Any], arrays: Arrays) -> bool:
    """Write an index, whole or not at all; tell whether that was possible."""
    body = io.BytesIO()
    named: dict[str, Any] = {f"{_PREFIX}{name}": array for name, array in arrays.items()}
    np.savez(body, **named)
    checksum = zlib.crc32(body.getbuffer()).to_bytes(4, "little")
    try:
        write_whole(place, [_MAGIC, json.dumps(header).encode(), b"\n", checksum, body.getbuffer()])
    except OSError:
        return False
    return True
