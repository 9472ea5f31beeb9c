"""What reads stores, imported where a store is read: `asyncio` takes longer than all the rest."""

import importlib
from typing import Any

from gristmill.files._file import File, FileRef
from gristmill.options import StorageOptions


def open_remote(ref: FileRef) -> File:
    """Open a file in a store."""
    return _remote().RemoteFile(ref)


def find_remote(address: str, storage: StorageOptions) -> FileRef:
    """Look a file in a store up, or say why there is none."""
    return _remote().find(address, storage)


def find_remote_pattern(pattern: str, storage: StorageOptions) -> list[FileRef]:
    """Look up the files in a store that match, sorted by address."""
    return _remote().find_pattern(pattern, storage)


def find_remote_folder(folder: str, storage: StorageOptions) -> list[FileRef]:
    """Look up all files in a folder of a store and below, sorted by address."""
    return _remote().find_folder(folder, storage)


def _remote() -> Any:
    return importlib.import_module("gristmill.files._remote")
