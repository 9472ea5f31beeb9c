"""Write records as tar files in the layout of WebDataset: one file for each item of a record."""

import io
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import final

import numpy as np

from gristmill._data.writers.records import as_columns
from gristmill._data.writers.target import Blocks, Target, mismatch
from gristmill.errors import BatchError
from gristmill.types import Element

_KEY = "__key__"
_REFUSED = frozenset("/\\\0*?[]")


@final
class TarTarget(Target):
    """Writes bytes unchanged, strings as UTF-8, and numbers and arrays as `.npy` files.

    The files of a record are named `KEY.COLUMN`, with a suffix `.txt` or `.npy` where the column is
    not bytes. The key is `__key__` of the record, or else its index.
    """

    def __init__(self, sample: Sequence[Element]) -> None:
        for record in sample:
            for column in as_columns(record):
                _check_name("column", column)

    def write(self, folder: Path, name: str, count: int, blocks: Blocks) -> None:
        with tarfile.open(folder / f"{name}.tar", "x", format=tarfile.USTAR_FORMAT) as archive:
            for first, records in blocks:
                for index, record in enumerate(records, start=first):
                    _add(archive, record, index)

    def reading_code(self, folder: str) -> str:
        return f"gristmill.sources.TarSource({folder + '/*.tar'!r})"


def _add(archive: tarfile.TarFile, record: Element, index: int) -> None:
    columns = as_columns(record)
    key = str(columns.pop(_KEY, f"{index:09d}"))
    if "." in key.rpartition("/")[2] or ".." in key or key.startswith("/"):
        raise mismatch(f"its key is {key!r}, which cannot be the name of a file", index)
    if not columns:
        raise mismatch("it has no items, so a tar file cannot hold it", index)
    for column, value in columns.items():
        _check_name("column", column)
        suffix, data = _as_file(column, value, index)
        member = tarfile.TarInfo(f"{key}.{column}{suffix}")
        member.size = len(data)
        try:
            archive.addfile(member, io.BytesIO(data))
        except ValueError as error:  # too long, or no text
            raise mismatch(
                f"{member.name!r:.100} cannot be the name of a file in a tar file ({error})", index
            ) from None


def _as_file(column: str, value: Element, index: int) -> tuple[str, bytes]:
    if isinstance(value, bytes):
        return "", value
    if isinstance(value, str):
        return ".txt", value.encode()
    array = np.asarray(value)
    if value is None or array.dtype.hasobject:
        raise mismatch(
            f"{column!r} is {type(value).__name__}, and a tar file holds bytes, strings, numbers "
            "and arrays",
            index,
        )
    file = io.BytesIO()
    np.save(file, array, allow_pickle=False)
    return ".npy", file.getvalue()


def _check_name(what: str, name: str) -> None:
    """Raise unless a name can be part of the name of a file, which comes from the data."""
    if not name or any(part in _REFUSED or not part.isprintable() for part in name):
        raise BatchError(
            f"A {what} is named {name!r}, which cannot be part of the name of a file in a tar "
            "file. Rename it."
        )
