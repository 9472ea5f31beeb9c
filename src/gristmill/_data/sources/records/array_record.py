"""A source over ArrayRecord files, read in blocks by the `array_record` library."""

import hashlib
import os
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, SupportsIndex, TypeAlias, cast, final, runtime_checkable

from gristmill._base.checks import as_int
from gristmill._base.extras import load_extra
from gristmill._data.sources.record_location import RecordLocation
from gristmill._data.sources.record_locator import RecordLocator, gather
from gristmill._data.sources.records.array_record_reader import ArrayRecordReader, LibraryReader
from gristmill._io.file import File, FileRef
from gristmill._io.open_files import LruCache, OpenFiles
from gristmill._io.paths import find_files
from gristmill.errors import (
    CorruptFileError,
    FileError,
    FormatError,
    GristmillWarning,
    PlanError,
    PlanTypeError,
)
from gristmill.options import StorageOptions
from gristmill.types import Indices, Span

_MAGIC = bytes.fromhex("83af70d10d884a3f")
"""The first bytes of a file in the Riegeli format, on which ArrayRecord is based."""

_BUFFER_BYTES = 4096
"""The library fills this buffer at each seek, however small the record is: with 32 KiB, a random
record of 1 kB takes a sixth more time. For large records and whole files it makes no difference."""

_MAX_COUNTING_THREADS = 16
_PATH_WITH_RANGE = re.compile(r"(.+)\[(\d+):(\d+)\]", re.DOTALL)
_GROUP_SIZE = re.compile(r"(?:^|,)group_size:(\d+)")
_TUNING_OPTION = re.compile(r",(?:max_parallelism|readahead_buffer_size):")
_ERROR_OFFSET = re.compile(r"chunk at (\d+)|at byte (\d+)")


@runtime_checkable
class FileInstruction(Protocol):
    """A range of records of a file, as TFDS describes it: `take` records after the first `skip`."""

    filename: str
    skip: int
    take: int
    examples_in_shard: int


Path: TypeAlias = str | os.PathLike[str] | FileInstruction


class _RecordReader(LibraryReader, Protocol):
    """The methods of the library's reader that are used here."""

    def ok(self) -> bool: ...
    def writer_options_string(self) -> str: ...


@final
@dataclass(frozen=True)
class _FileRange:
    """A range of records of a file, by default all of them."""

    ref: FileRef
    skip: int = 0
    take: int | None = None


@final
class ArrayRecordDataSource:
    """Random access to the records, as bytes, of ArrayRecord files.

    Files are opened on first use, in each process separately.

    >>> import tempfile
    >>> from array_record.python.array_record_module import ArrayRecordWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     writer = ArrayRecordWriter(f"{folder}/two.array_record", "group_size:1")
    ...     _ = writer.write(b"one"), writer.write(b"two"), writer.close()
    ...     source = ArrayRecordDataSource(f"{folder}/*.array_record")
    ...     len(source), source[1]
    (2, b'two')

    Args:
        paths: A path, a URL, a pattern with `*`, a range of records of a file as `path[10:20]`, a
            file instruction of TFDS, or a list of them.
        reader_options: Options of the library's reader, such as
            `{"index_storage_option": "offloaded"}`.
        storage: How files in a store are fetched. The library reads only local files, so they are
            downloaded to a cache folder first.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        PlanTypeError: If an argument has the wrong type.
        MissingExtraError: If array-record is not installed.
        FormatError: When records are first read, if a file is not an ArrayRecord file.
        CorruptFileError: When records are read, if a file is truncated or damaged.
    """

    def __init__(
        self,
        paths: Path | Sequence[Path],
        reader_options: Mapping[str, str] | None = None,
        *,
        storage: StorageOptions | None = None,
    ) -> None:
        self._ranges = _find_ranges(paths, storage)
        self._options = _format_options(reader_options)
        self._locator: RecordLocator | None = None
        self._reset()

    def _reset(self) -> None:
        """Start with no open files. Those that are open are closed once no thread reads them."""
        self._files = OpenFiles([one.ref for one in self._ranges])
        self._readers = LruCache(self._open)

    def _open(self, number: int) -> ArrayRecordReader:
        return ArrayRecordReader(
            partial(_open_reader, self._files[number], self._options),
            can_seek=not _TUNING_OPTION.search(self._options),
        )

    @property
    def paths(self) -> list[str]:
        """The path of each file."""
        return [one.ref.path for one in self._ranges]

    def __len__(self) -> int:
        return len(self._load_locator())

    def __getitem__(self, record_key: SupportsIndex) -> bytes:
        number, within = self._load_locator().locate(record_key)
        return self._read(number, [within])[0]

    def __getitems__(self, record_keys: Span | Sequence[int]) -> list[bytes]:
        return gather(self._load_locator(), record_keys, self._read)

    def location(self, index: SupportsIndex) -> RecordLocation:
        """Return the file of a record, and where it is in that file.

        Args:
            index: The index of the record.
        """
        number, within = self._load_locator().locate(index)
        one = self._ranges[number]
        return RecordLocation(one.ref.address, within + one.skip)

    def __iter__(self) -> Iterator[bytes]:
        return (self[index] for index in range(len(self)))

    def __repr__(self) -> str:
        # The same as in Grain, whose checkpoints contain it. A hash, as there may be thousands of
        # paths.
        digest = hashlib.sha1(usedforsecurity=False)
        for path in self.paths:
            digest.update(path.encode(errors="surrogateescape"))
        return f"ArrayRecordDataSource(hash_of_paths={digest.hexdigest()})"

    def __enter__(self) -> "ArrayRecordDataSource":
        return self

    def __exit__(self, *_: object) -> None:
        self._reset()

    def __getstate__(self) -> tuple[Any, ...]:
        return self._ranges, self._options, self._locator

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._ranges, self._options, self._locator = state
        self._reset()

    def _load_locator(self) -> RecordLocator:
        """Count the records, once. A pickled source contains the counts."""
        if self._locator is None:
            numbers = range(len(self._ranges))
            with ThreadPoolExecutor(min(len(numbers), _MAX_COUNTING_THREADS)) as pool:
                self._locator = RecordLocator(list(pool.map(self._count, numbers)))
        return self._locator

    def _count(self, number: int) -> int:
        one = self._ranges[number]
        if one.take is not None:
            return one.take
        return max(0, self._readers[number].num_records() - one.skip)

    def _read(self, number: int, within: Sequence[int] | Indices) -> list[bytes]:
        skip = self._ranges[number].skip
        keys = [int(key) + skip for key in within]
        try:
            return self._readers[number].read(keys)
        except (RuntimeError, ValueError) as error:
            raise self._describe_error(error, number, keys) from error

    def _describe_error(self, error: Exception, number: int, keys: list[int]) -> Exception:
        """Return an error with the file and the record that could not be read."""
        if isinstance(error, FileError):
            return error
        path, reader = self._ranges[number].ref.path, self._readers[number]
        missing = [key for key in keys if key >= reader.num_records()]
        if missing:
            return CorruptFileError(
                f"The file has {reader.num_records():,} records, fewer than the file instruction "
                "takes. Correct the instruction, or copy the file again.",
                path=path,
                record=missing[0],
            )
        offset = _ERROR_OFFSET.search(str(error))
        return CorruptFileError(
            f"The record cannot be decoded: {str(error).rstrip('.')}. Copy the file again.",
            path=path,
            offset=int(offset[1] or offset[2]) if offset else None,
            record=keys[0] if len(keys) == 1 else None,
        )


