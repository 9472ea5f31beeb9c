"""Rows of datasets that Hugging Face's `datasets` saved to disk, read without it."""

import json
import os
from collections.abc import Sequence
from typing import Any, final

from gristmill._arrow import load_pyarrow
from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from gristmill.files import OpenFiles, find_file, find_files
from gristmill.options import StorageOptions
from gristmill.sources._ipc import CACHE_BYTES, ArrowFiles
from gristmill.sources._table import TableSource


@final
class HuggingFaceSource(TableSource):
    """Random access to the rows of a dataset in a folder that `save_to_disk` wrote, as dicts.

    Values are given as they are stored: of a picture its `bytes` and `path`, of a class its
    number. The files are read as `ArrowSource` reads them, and `datasets` is not needed.

    >>> import tempfile
    >>> import datasets
    >>> datasets.disable_progress_bars()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     datasets.Dataset.from_dict({"text": ["a", "b"], "label": [0, 1]}).save_to_disk(folder)
    ...     source = HuggingFaceSource(folder)
    ...     len(source), source[1]
    (2, {'text': 'b', 'label': np.int64(1)})

    Args:
        path: The folder; local or in a store.
        split: Which one to read, where the folder holds several.
        columns: The names of those to read; all by default.
        storage: How files in a store are read.
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
        home = _home(folder, split, storage)
        state = _read_json(f"{home}/state.json", storage)
        if state is None:
            raise FormatError(
                "It is not a folder that `save_to_disk` wrote: there is no state.json in it. Load "
                "the dataset with `datasets`, and save it with `.save_to_disk(folder)`.",
                path=home,
            )
        if state.get("_indices_data_files"):
            raise FormatError(
                "An old version of `datasets` saved the order of the rows apart from them. Load "
                "the dataset and save it anew.",
                path=home,
            )
        if "_data_files" not in state:
            raise FormatError(
                "The state.json does not list its files, as `save_to_disk` does.", path=home
            )
        names = [f"{home}/{file['filename']}" for file in state["_data_files"]]
        refs = find_files(names, storage) if names else ()
        told = repr(os.path.basename(folder)) + ("" if split is None else f", split={split!r}")
        super().__init__(ArrowFiles(refs, columns), told=told, cache_bytes=CACHE_BYTES)


def _home(folder: str, split: str | None, storage: StorageOptions | None) -> str:
    """Give the folder of the split."""
    several = _read_json(f"{folder}/dataset_dict.json", storage)
    name = os.path.basename(folder)
    if several is None:
        if split is not None:
            raise PlanError(
                f"`split` is {split!r}, and {name!r} holds a single dataset. Leave `split` out."
            )
        return folder
    splits: list[str] = several["splits"]
    if split not in splits:
        raise PlanError(
            f"`split` must be one of those in {name!r}, which are "
            f"{', '.join(map(repr, splits))}, got {split!r}."
        )
    return f"{folder}/{split}"


def _read_json(path: str, storage: StorageOptions | None) -> dict[str, Any] | None:
    """Give what a file says; None if it is not there, though its folder is."""
    try:
        ref = find_file(path, storage)
    except MissingFileError:
        if "://" in path or os.path.isdir(os.path.dirname(path)):
            return None
        raise
    try:
        return json.loads(OpenFiles([ref])[0].read_one(0, ref.size))
    except ValueError as error:
        raise CorruptFileError(f"The file is not JSON: {error}.", path=path) from None
