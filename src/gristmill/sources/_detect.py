"""Find out what format files are of, and open the source that reads them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath
from typing import Any, final

from gristmill.errors import FormatError, PlanError
from gristmill.files import FileRef, OpenFiles, Paths, find_files, find_folder
from gristmill.options import StorageOptions
from gristmill.sources._array_record import ArrayRecordDataSource
from gristmill.sources._crc32c import masked_crcs
from gristmill.sources._csv import CsvSource
from gristmill.sources._hugging_face import HuggingFaceSource
from gristmill.sources._idx import IdxSource
from gristmill.sources._image_folder import ImageFolderSource
from gristmill.sources._ipc import ArrowSource
from gristmill.sources._jsonl import JsonLinesSource
from gristmill.sources._numpy import NumpySource
from gristmill.sources._parquet import ParquetSource
from gristmill.sources._sqlite import SqliteSource
from gristmill.sources._tar import TarSource
from gristmill.sources._tfrecord import TFRecordSource
from gristmill.types import RandomAccessDataSource

_HEAD = 512
_USTAR = 257
_IDX_TYPES = b"\x08\x09\x0b\x0c\x0d\x0e"


@final
@dataclass(frozen=True)
class Format:
    """How files of a format are told from others, and read."""

    open: Callable[..., RandomAccessDataSource[Any]]
    is_begun_by: Callable[[bytes], bool] = lambda _: False
    """Whether a file that begins so is of this format, beyond doubt."""
    suffixes: tuple[str, ...] = ()
    """What the names end in, where a file's content cannot tell."""
    takes: tuple[str, ...] = ()
    """What else `open` takes."""


def _is_tfrecord(head: bytes) -> bool:
    return len(head) >= 16 and int(masked_crcs([head[:8]])[0]) == int.from_bytes(
        head[8:12], "little"
    )


def _is_idx(head: bytes) -> bool:
    return head[:2] == b"\0\0" and head[2:3] in _IDX_TYPES and 0 < head[3] < 8


FORMATS: dict[str, Format] = {
    "array_record": Format(
        ArrayRecordDataSource, lambda head: head.startswith(b"\x83\xaf\x70\xd1\x0d\x88\x4a\x3f")
    ),
    "arrow": Format(
        ArrowSource,
        lambda head: head.startswith((b"ARROW1", b"\xff\xff\xff\xff")),
        takes=("columns",),
    ),
    "csv": Format(CsvSource, suffixes=(".csv",), takes=("columns",)),
    "hugging_face": Format(HuggingFaceSource, takes=("columns", "split")),
    "idx": Format(IdxSource, _is_idx, suffixes=("-ubyte.gz", ".idx.gz")),
    "image_folder": Format(ImageFolderSource),
    "json_lines": Format(JsonLinesSource, suffixes=(".jsonl", ".ndjson", ".jsonlines")),
    "numpy": Format(NumpySource, lambda head: head.startswith((b"\x93NUMPY", b"PK\x03\x04"))),
    "parquet": Format(ParquetSource, lambda head: head.startswith(b"PAR1"), takes=("columns",)),
    "sqlite": Format(
        SqliteSource, lambda head: head.startswith(b"SQLite format 3\0"), takes=("table", "query")
    ),
    "tar": Format(TarSource, lambda head: head[_USTAR : _USTAR + 5] == b"ustar"),
    "tfrecord": Format(TFRecordSource, _is_tfrecord, suffixes=(".tfrecord", ".tfrecords")),
    "tsv": Format(
        partial(CsvSource, delimiter="\t"),
        suffixes=(".tsv",),
        takes=("columns",),
    ),
}
"""Every format there is a source for."""


