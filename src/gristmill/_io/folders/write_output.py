"""Write a page or a trace to the path that a user named, as a shell would redirect output to it."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from gristmill._io.folders.atomic_write import Buffer, write_atomically
from gristmill.errors import PlanError

_STDOUT = 1


def write_output(path: str | os.PathLike[str], buffers: Iterable[Buffer], *, name: str) -> None:
    """Write an output. A regular file is replaced once all is written.

    A symbolic link stays: the file that it points to is written. Pipes and devices, such as
    `/dev/stdout`, are written directly. Folders are not created.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_output(Path(folder, "report.html"), [b"a", b"b"], name="report")
    ...     Path(folder, "report.html").read_bytes()
    b'ab'

    Args:
        path: The path.
        buffers: The content.
        name: What the output is, for errors.

    Raises:
        PlanError: It cannot be written.
    """
    given = Path(path)
    try:
        found = _stat(given)
        if found is not None and is_standard_output(given):
            _write_all(os.dup(_STDOUT), buffers)  # shares the offset of what is printed
        elif found is not None and not stat.S_ISREG(found.st_mode):
            _write_all(os.open(given, os.O_WRONLY), buffers)
        else:
            _replace(Path(os.path.realpath(given)), buffers)
    except (OSError, ValueError) as error:  # `ValueError`: the system has no such names
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise PlanError(
            f"The {name} {str(given)!r} cannot be written: {reason}. Pass the path of a file in a "
            "folder that exists and that you may write to."
        ) from error


def is_standard_output(path: str | os.PathLike[str]) -> bool:
    """Return whether a path, such as `/dev/stdout`, is that of the standard output.

    >>> is_standard_output("/")
    False
    """
    with suppress(OSError, ValueError):
        return os.path.samestat(os.stat(path), os.fstat(_STDOUT))
    return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _replace(path: Path, buffers: Iterable[Buffer]) -> None:
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} does not exist")
    write_atomically(path, buffers)


def _write_all(descriptor: int, buffers: Iterable[Buffer]) -> None:
    with os.fdopen(descriptor, "wb") as file:
        for buffer in buffers:
            file.write(buffer)
