"""From what a user wrote to the files that are there."""

import difflib
import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from gristmill.errors import MissingFileError, PlanError, PlanTypeError
from gristmill.files._file import FileRef
from gristmill.files._index import INDEX_ENDING
from gristmill.files._local import as_file_error, local_ref
from gristmill.files._stores import find_remote, find_remote_folder, find_remote_pattern
from gristmill.options import StorageOptions

Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One path or address, or several; each may be a pattern with `*`."""


def find_files(paths: Paths, storage: StorageOptions | None = None) -> tuple[FileRef, ...]:
    """Give the files that `paths` means: in the order given, those of a pattern sorted."""
    options = storage or StorageOptions()
    given = [paths] if isinstance(paths, str | os.PathLike) else _several(paths)
    return tuple(ref for one in given for ref in _expand(_as_text(one), options))


def find_file(path: str | os.PathLike[str], storage: StorageOptions | None = None) -> FileRef:
    """Give the one file that is there."""
    found = _expand(_as_text(path), storage or StorageOptions())
    if len(found) > 1:
        raise PlanError(f"`path` must be one file, and {_as_text(path)!r} matches {len(found)}.")
    return found[0]


def find_folder(
    path: str | os.PathLike[str], storage: StorageOptions | None = None
) -> tuple[FileRef, ...]:
    """Give all files in a folder and below, sorted by path."""
    options = storage or StorageOptions()
    text = _as_text(path)
    if not _is_remote(text):
        local = _local(text)
        if not os.path.isdir(local):
            raise MissingFileError(f"There is no such folder.{_near(local)}", path=local)
        return tuple(local_ref(name, options) for name in sorted(_files_below(local)))
    found = find_remote_folder(text, options)
    if not found:
        raise MissingFileError("There is no such folder, or nothing in it.", path=text)
    return tuple(found)


def _files_below(folder: str) -> Iterator[str]:
    """Give all files in a folder and below, also where a link leads to; each folder once."""
    been: set[tuple[int, int]] = set()
    for home, folders, names in os.walk(folder, followlinks=True):
        found = os.stat(home)
        if (found.st_dev, found.st_ino) in been:  # a link to where we come from
            folders.clear()
            continue
        been.add((found.st_dev, found.st_ino))
        yield from (os.path.join(home, name) for name in names if not name.endswith(INDEX_ENDING))


def _several(paths: Any) -> list[Any]:
    if not isinstance(paths, Sequence) or isinstance(paths, bytes):
        raise PlanTypeError(f"`paths` must be a path or a list of paths, got {paths!r}.")
    several = list(cast("Sequence[Any]", paths))
    if not several:
        raise PlanError("`paths` must hold at least one path, got an empty list.")
    return several


def _as_text(path: Any) -> str:
    if not isinstance(path, str | os.PathLike):
        raise PlanTypeError(f"A path must be text or a `Path`, got {path!r}.")
    text: Any = os.fspath(cast("str | os.PathLike[str]", path))
    if not isinstance(text, str) or not text:
        raise PlanTypeError(f"A path must be text or a `Path`, got {text!r}.")
    return text


def _is_remote(text: str) -> bool:
    return "://" in text and not text.startswith("file://")


def _local(text: str) -> str:
    return os.path.expanduser(text.removeprefix("file://"))


def _expand(text: str, storage: StorageOptions) -> list[FileRef]:
    if _is_remote(text):
        return _expand_remote(text, storage)
    path = _local(text)
    if _is_there(path):  # also where its name looks like a pattern
        return [local_ref(path, storage)]
    if not glob.has_magic(path):
        raise MissingFileError(f"There is no such file.{_near(path)}", path=path)
    found = sorted(
        name for name in glob.glob(path, recursive=True) if not name.endswith(INDEX_ENDING)
    )
    files = [name for name in found if not os.path.isdir(name)]
    if not files:
        folders = f" but {len(found)} folders" if found else ""
        raise MissingFileError(f"The pattern matches no file{folders}.{_near(path)}", path=path)
    return [local_ref(name, storage) for name in files]


def _expand_remote(address: str, storage: StorageOptions) -> list[FileRef]:
    if "*" not in address:
        return [find_remote(address, storage)]
    found = find_remote_pattern(address, storage)
    if not found:
        raise MissingFileError("The pattern matches no file. Check the address.", path=address)
    return found


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except PermissionError as error:
        raise as_file_error(error, path) from None
    except OSError:
        return False
    return True


def _near(path: str) -> str:
    """Tell where the path ends to be right, or a name that looks like the one meant."""
    parent = Path(path).parent
    pattern = glob.has_magic(str(parent))
    if pattern or not str(parent):
        return " Check the path."
    if not parent.is_dir():
        return f" There is no folder {parent.name!r} either. Check the path."
    try:
        names = os.listdir(parent)
    except OSError:
        return " Check the path."
    alike = difflib.get_close_matches(Path(path).name, names, n=1)
    return f" Did you mean {alike[0]!r}?" if alike else " Check the path."
