"""A source over datasets that the `datasets` library of Hugging Face has saved to disk."""

import json
import os
from collections.abc import Sequence
from typing import cast, final

from gristmill._data.sources.tables.arrow_ipc import CACHE_BYTES, ArrowFiles
from gristmill._data.sources.tables.arrow_values import load_pyarrow
from gristmill._data.sources.tables.table import TableSource
from gristmill._io.open_files import OpenFiles
from gristmill._io.paths import find_file, find_named
from gristmill.errors import (
    CorruptFileError,
    FileError,
    FormatError,
    MissingFileError,
    PlanError,
)
from gristmill.options import StorageOptions
from gristmill.types import JsonObject


@final
class HuggingFaceSource(TableSource):
    """Random access to the rows of a dataset in a folder written by `save_to_disk`, as dicts.

    Values are returned as they are stored: an image is a dict of its `bytes` and `path`, a class
    label is a number. The files are read like those of `ArrowSource`; the `datasets` library is not
    needed.

    >>> import tempfile
    >>> import datasets
    >>> datasets.disable_progress_bars()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}).save_to_disk(folder)
    ...     source = HuggingFaceSource(folder)
    ...     len(source), source[1]
    (2, {'text': 'b', 'label': np.int64(1)})

    Args:
        path: The path or URL of the folder.
        split: The split to read, if the folder contains several.
        columns: The names of the columns to read, by default all.
        storage: How files in a store are read.

    Raises:
        MissingFileError: If there is no such folder, or a file is missing in it.
        FormatError: If `save_to_disk` did not write the folder.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        split: str | None = None,
        columns: Sequence[str] | None = None,
        storage: StorageOptions | None = None,
    ) -> None:
        load_pyarrow("`HuggingFaceSource`")
        folder = os.fspath(path).rstrip("/")
        split_folder = _find_split(folder, split, storage)
        state = _read_json(f"{split_folder}/state.json", storage)
        if state is None:
            raise FormatError(
                "The folder was not written by `save_to_disk`: it contains no state.json. Load the "
                "dataset with `datasets`, and save it with `.save_to_disk(folder)`.",
                path=split_folder,
            )
        if state.get("_indices_data_files"):
            raise FormatError(
                "An old version of `datasets` saved the order of the rows separately. Load the "
                "dataset with `datasets` and save it again.",
                path=split_folder,
            )
        refs = find_named(split_folder, _data_file_names(state, split_folder), storage)
        description = repr(os.path.basename(folder))
        if split is not None:
            description += f", split={split!r}"
        super().__init__(
            ArrowFiles(refs, columns), description=description, cache_bytes=CACHE_BYTES
        )


def _find_split(folder: str, split: str | None, storage: StorageOptions | None) -> str:
    """Return the folder of the split."""
    index = _read_json(f"{folder}/dataset_dict.json", storage)
    name = os.path.basename(folder)
    if index is None:
        if split is not None:
            raise PlanError(
                f"`split` is {split!r}, but {name!r} holds a single dataset. Leave `split` out."
            )
        return folder
    listed: object = index.get("splits")
    splits = cast("list[object]", listed) if isinstance(listed, list) else [None]
    if not all(isinstance(one, str) for one in splits):
        raise FormatError(
            "The dataset_dict.json does not list the splits. Save the dataset again with "
            "`save_to_disk`.",
            path=folder,
        )
    if split not in splits:
        raise PlanError(
            f"`split` must be one of the splits in {name!r}, {', '.join(map(repr, splits))}, "
            f"got {split!r}."
        )
    _check_name(split, folder)
    return f"{folder}/{split}"


def _data_file_names(state: JsonObject, folder: str) -> list[str]:
    """Return the names of the data files, which must be in the folder of their state.json."""
    listed: object = state.get("_data_files")
    if not isinstance(listed, list):
        raise FormatError(
            "The state.json does not list the data files. Save the dataset again with "
            "`save_to_disk`.",
            path=folder,
        )
    names: list[str] = []
    for file in cast("list[object]", listed):
        name = cast("dict[str, object]", file).get("filename") if isinstance(file, dict) else None
        names.append(_check_name(name, folder))
    return names


def _check_name(name: object, folder: str) -> str:
    """Return the name of a file, or raise: a path could refer to any file of this machine."""
    if isinstance(name, str) and name not in ("", ".", "..") and not set(name) & set("/\\\0"):
        return name
    raise FormatError(
        f"The folder lists {name!r} as one of its files, which is not the name of a file in it. "
        "Save the dataset again with `save_to_disk`.",
        path=folder,
    )


def _read_json(path: str, storage: StorageOptions | None) -> JsonObject | None:
    """Return the content of a JSON file, or `None` if its folder exists but not the file."""
    try:
        ref = find_file(path, storage)
    except MissingFileError:
        if "://" in path or os.path.isdir(os.path.dirname(path)):
            return None
        raise
    try:
        content: object = json.loads(OpenFiles([ref])[0].read_one(0, ref.size))
    except FileError:
        raise
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"The file is not JSON: {error}.", path=path) from None
    if not isinstance(content, dict):
        raise CorruptFileError("The file does not contain a JSON object.", path=path)
    return cast(JsonObject, content)
