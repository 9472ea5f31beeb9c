"""Import the code that reads remote stores on first use.

It needs `asyncio`, which takes longer to import than the rest of gristmill.
"""

import importlib
from types import ModuleType

from gristmill._io.file import File, FileRef
from gristmill.options import StorageOptions


def open_remote(ref: FileRef) -> File:
    """Open a file in a store."""
    return _remote().RemoteFile(ref)


def find_remote(address: str, storage: StorageOptions) -> FileRef:
    """Return the ref of a file in a store, or raise a `FileError` that explains why not."""
    return _remote().find(address, storage)


def find_remote_pattern(pattern: str, storage: StorageOptions) -> list[FileRef]:
    """Return the refs of the files in a store that match `pattern`, sorted by address."""
    return _remote().find_pattern(pattern, storage)


def find_remote_folder(folder: str, storage: StorageOptions) -> list[FileRef]:
    """Return the refs of all files in a folder of a store and its subfolders, sorted by address."""
    return _remote().find_folder(folder, storage)


def _remote() -> ModuleType:
    return importlib.import_module("gristmill._io.stores.remote")
