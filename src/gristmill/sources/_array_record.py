"""Records in ArrayRecord files, read by the library of that name, many in one call."""

import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex, TypeAlias, cast, final, runtime_checkable

from gristmill._check import as_int
from gristmill._extras import load_extra
from gristmill._places import Places, gather
from gristmill.errors import (
    CorruptFileError,
    FileError,
    FormatError,
    GristmillWarning,
    PlanError,
    PlanTypeError,
)
from gristmill.files import File, FileRef, LastUsed, OpenFiles, find_files
from gristmill.options import StorageOptions
from gristmill.types import Indices, Span

_MAGIC = bytes.fromhex("83af70d10d884a3f")
"""How a file in Riegeli's format begins, which ArrayRecord is."""

_BUFFER_BYTES = 32768
_COUNTING_THREADS = 16
_PART = re.compile(r"(.+)\[(\d+):(\d+)\]", re.DOTALL)
_GROUP_SIZE = re.compile(r"(?:^|,)group_size:(\d+)")
_PLACE = re.compile(r"chunk at (\d+)|at byte (\d+)")


@runtime_checkable
class FileInstruction(Protocol):
    """A part of a file, as TFDS describes it: `take` records after the first `skip`."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


Path: TypeAlias = str | os.PathLike[str] | FileInstruction


@final
@dataclass(frozen=True)
class _Part:
    """Some records of a file; by default all of them."""

    ref: FileRef
    skip: int = 0
    take: int | None = None


@final
class ArrayRecordDataSource:
    """Random access to the records, as bytes, of ArrayRecord files.

    A path may be a pattern with `*`, or name a part of a file as `path[10:20]`. Files are opened
    when they are first read, in each process for itself.

    >>> import tempfile
    >>> from array_record.python.array_record_module import ArrayRecordWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = ArrayRecordWriter(f"{folder}/two.array_record", "group_size:1")
    ...     _ = writer.write(b"one"), writer.write(b"two"), writer.close()
    ...     source = ArrayRecordDataSource(f"{folder}/*.array_record")
    ...     len(source), source[1]
    (2, b'two')

    Args:
        paths: One path, pattern or file instruction, or several.
        reader_options: What the library's reader takes, such as
            `{"index_storage_option": "offloaded"}`.
        storage: How files that are not on this machine are fetched. The library reads whole
            local files only, so they go to a cache folder first.
    """

    def __init__(
        self,
        paths: Path | Sequence[Path],
        reader_options: Mapping[str, str] | None = None,
        *,
        storage: StorageOptions | None = None,
    ) -> None:
        self._parts = _as_parts(paths, storage)
        self._options = _as_options(reader_options)
        self._places: Places | None = None
        self._open()

    def _open(self) -> None:
        self._files = OpenFiles([part.ref for part in self._parts])
        self._readers = LastUsed(lambda number: _open(self._files[number], self._options))

    @property
    def paths(self) -> list[str]:
        """The path of each file."""
        return [part.ref.path for part in self._parts]

    def __len__(self) -> int:
        return len(self._found())

    def __getitem__(self, record_key: SupportsIndex) -> bytes:
        number, within = self._found().locate(record_key)
        return self._read(number, [within])[0]

    def __getitems__(self, record_keys: Span | Sequence[int]) -> list[bytes]:
        return gather(self._found(), record_keys, self._read)

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        # Grain's own, which its checkpoints hold: the paths in short, as there may be thousands.
        digest = hashlib.sha1(usedforsecurity=False)
        for path in self.paths:
            digest.update(path.encode())
        return f"ArrayRecordDataSource(hash_of_paths={digest.hexdigest()})"

    def __enter__(self) -> "ArrayRecordDataSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._open()  # what was open is closed when nobody reads it any more

    def __getstate__(self) -> tuple[Any, ...]:
        return self._parts, self._options, self._places

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._parts, self._options, self._places = state
        self._open()

    def _found(self) -> Places:
        """Count the records, once; the counts travel with the pickled source."""
        if self._places is None:
            with ThreadPoolExecutor(min(len(self._parts), _COUNTING_THREADS)) as pool:
                self._places = Places(list(pool.map(self._count, range(len(self._parts)))))
        return self._places

    def _count(self, number: int) -> int:
        part = self._parts[number]
        if part.take is not None:
            return part.take
        return max(0, self._readers[number].num_records() - part.skip)

    def _read(self, number: int, within: Sequence[int] | Indices) -> list[bytes]:
        skip = self._parts[number].skip
        keys = [int(key) + skip for key in within]
        try:
            return self._readers[number].read(keys)
        except (RuntimeError, ValueError) as error:
            raise self._explain(error, number, keys) from error

    def _explain(self, error: Exception, number: int, keys: list[int]) -> Exception:
        """Give the error that says which record of which file it is."""
        if isinstance(error, FileError):
            return error
        path, reader = self._parts[number].ref.path, self._readers[number]
        beyond = [key for key in keys if key >= reader.num_records()]
        if beyond:
            return CorruptFileError(
                f"The file has {reader.num_records():,} records, and the instruction takes more. "
                "Correct the instruction, or copy the file anew.",
                path=path,
                record=beyond[0],
            )
        place = _PLACE.search(str(error))
        return CorruptFileError(
            f"The record cannot be decoded: {str(error).rstrip('.')}. Copy the file anew.",
            path=path,
            offset=int(place[1] or place[2]) if place else None,
            record=keys[0] if len(keys) == 1 else None,
        )


def _open(file: File, options: str) -> Any:
    """Open the library's reader, and see that the file is what it should be."""
    library = load_extra(
        "array_record.python.array_record_module",
        extra="array_record",
        wanted_by="`ArrayRecordDataSource`",
    )
    # No read-ahead: records are read in any order.
    try:
        reader = library.ArrayRecordReader(
            str(file.local_path()),
            options=f"readahead_buffer_size:0{options}",
            file_reader_buffer_size=_BUFFER_BYTES,
        )
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise PlanError(f"`reader_options` cannot be used so: {error}") from error
    if not reader.ok():
        if file.read_one(0, min(len(_MAGIC), file.ref.size)) != _MAGIC:
            raise FormatError(
                "This is no ArrayRecord file. `gristmill inspect` tells what it is.",
                path=file.ref.path,
            )
        raise CorruptFileError(
            "The file begins as an ArrayRecord file and has no index at its end: it was cut short. "
            "Copy or write it anew.",
            path=file.ref.path,
            offset=file.ref.size,
        )
    group = _GROUP_SIZE.search(reader.writer_options_string())
    if group and int(group[1]) > 1:
        warnings.warn(
            f"{file.ref.path} holds records in groups of {group[1]}: to read one, the whole group "
            "is decoded. Write it anew with `gristmill convert`, or with `group_size:1`.",
            GristmillWarning,
            stacklevel=2,
        )
    return reader