def open_source(
    path: Paths,
    *,
    format: str | None = None,
    storage: StorageOptions | None = None,
    **options: Any,
) -> RandomAccessDataSource[Any]:
    r"""Give the source that reads some files, or a folder, whatever their format is.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with open(f"{folder}/two.jsonl", "w") as file:
    ...         _ = file.write('{"x": 1}\n{"x": 2}\n')
    ...     open_source(f"{folder}/two.jsonl")[1]
    {'x': 2}

    Args:
        path: What `ParquetSource` and the others take.
        format: One of `FORMATS`; by default it is found out from the files.
        storage: How files that are not on this machine are read.
        **options: What the source takes besides: `columns`, `split`, `table`, `query`.
    """
    name = detect_format(path, storage) if format is None else format
    if name not in FORMATS:
        raise PlanError(f"`format` must be one of {', '.join(FORMATS)}, got {name!r}.")
    for option in options:
        if option not in FORMATS[name].takes:
            homes = [home for home, known in FORMATS.items() if option in known.takes]
            told = f"It is for {', '.join(homes)}." if homes else "There is no such option."
            raise PlanError(f"`{option}` does not go with {name}. {told}")
    where: Any = path if name in _TAKES_FOLDERS else _inside(path, storage)
    return FORMATS[name].open(where, storage=storage, **options)


_TAKES_FOLDERS = ("hugging_face", "image_folder")


def detect_format(path: Paths, storage: StorageOptions | None = None) -> str:
    """Find out what format some files, or a folder, are of; the name is one of `FORMATS`."""
    folder = _as_folder(path)
    if folder is None:
        return _format_of(find_files(path, storage)[0])
    refs = find_folder(folder, storage)
    names = {ref.name for ref in refs}
    if names & {"state.json", "dataset_dict.json"} and "dataset_info.json" in names:
        return "hugging_face"
    data = _data_files(refs)
    if not data:
        raise FormatError("The folder holds no data.", path=folder)
    return "image_folder" if _is_image(data[0]) else _format_of(data[0])


def files_of(path: Paths, storage: StorageOptions | None = None) -> tuple[FileRef, ...]:
    """Give the files that `open_source` reads."""
    folder = _as_folder(path)
    if folder is None:
        return find_files(path, storage)
    found = find_folder(folder, storage)
    return tuple(_data_files(found)) or found


def _as_folder(path: Paths) -> str | None:
    """Give the path of a folder, if it is one."""
    if not isinstance(path, str | os.PathLike):
        return None
    text = os.fspath(path)
    is_remote = "://" in text and not text.startswith("file://")
    is_folder = text.endswith("/") if is_remote else os.path.isdir(os.path.expanduser(text))
    return text if is_folder else None


def _inside(path: Paths, storage: StorageOptions | None) -> Paths | dict[str, list[str]]:
    """Give the files in a folder, where a folder is what was given."""
    folder = _as_folder(path)
    if folder is None:
        return path
    data = _data_files(find_folder(folder, storage))
    columns: dict[str, list[str]] = {}
    for ref in data:  # `image-00000-of-00004.npy`: a column, and the number of a shard
        columns.setdefault(ref.name.partition("-0")[0], []).append(ref.path)
    if len(columns) > 1 and all(ref.name.endswith(".npy") for ref in data):
        return columns
    return [ref.path for ref in data]


def _data_files(refs: Sequence[FileRef]) -> list[FileRef]:
    """Leave out what describes data: indexes, notes, hidden files."""
    described = (".json", ".md", ".txt", ".yaml", ".gristmill-index")
    return [
        ref for ref in refs if not ref.name.startswith(".") and not ref.name.endswith(described)
    ]


def _is_image(ref: FileRef) -> bool:
    images = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
    return PurePath(ref.path).suffix.lower() in images


def _format_of(ref: FileRef) -> str:
    head = OpenFiles([ref])[0].read_one(0, min(_HEAD, ref.size))
    for name, known in FORMATS.items():
        if known.is_begun_by(head):
            return name
    for name, known in FORMATS.items():
        if ref.name.lower().endswith(known.suffixes or ("\0",)):
            return name
    raise FormatError(
        "The format is none that is known. Pass it as `format`, one of "
        f"{', '.join(FORMATS)}, or check the file.",
        path=ref.path,
    )
