"""Find the files that the paths, patterns and addresses written by a user refer to."""

import difflib
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from gristmill._io.braces import expand_braces
from gristmill._io.file import INDEX_SUFFIX, FileRef
from gristmill._io.local import as_file_error, find_local
from gristmill._io.stores.lazy_remote import find_remote, find_remote_folder, find_remote_pattern
from gristmill.errors import (
    ForbiddenFileError,
    MissingFileError,
    PlanError,
    PlanTypeError,
)
from gristmill.options import StorageOptions

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A path or address, or several. Each may be a pattern with `*`, or with ranges in braces."""


def find_files(paths: Paths, storage: StorageOptions | None = None) -> tuple[FileRef, ...]:
    """Return the files that `paths` refers to.

    They are in the order of `paths`; the files that match a pattern are sorted.

    Args:
        paths: A path, a pattern or an address, or a sequence of them.
        storage: How to read remote files.

    Raises:
        MissingFileError: If a file does not exist or a pattern matches no file.
        FormatError: If a path is a folder or a device.
        PlanTypeError: If a path is neither a string nor a path object.
    """
    options = storage or StorageOptions()
    several = [paths] if isinstance(paths, str | os.PathLike) else _as_paths(paths)
    return tuple(ref for path in several for ref in _expand(_as_string(path), options))


def find_file(path: str | os.PathLike[str], storage: StorageOptions | None = None) -> FileRef:
    """Return the one file that `path` refers to. A pattern must match a single file."""
    found = _expand(_as_string(path), storage or StorageOptions())
    if len(found) > 1:
        raise PlanError(f"`path` must be one file, and {_as_string(path)!r} matches {len(found)}.")
    return found[0]


def find_named(
    folder: str, names: Sequence[str], storage: StorageOptions | None = None
) -> tuple[FileRef, ...]:
    """Return files in a folder by their names, of which none is a pattern.

    Args:
        folder: The path or URL of the folder.
        names: The paths of the files in it.
        storage: How remote files are read.
    """
    options = storage or StorageOptions()
    find = find_remote if _is_remote(folder) else find_local
    root = folder if _is_remote(folder) else _local_path(folder)
    return tuple(find(f"{root}/{name}", options) for name in names)


def find_folder(
    path: str | os.PathLike[str], storage: StorageOptions | None = None
) -> tuple[FileRef, ...]:
    """Return all files in a folder and its subfolders, sorted by path."""
    options = storage or StorageOptions()
    string = _as_string(path)
    if not _is_remote(string):
        local = _local_path(string)
        if not os.path.isdir(local):
            raise MissingFileError(f"There is no such folder.{_suggest(local)}", path=local)
        return tuple(find_local(name, options) for name in sorted(_walk_files(local)))
    found = find_remote_folder(string, options)
    if not found:
        raise MissingFileError("There is no such folder, or it is empty.", path=string)
    return tuple(found)


def _walk_files(folder: str) -> Iterator[str]:
    """Yield all files below a folder. Symbolic links are followed; each folder is visited once."""
    visited: set[tuple[int, int]] = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        found = os.stat(parent)
        if (found.st_dev, found.st_ino) in visited:  # a link to a folder above it
            folders.clear()
            continue
        visited.add((found.st_dev, found.st_ino))
        yield from (os.path.join(parent, name) for name in names if not name.endswith(INDEX_SUFFIX))


def _as_paths(paths: object) -> list[object]:
    if not isinstance(paths, Sequence) or isinstance(paths, bytes):
        raise PlanTypeError(f"`paths` must be a path or a list of paths, got {paths!r}.")
    several = list(cast("Sequence[object]", paths))
    if not several:
        raise PlanError("`paths` must hold at least one path, got an empty list.")
    return several


def _as_string(path: object) -> str:
    if not isinstance(path, str | os.PathLike):
        raise PlanTypeError(f"A path must be a string or a `Path`, got {path!r}.")
    string: object = os.fspath(cast("str | os.PathLike[Any]", path))
    if not isinstance(string, str) or not string:
        raise PlanTypeError(f"A path must be a string or a `Path`, got {string!r}.")
    return string


def _is_remote(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _local_path(path: str) -> str:
    return os.path.expanduser(path.removeprefix("file://"))


def _expand(path: str, storage: StorageOptions) -> list[FileRef]:
    is_remote = _is_remote(path)
    if not is_remote:
        path = _local_path(path)
        if _exists(path):  # even if its name looks like a pattern
            return [find_local(path, storage)]
    expanded = expand_braces(path)
    if len(expanded) > 1:
        return [ref for one in expanded for ref in _expand(one, storage)]
    if is_remote:
        return _expand_remote(path, storage)
    if not glob.has_magic(path):
        raise MissingFileError(f"There is no such file.{_suggest(path)}", path=path)
    found = sorted(
        name for name in glob.glob(path, recursive=True) if not name.endswith(INDEX_SUFFIX)
    )
    files = [name for name in found if not os.path.isdir(name)]
    if not files:
        folders = f", only {len(found)} folder{'s' * (len(found) > 1)}" if found else ""
        raise MissingFileError(f"The pattern matches no file{folders}.{_suggest(path)}", path=path)
    return [find_local(name, storage) for name in files]


def _expand_remote(address: str, storage: StorageOptions) -> list[FileRef]:
    if "*" not in address:
        return [find_remote(address, storage)]
    if not is_http(address):
        found = find_remote_pattern(address, storage)
    else:
        try:
            found = find_remote_pattern(address, storage)  # some servers list files on a page
        except (MissingFileError, ForbiddenFileError):
            found = []
        if not found:
            raise MissingFileError(
                "An HTTP server cannot list its files, so the pattern matches no file. Pass a list "
                "of addresses, or write the numbers in braces, such as `train-{0000..0099}.tar`.",
                path=address,
            )
    if not found:
        raise MissingFileError("The pattern matches no file. Check the address.", path=address)
    return found


def is_http(address: str) -> bool:
    """Return whether an address is one of HTTP."""
    return address.startswith(("http://", "https://"))


def _exists(path: str) -> bool:
    """Return whether a path exists; a broken symbolic link does."""
    try:
        os.lstat(path)
    except PermissionError as error:
        raise as_file_error(error, path) from None
    except (OSError, ValueError):  # a path that no file system can have
        return False
    return True


def _suggest(path: str) -> str:
    """Return a sentence about a missing path: a similar name, or that its folder is missing too."""
    parent = Path(path).parent
    if glob.has_magic(str(parent)) or not str(parent):
        return " Check the path."
    if not parent.is_dir():
        return f" There is no folder {parent.name!r} either. Check the path."
    try:
        names = os.listdir(parent)
    except OSError:
        return " Check the path."
    similar = difflib.get_close_matches(Path(path).name, names, n=1)
    return f" Did you mean {similar[0]!r}?" if similar else " Check the path."
