"""Open files in folders that other users may write to, without blocking and with bounds."""

import os
import stat
from pathlib import Path


def read_regular_file(path: Path, *, max_bytes: int) -> bytes:
    """Return the content of a regular file of at most `max_bytes`.

    A pipe would block, a device has no end, and a symbolic link could lead anywhere.

    Raises:
        OSError: If the file cannot be read, is not a regular file, or is larger.
    """
    descriptor = open_regular_file(path, os.O_RDONLY)
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        if size > max_bytes:
            raise OSError(f"{path} has {size:,} bytes, more than {max_bytes:,}.")
        return file.read(size)


def open_regular_file(path: Path, flags: int) -> int:
    """Return the descriptor of a regular file; any other kind is an `OSError`, at once."""
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags | safe, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is not a regular file.")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_private_folder(folder: Path) -> None:
    """Create a folder that only this user can enter, or make it one.

    Raises:
        PermissionError: If the folder belongs to another user, is a symbolic link, or other users
            could write to it so far.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = os.lstat(folder)
    if not (stat.S_ISDIR(found.st_mode) and is_only_writable_by_this_user(found)):
        raise PermissionError(
            f"The cache folder {folder} must belong to this user alone (mode 700). Remove it, or "
            "choose another one with the environment variable `XDG_CACHE_HOME`."
        )
    os.chmod(folder, 0o700)


def is_only_writable_by_this_user(found: os.stat_result) -> bool:
    """Return whether a file belongs to this user, and no other user has permission to write."""
    return found.st_uid == os.geteuid() and not found.st_mode & 0o022