def _open_reader(file: File, options: str) -> _RecordReader:
    """Open the library's reader, and check that the file is a complete ArrayRecord file."""
    library = load_extra(
        "array_record.python.array_record_module",
        extra="array-record",
        wanted_by="`ArrayRecordDataSource`",
    )
    path = str(file.local_path())
    if not path.isprintable() and path.encode(errors="ignore") != os.fsencode(path):
        raise FileError(
            "The name of the file is not UTF-8, and the `array_record` library cannot open it. "
            "Rename the file.",
            path=file.ref.path,
        )
    # No read-ahead, because records are read in any order, and no threads for it, which would make
    # seeking slow. The library takes each option once.
    if ",readahead_buffer_size:" not in options:
        threads = "" if _TUNING_OPTION.search(options) else ",max_parallelism:0"
        options += f",readahead_buffer_size:0{threads}"
    try:
        reader: _RecordReader = library.ArrayRecordReader(
            path,
            options=options.removeprefix(","),
            file_reader_buffer_size=_BUFFER_BYTES,
        )
    except ValueError as error:
        if isinstance(error, FileError):
            raise
        raise PlanError(f"`reader_options` are not valid: {error}") from error
    if not reader.ok():
        if file.read_one(0, min(len(_MAGIC), file.ref.size)) != _MAGIC:
            raise FormatError(
                "The file is not an ArrayRecord file. Find its format with `gristmill inspect`.",
                path=file.ref.path,
            )
        raise CorruptFileError(
            "The file starts like an ArrayRecord file, but has no index at its end: it is "
            "truncated. Copy or write it again.",
            path=file.ref.path,
            offset=file.ref.size,
        )
    group = _GROUP_SIZE.search(reader.writer_options_string())
    if group and int(group[1]) > 1:
        warnings.warn(
            f"{file.ref.address} stores records in groups of {group[1]}. Reading one record "
            "decodes its whole group. Write the file again with `gristmill convert`, or with "
            "`group_size:1`.",
            GristmillWarning,
            stacklevel=2,
        )
    return reader


def _find_ranges(
    paths: Path | Sequence[Path], storage: StorageOptions | None
) -> tuple[_FileRange, ...]:
    is_single = isinstance(paths, str | os.PathLike | FileInstruction)
    several = cast(object, [paths] if is_single else paths)
    if not isinstance(several, Sequence) or isinstance(several, bytes):
        raise PlanTypeError(
            f"`paths` must be a path, a file instruction or a list of them, got {paths!r}."
        )
    if not several:
        raise PlanError("`paths` must hold at least one path, got an empty list.")
    listed = cast("Sequence[Path]", several)
    return tuple(found for path in listed for found in _find_ranges_of_one(path, storage))


def _find_ranges_of_one(path: Path, storage: StorageOptions | None) -> list[_FileRange]:
    """Find the files of one path or pattern."""
    if isinstance(path, FileInstruction):
        skip, take = as_int("skip", path.skip), as_int("take", path.take)
        return [_FileRange(ref, skip, take) for ref in find_files(path.filename, storage)]
    name = _as_string(path)
    match = None if name is None else _PATH_WITH_RANGE.fullmatch(name)
    if match is None:
        return [_FileRange(ref) for ref in find_files(path, storage)]
    first, end = int(match[2]), int(match[3])
    if end < first:
        raise PlanError(f"A range of records must not end before it begins, got {path!r}.")
    return [_FileRange(ref, first, end - first) for ref in find_files(match[1], storage)]


def _format_options(options: object) -> str:
    """Return options in the syntax of the library."""
    if options is None:
        return ""
    if not isinstance(options, Mapping):
        raise PlanTypeError(f"`reader_options` must be a dict, got {options!r}.")
    named = cast("Mapping[object, object]", options)
    return "".join(f",{key}:{value}" for key, value in named.items())


def _as_string(path: str | os.PathLike[str]) -> str | None:
    try:
        return os.fspath(path)
    except TypeError:
        return None  # an error that `find_files` raises with a better message
