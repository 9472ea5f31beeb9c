"""Detect the format of files, and open the source that reads it."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, final

from gristmill._data.sources.arrays.hdf5 import Hdf5Source
from gristmill._data.sources.arrays.idx import IdxSource
from gristmill._data.sources.arrays.numpy import NumpySource
from gristmill._data.sources.arrays.zarr import ZarrSource
from gristmill._data.sources.file_head import UTF8_BOM, describe_content
from gristmill._data.sources.records.array_record import ArrayRecordDataSource
from gristmill._data.sources.records.crc32c import masked_crcs
from gristmill._data.sources.records.image_folder import ImageFolderSource
from gristmill._data.sources.records.index_json.litdata import LitDataSource
from gristmill._data.sources.records.index_json.mds import MdsSource
from gristmill._data.sources.records.index_json.shard_index import INDEX_NAME
from gristmill._data.sources.records.megatron import MAGIC, MegatronSource
from gristmill._data.sources.records.tar.tar import TarSource
from gristmill._data.sources.records.text.json_array import JsonArraySource
from gristmill._data.sources.records.text.jsonl import JsonLinesSource
from gristmill._data.sources.records.text.plain_text import TextSource
from gristmill._data.sources.records.tfrecord import TFRecordSource
from gristmill._data.sources.sqlite.source import SqliteSource
from gristmill._data.sources.tables.arrow_ipc import ArrowSource
from gristmill._data.sources.tables.csv import CsvSource
from gristmill._data.sources.tables.hugging_face import HuggingFaceSource
from gristmill._data.sources.tables.parquet import ParquetSource
from gristmill._io.decompress import Compression, find_compression, read_decompressed_head
from gristmill._io.file import FileRef
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import Paths, find_files, find_folder
from gristmill.errors import FormatError, PlanError
from gristmill.options import StorageOptions
from gristmill.types import Element, RandomAccessDataSource

_HEAD_BYTES = 512
_USTAR_OFFSET = 257
_NOTES = ("README", "LICENSE", "NOTICE", "CHANGELOG")
_CSV_OPTIONS = ("columns", "types", "delimiter", "has_header")
_IDX_TYPES = b"\x08\x09\x0b\x0c\x0d\x0e"


@final
@dataclass(frozen=True)
class Format:
    """How to recognise and open files of a format."""

    open: Callable[..., RandomAccessDataSource[Element]]
    matches_head: Callable[[bytes], bool] = lambda _: False
    """Returns whether a file with these first bytes is certainly of this format."""
    suffixes: tuple[str, ...] = ()
    """Endings of file names, for formats that the content does not identify."""
    may_match: Callable[[bytes], bool] = lambda _: True
    """Returns whether a file with one of the suffixes and these first bytes may be of this format.
    """
    reads_compressed: bool = False
    """Whether `open` also takes compressed files."""
    options: tuple[str, ...] = ()
    """Further keyword arguments of `open`."""
    opens_folders: bool = False
    """Whether `open` takes a folder instead of the files in it."""


def _is_tfrecord(head: bytes) -> bool:
    return len(head) >= 16 and int(masked_crcs([head[:8]])[0]) == int.from_bytes(
        head[8:12], "little"
    )


def _begins_with_bracket(head: bytes) -> bool:
    return head.removeprefix(UTF8_BOM).lstrip().startswith(b"[")


def _is_zip(head: bytes) -> bool:
    return head.startswith(b"PK\x03\x04")


def _is_numpy(head: bytes) -> bool:
    """Return whether a file is an array, or a zip file whose first member is named like one."""
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    return head.startswith(b"\x93NUMPY") or (_is_zip(head) and name.endswith(b".npy"))


def _is_idx(head: bytes) -> bool:
    return head[:2] == b"\0\0" and head[2:3] in _IDX_TYPES and 0 < head[3] < 8


FORMATS: dict[str, Format] = {
    "array_record": Format(
        ArrayRecordDataSource, lambda head: head.startswith(b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f")
    ),
    "arrow": Format(
        ArrowSource,
        lambda head: head.startswith((b"ARROW1", b"\xff\xff\xff\xff")),
        options=("columns",),
    ),
    "csv": Format(CsvSource, suffixes=(".csv",), options=_CSV_OPTIONS, reads_compressed=True),
    "hdf5": Format(
        Hdf5Source, lambda head: head.startswith(b"\x89HDF\r\n\x1a\n"), options=("columns",)
    ),
    "hugging_face": Format(HuggingFaceSource, options=("columns", "split"), opens_folders=True),
    "idx": Format(IdxSource, _is_idx, suffixes=("-ubyte", ".idx"), reads_compressed=True),
    "image_folder": Format(ImageFolderSource, opens_folders=True),
    "json_array": Format(
        JsonArraySource,
        suffixes=(".json",),
        may_match=_begins_with_bracket,
        reads_compressed=True,
    ),
    "json_lines": Format(
        JsonLinesSource,
        suffixes=(".jsonl", ".ndjson", ".jsonlines", ".json"),
        reads_compressed=True,
    ),
    "litdata": Format(LitDataSource, opens_folders=True),
    "mds": Format(MdsSource, opens_folders=True),
    "megatron": Format(MegatronSource, lambda head: head.startswith(MAGIC)),
    "numpy": Format(NumpySource, _is_numpy, suffixes=(".npz",), may_match=_is_zip),
    "parquet": Format(ParquetSource, lambda head: head.startswith(b"PAR1"), options=("columns",)),
    "sqlite": Format(
        SqliteSource, lambda head: head.startswith(b"SQLite format 3\0"), options=("table", "query")
    ),
    "tar": Format(
        TarSource,
        lambda head: head[_USTAR_OFFSET : _USTAR_OFFSET + 5] == b"ustar",
        reads_compressed=True,
    ),
    "text": Format(TextSource, suffixes=(".txt", ".text"), options=("by",), reads_compressed=True),
    "tfrecord": Format(
        TFRecordSource,
        _is_tfrecord,
        suffixes=(".tfrecord", ".tfrecords"),
        reads_compressed=True,
    ),
    "tsv": Format(
        partial(CsvSource, delimiter="\t"),
        suffixes=(".tsv",),
        options=_CSV_OPTIONS,
        reads_compressed=True,
    ),
    "zarr": Format(ZarrSource, options=("columns",), opens_folders=True),
}
"""All formats that a source can read, by name."""


def open_source(
    path: Paths,
    *,
    format: str | None = None,
    storage: StorageOptions | None = None,
    **options: Any,
) -> RandomAccessDataSource[Any]:
    r"""Return the source that reads some files or a folder, whatever their format.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/two.jsonl", "w") as file:
    ...         _ = file.write('{"x": 1}\n{"x": 2}\n')
    ...     open_source(f"{folder}/two.jsonl")[1]
    {'x': 2}

    Args:
        path: A path, a URL, a pattern with `*`, or a list of them; or a folder.
        format: The name of the format, such as "parquet" or "json_lines". By default it is
            detected from the first file.
        storage: How files in a store are read.
        **options: Further arguments of the source: `columns`, `types`, `delimiter`,
            `has_header`, `split`, `table`, `query` or `by`.

    Raises:
        MissingFileError: If there is no such file, or a pattern matches none.
        FormatError: If the format cannot be detected.
        PlanError: If `format` is unknown, or an option does not fit the format.
        PlanTypeError: If an argument has the wrong type.
    """
    name = detect_format(path, storage) if format is None else format
    if name not in FORMATS:
        raise PlanError(f"`format` must be one of {', '.join(FORMATS)}, got {name!r}.")
    for option in options:
        if option not in FORMATS[name].options:
            supporting = [other for other, known in FORMATS.items() if option in known.options]
            remedy = (
                f"It is for {', '.join(supporting)}." if supporting else "There is no such option."
            )
            raise PlanError(f"`{option}` cannot be used with {name}. {remedy}")
    location: Any = path if FORMATS[name].opens_folders else _expand_folder(path, storage)
    return FORMATS[name].open(location, storage=storage, **options)


def detect_format(path: Paths, storage: StorageOptions | None = None) -> str:
    """Return the format of some files or a folder: a key of `FORMATS`."""
    folder = _as_folder(path)
    if folder is None:
        return _detect_file_format(find_files(path, storage)[0])
    refs = find_folder(folder, storage)
    names = {ref.name for ref in refs}
    if names & {"state.json", "dataset_dict.json"} and "dataset_info.json" in names:
        return "hugging_face"
    if INDEX_NAME in names and any(".mds" in name for name in names):
        return "mds"
    if INDEX_NAME in names and any(name.endswith(".bin") for name in names):
        return "litdata"
    if {"zarr.json", ".zgroup", ".zarray"} & {_name_in(folder, ref) for ref in refs}:
        return "zarr"
    data = _data_files(refs)
    if not data:
        raise FormatError("The folder contains no data files.", path=folder)
    return _common_format(data, folder)


def _common_format(data: Sequence[FileRef], folder: str) -> str:
    """Return the format of the files in a folder, of which one of each suffix is looked at.

    Raises:
        FormatError: They have several formats.
    """
    by_suffix: dict[str, FileRef] = {}
    for ref in data:
        by_suffix.setdefault(PurePath(ref.name).suffix.lower(), ref)
    first, *others = by_suffix.values()
    found = _format_or_images(first)
    for ref in others:
        try:
            other = _format_or_images(ref)
        except FormatError:  # an unknown file beside the data is an error when it is read
            continue
        if other != found:
            raise FormatError(
                f"The folder contains files of several formats: {first.name} ({found}) and "
                f"{ref.name} ({other}). Pass a pattern, such as `*{PurePath(ref.name).suffix}` in "
                "the folder, or the format.",
                path=folder,
            )
    return found


def _format_or_images(ref: FileRef) -> str:
    return "image_folder" if _is_image(ref) else _detect_file_format(ref)


def files_of(path: Paths, storage: StorageOptions | None = None) -> tuple[FileRef, ...]:
    """Return the files that `open_source` reads."""
    folder = _as_folder(path)
    if folder is None:
        return find_files(path, storage)
    refs = find_folder(folder, storage)
    return tuple(_data_files(refs)) or refs


def contents_of(path: Paths, storage: StorageOptions | None = None) -> dict[str, FileRef]:
    """Return all files in a folder by their paths in it; none if `path` is not a folder."""
    folder = _as_folder(path)
    if folder is None:
        return {}
    return {_name_in(folder, ref): ref for ref in find_folder(folder, storage)}


def _name_in(folder: str, ref: FileRef) -> str:
    """Return the path of a file in a folder."""
    return ref.path.removeprefix(os.path.expanduser(folder).rstrip("/") + "/")


def _as_folder(path: Paths) -> str | None:
    """Return `path` as a string if it is a folder. The URL of a folder ends with a slash."""
    if not isinstance(path, str | os.PathLike):
        return None
    name = os.fspath(path)
    is_remote = "://" in name and not name.startswith("file://")
    is_folder = name.endswith("/") if is_remote else os.path.isdir(os.path.expanduser(name))
    return name if is_folder else None


def _expand_folder(path: Paths, storage: StorageOptions | None) -> Paths | dict[str, list[str]]:
    """Return the files in a folder, by the names of arrays if there are several; or `path`."""
    folder = _as_folder(path)
    if folder is None:
        return path
    data = _data_files(find_folder(folder, storage))
    columns: dict[str, list[str]] = {}
    for ref in data:  # `image-00000-of-00004.npy`: a column and the number of a shard
        columns.setdefault(ref.name.partition("-0")[0], []).append(ref.path)
    if len(columns) > 1 and all(ref.name.endswith(".npy") for ref in data):
        return columns
    return [ref.path for ref in data]


def _data_files(refs: Sequence[FileRef]) -> list[FileRef]:
    """Leave out files that describe data: indexes, notes, hidden files."""
    excluded = (".md", ".yaml", ".gristmill-index")
    listed = [
        ref for ref in refs if not ref.name.startswith(".") and not ref.name.endswith(excluded)
    ]
    paths = {ref.path for ref in listed}
    data = [
        ref
        for ref in listed
        if not ref.name.endswith((".json", ".txt"))
        and f"{ref.path.removesuffix('.bin')}.idx" not in paths  # tokens, which the index locates
    ]
    return data or [ref for ref in listed if not ref.name.upper().startswith(_NOTES)]


def _is_image(ref: FileRef) -> bool:
    images = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
    return PurePath(ref.path).suffix.lower() in images


def _detect_file_format(ref: FileRef) -> str:
    file = OpenFiles([ref])[0]
    head = file.read_one(0, min(_HEAD_BYTES, ref.size))
    name = ref.name.lower()
    compression = find_compression(head)
    if compression is not None:
        head = read_decompressed_head(file, compression, _HEAD_BYTES)
        name = _inner_name(name, compression)
    found = next((key for key, known in FORMATS.items() if known.matches_head(head)), None)
    if found is None:
        found = next(
            (
                key
                for key, known in FORMATS.items()
                if known.suffixes and name.endswith(known.suffixes) and known.may_match(head)
            ),
            None,
        )
    if found is not None and (compression is None or FORMATS[found].reads_compressed):
        return found
    guess = describe_content(head, found, None if compression is None else compression.name)
    raise FormatError(
        f"The format is not known{guess}. Pass it as `format`, one of {', '.join(FORMATS)}, or "
        "check the file.",
        path=ref.path,
    )


def _inner_name(name: str, compression: Compression) -> str:
    """Return the name of the file that is compressed in another one."""
    for suffix in compression.suffixes:
        name = name.removesuffix(suffix)
    return name
