"""Read a part of a file as a file of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import final

import numpy as np

from gristmill._io.file import File, FileRef
from gristmill.types import Indices


@final
class PartOfFile(File):
    """The bytes of a file from `start` to `stop`. Its ref has the path of the file.

    It is not a local file, even if the file is one: nothing at a local path has the same bytes.

    Args:
        file: The file.
        start: The first byte of the part.
        stop: The end of the part, exclusive.
    """

    def __init__(self, file: File, start: int, stop: int) -> None:
        self._file = file
        self._start = start
        self._ref = replace(file.ref, size=stop - start, is_local=False)

    @property
    def ref(self) -> FileRef:
        return self._ref

    def read(self, starts: Sequence[int] | Indices, stops: Sequence[int] | Indices) -> list[bytes]:
        return self._file.read(np.add(starts, self._start), np.add(stops, self._start))

    def chunks(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        end = self._ref.size if stop is None else stop
        return self._file.chunks(start + self._start, end + self._start)

    def local_path(self) -> Path:
        raise NotImplementedError("a part of a file has no path")

    def check_unchanged(self) -> None:
        self._file.check_unchanged()