def _as_parts(paths: Path | Sequence[Path], storage: StorageOptions | None) -> tuple[_Part, ...]:
    single = isinstance(paths, str | os.PathLike | FileInstruction)
    several: Any = [paths] if single else paths
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        raise PlanTypeError(
            f"`paths` must be a path, a file instruction or a list of them, got {paths!r}."
        )
    if not several:
        raise PlanError("`paths` must hold at least one path, got an empty list.")
    return tuple(part for one in cast("Sequence[Any]", several) for part in _parts_of(one, storage))


def _parts_of(path: Any, storage: StorageOptions | None) -> list[_Part]:
    if isinstance(path, FileInstruction):
        skip, take = as_int("skip", path.skip), as_int("take", path.take)
        return [_Part(ref, skip, take) for ref in find_files(path.filename, storage)]
    text = _as_text(path)
    match = None if text is None else _PART.fullmatch(text)
    if match is None:
        return [_Part(ref) for ref in find_files(path, storage)]
    first, end = int(match[2]), int(match[3])
    if end < first:
        raise PlanError(f"A part of a file must not end before it begins, got {path!r}.")
    return [_Part(ref, first, end - first) for ref in find_files(match[1], storage)]


def _as_options(options: Any) -> str:
    if options is None:
        return ""
    if not isinstance(options, Mapping):
        raise PlanTypeError(f"`reader_options` must be a dict, got {options!r}.")
    named = cast("Mapping[Any, Any]", options)
    return "".join(f",{key}:{value}" for key, value in named.items())


def _as_text(path: Any) -> str | None:
    try:
        return cast(str, os.fspath(path))
    except TypeError:
        return None  # which finding the file explains
