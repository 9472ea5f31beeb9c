"""The folder of the stores of several plans, whose size is limited.

    FOLDER/CACHEDIR.TAG          marks a folder that was created here
          /3f9a.../layout, ...   the store of one plan, by its fingerprint

A new store makes room by removing others, the least recently used first, unless a process has them
open. Only files with the names of a store are ever removed, and only in a folder with the mark.
"""

import fcntl
import os
import re
import stat
from contextlib import suppress
from pathlib import Path

from gristmill._data.element_store.store import FILES, ElementStore
from gristmill._io.folders.cache_mark import is_cache, mark_as_cache
from gristmill._io.folders.safe_files import open_regular_file
from gristmill.errors import PlanError

_STORE_NAME = re.compile(r"[0-9a-f]{32}")


def open_store(folder: Path, fingerprint: str, num_elements: int, max_bytes: int) -> ElementStore:
    """Open the store of a plan, creating it if there is none.

    Raises:
        PlanError: The folder holds files of others.
        OSError: The folder cannot be written.
    """
    with suppress(FileNotFoundError):
        # Listed before the mark is read, because another process may create the cache now.
        names = [name for name in os.listdir(folder) if not name.startswith(".")]
        if names and not is_cache(folder):
            raise PlanError(
                f"The folder {folder} was not created by `cache` and is not empty. Old caches in "
                "it would be deleted. Pass a folder of its own to `cache`."
            )
    mark_as_cache(folder)
    own = folder / fingerprint
    own.mkdir(exist_ok=True)
    _check_own(own)
    os.utime(own)  # mark as recently used
    flags = os.O_RDWR | os.O_CREAT
    files = {name: open_regular_file(own / name, flags) for name in FILES}
    return ElementStore(
        files, own, num_elements, lambda wanted: _make_room(folder, own, wanted, max_bytes)
    )


def _check_own(store: Path) -> None:
    """Raise unless a folder is one in which no other user can have put elements.

    Raises:
        PermissionError: It is a link, or another user made it and lets others write to it.
    """
    found = os.lstat(store)
    is_open = found.st_uid != os.geteuid() and found.st_mode & 0o022
    if not stat.S_ISDIR(found.st_mode) or is_open:
        raise PermissionError(
            f"{store} is a link, or another user made it and lets others write to it"
        )


def _make_room(folder: Path, own: Path, wanted_bytes: int, max_bytes: int) -> int:
    """Remove other stores until a new one fits; return the bytes that there are for it."""
    others = [(store, _used_bytes(store)) for store in _other_stores(folder, own)]
    used_bytes = sum(size for _, size in others)
    for store, size in others:
        if used_bytes + wanted_bytes <= max_bytes:
            break
        if _remove(store):
            used_bytes -= size
    return max_bytes - used_bytes


def _other_stores(folder: Path, own: Path) -> list[Path]:
    """Return the folders of other stores, the least recently used first."""
    found: list[tuple[float, Path]] = []
    for name in os.listdir(folder):
        path = folder / name
        with suppress(OSError):
            status = os.lstat(path)
            if _STORE_NAME.fullmatch(name) and stat.S_ISDIR(status.st_mode) and path != own:
                found.append((status.st_mtime, path))
    return [path for _, path in sorted(found)]


def _used_bytes(store: Path) -> int:
    total = 0
    for name in FILES:
        with suppress(OSError):
            total += os.lstat(store / name).st_blocks * 512
    return total


def _remove(store: Path) -> bool:
    """Remove a store; return false if a process has it open."""
    try:
        descriptor = open_regular_file(store / "in-use", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for name in FILES:
            with suppress(FileNotFoundError):
                os.unlink(store / name)
        os.rmdir(store)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True
