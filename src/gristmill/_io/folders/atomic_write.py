"""Write files atomically: a file exists with all of its content, or not at all."""

import errno
import os
import uuid
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TypeAlias

Buffer: TypeAlias = "bytes | memoryview[int]"


def write_atomically(path: Path, buffers: Iterable[Buffer], *, mode: int = 0o666) -> None:
    """Write a temporary file in the same folder and rename it to `path` once it is complete.

    Missing folders are created. On an error, the temporary file is removed. The file has the
    permissions `mode`, without those in the umask.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_atomically(Path(folder, "new", "file"), [b"a", b"b"])
    ...     Path(folder, "new", "file").read_bytes()
    b'ab'
    """
    with atomic_writer(path, mode=mode) as file:
        for buffer in buffers:
            file.write(buffer)


@contextmanager
def atomic_writer(path: Path, *, mode: int = 0o666) -> Generator[IO[bytes]]:
    """Yield a temporary file that is renamed to `path` if the `with` block ends without error."""
    if not path.name:  # such as "/", of which there is no temporary name
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".part-{uuid.uuid4().hex}")
    try:
        # `mkstemp` would not follow the umask.
        with open(temporary, "xb", opener=lambda name, flags: os.open(name, flags, mode)) as file:
            yield file
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
