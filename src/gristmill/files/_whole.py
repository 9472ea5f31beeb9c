"""Write files that are there as a whole, or not at all."""

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

Buffer: TypeAlias = "bytes | memoryview[int]"


def write_whole(path: Path, parts: Iterable[Buffer]) -> None:
    """Write a file beside its place, and move it there once all is written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "new", "file"), [b"a", b"b"])
    ...     Path(folder, "new", "file").read_bytes()
    b'ab'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".part-{uuid.uuid4().hex}")
    try:
        with open(beside, "xb") as file:  # others may read it, unlike what `mkstemp` makes
            for part in parts:
                file.write(part)
        os.replace(beside, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
