"""Index the items of a JSON array, with the memory of one chunk of the file."""

from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._data.sources.file_head import UTF8_BOM, refuse_non_utf8
from gristmill._io.file import File
from gristmill.errors import CorruptFileError, FileError, FormatError
from gristmill.types import Indices

_QUOTE, _BACKSLASH, _COMMA, _END = b'"\\,]'
_SPACES = b" \t\r\n"

_IS_STRUCTURAL = np.zeros(256, dtype=bool)
_IS_STRUCTURAL[list(b"[]{},")] = True
_DEPTH_CHANGE = np.zeros(256, dtype=np.int64)
_DEPTH_CHANGE[list(b"[{")] = 1
_DEPTH_CHANGE[list(b"]}")] = -1


def index_items(file: File) -> dict[str, Indices]:
    """Return the `starts` and `stops` of the items of the array that a file holds.

    Only the structure of the array is checked: an item that is not JSON is an error when it is
    read.
    """
    scan = _CommaScan(file=file)
    for chunk in file.chunks():
        scan.add(chunk)
    return scan.finish()


@final
@dataclass(kw_only=True)
class _CommaScan:
    """What is known after some chunks of a file."""

    file: File
    position: int = 0
    """Bytes in the chunks so far."""
    start: int | None = None
    """The byte after the bracket that opens the array."""
    stop: int | None = None
    """The byte of the bracket that closes it."""
    depth: int = 0
    is_in_string: bool = False
    is_escaped: bool = False
    """Whether the chunks end with an odd number of backslashes."""

    def __post_init__(self) -> None:
        self.commas: list[Indices] = []

    def add(self, chunk: bytes) -> None:
        """Find the commas between the items in the next chunk."""
        base, begin = self.position, 0
        if not base:
            refuse_non_utf8(chunk, self.file.ref.path)
            begin = len(UTF8_BOM) if chunk.startswith(UTF8_BOM) else 0
        self.position += len(chunk)
        if self.start is None:
            visible = chunk[begin:].lstrip(_SPACES)
            if not visible:
                return
            if visible[:1] != b"[":
                raise _not_an_array(self.file, visible, self.position - len(visible))
            self.start = self.position - len(visible) + 1
        if self.stop is not None:
            self._check_end(chunk, base)
            return
        data = np.frombuffer(chunk, np.uint8)
        quotes = self._unescaped_quotes(data)
        marks = np.flatnonzero(_IS_STRUCTURAL[data])
        is_outside = (np.searchsorted(quotes, marks) + self.is_in_string) % 2 == 0
        marks = marks[is_outside]
        self.is_in_string ^= bool(len(quotes) % 2)
        depths = self.depth + np.cumsum(_DEPTH_CHANGE[data[marks]])
        ends = np.flatnonzero(depths == 0)
        if len(ends):
            last = int(marks[ends[0]])
            if data[last] != _END:
                raise _damaged("the array is closed by a brace", self.file, base + last)
            self.stop = base + last
            self._check_end(chunk[last + 1 :], base + last + 1)
            marks, depths = marks[: ends[0]], depths[: ends[0]]
        elif len(depths):
            self.depth = int(depths[-1])
        self.commas.append(marks[(depths == 1) & (data[marks] == _COMMA)] + base)

    def finish(self) -> dict[str, Indices]:
        """Return the index."""
        if self.start is None:
            raise _not_an_array(self.file, b"", 0)
        if self.stop is None:
            raise CorruptFileError(
                "The JSON array does not end: the file is truncated. Copy it again.",
                path=self.file.ref.path,
                offset=self.position,
            )
        commas = np.concatenate([np.empty(0, np.int64), *self.commas])
        if not len(commas) and self._is_blank(self.start, self.stop):
            return {"starts": commas, "stops": commas}
        starts = np.concatenate([[self.start], commas + 1])
        return {"starts": starts, "stops": np.concatenate([commas, [self.stop]])}

    def _unescaped_quotes(self, data: NDArray[np.uint8]) -> Indices:
        """Return where strings begin and end: at quotes after an even number of backslashes."""
        quotes = np.flatnonzero(data == _QUOTE)
        slashes = np.flatnonzero(data == _BACKSLASH)
        was_escaped, self.is_escaped = self.is_escaped, False
        if not len(slashes):
            is_first_escaped = was_escaped and len(quotes) > 0 and quotes[0] == 0
            return quotes[1:] if is_first_escaped else quotes
        heads = np.flatnonzero(np.diff(slashes, prepend=-2) != 1)  # of each run of backslashes
        firsts = slashes[heads]
        counts = np.diff(np.append(heads, len(slashes)))
        ends = firsts + counts
        is_odd = (counts + (was_escaped & (firsts == 0))) % 2 == 1
        self.is_escaped = bool(ends[-1] == len(data) and is_odd[-1])
        escaped = ends[is_odd]
        if was_escaped and firsts[0] != 0:
            escaped = np.append(escaped, 0)
        return quotes[~np.isin(quotes, escaped)]

    def _check_end(self, following: bytes, offset: int) -> None:
        visible = following.lstrip(_SPACES)
        if visible:
            raise _damaged(
                "there is more after the array", self.file, offset + len(following) - len(visible)
            )

    def _is_blank(self, start: int, stop: int) -> bool:
        return not any(chunk.strip(_SPACES) for chunk in self.file.chunks(start, stop))


def _damaged(problem: str, file: File, offset: int) -> CorruptFileError:
    return CorruptFileError(
        f"The file is not one JSON array: {problem}. Correct it, or write one value per line and "
        "use `JsonLinesSource`.",
        path=file.ref.path,
        offset=offset,
    )


def _not_an_array(file: File, visible: bytes, offset: int) -> FileError:
    if visible.startswith(b"{"):
        problem = "The file begins with a JSON object, not with an array"
        remedy = (
            "If it has one value per line, use `JsonLinesSource`; otherwise select the array in "
            "it, for example with `jq .KEY`."
        )
    else:
        problem, remedy = "The file does not begin with a JSON array", "Check the path."
    return FormatError(f"{problem}. {remedy}", path=file.ref.path, offset=offset)
