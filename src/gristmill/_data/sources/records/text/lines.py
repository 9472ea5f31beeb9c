"""Index the lines of a text file."""

import numpy as np
from numpy.typing import NDArray

from gristmill._data.sources.file_head import UTF8_BOM, refuse_non_utf8
from gristmill._io.file import File
from gristmill.types import Indices

_NEWLINE = 10

_IS_VISIBLE = np.ones(256, dtype=bool)
_IS_VISIBLE[list(b" \t\r\n")] = False


def index_lines(file: File) -> dict[str, Indices]:
    """Return the `starts` and `stops` of all lines that are not blank, without line feeds.

    A carriage return before a line feed counts as white space and is part of the line.
    """
    starts: list[Indices] = []
    stops: list[Indices] = []
    position = 0
    begin, is_blank = 0, True  # of the line that continues in the next chunk
    for chunk in file.chunks():
        if not position:
            refuse_non_utf8(chunk, file.ref.path)
            if chunk.startswith(UTF8_BOM):
                begin = position = len(UTF8_BOM)
                chunk = chunk[position:]
        data = np.frombuffer(chunk, dtype=np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        heads = np.concatenate([[0], ends + 1])
        is_record = _has_visible(data, heads, first=not is_blank)
        lines = heads + position
        lines[0] = begin
        starts.append(lines[:-1][is_record[:-1]])
        stops.append((ends + position)[is_record[:-1]])
        begin, is_blank = int(lines[-1]), not is_record[-1]
        position += len(data)
    if not is_blank:
        starts.append(np.array([begin]))
        stops.append(np.array([position]))
    return {"starts": _concatenate(starts), "stops": _concatenate(stops)}


def index_all_lines(file: File) -> dict[str, Indices]:
    """Return the `starts` and `stops` of all lines, without line feeds.

    What follows the last line feed is a line if it is not empty.
    """
    begin = position = 0
    ends: list[Indices] = []
    for chunk in file.chunks():
        if not position:
            refuse_non_utf8(chunk, file.ref.path)
            begin = len(UTF8_BOM) if chunk.startswith(UTF8_BOM) else 0
        ends.append(np.flatnonzero(np.frombuffer(chunk, np.uint8) == _NEWLINE) + position)
        position += len(chunk)
    stops = _concatenate(ends)
    starts = np.concatenate([[begin], stops + 1])
    if starts[-1] == position:
        return {"starts": starts[:-1], "stops": stops}
    return {"starts": starts, "stops": np.append(stops, position)}


def index_paragraphs(file: File) -> dict[str, Indices]:
    """Return the `starts` and `stops` of all groups of lines that have no blank line inside."""
    lines = index_lines(file)
    starts, stops = lines["starts"], lines["stops"]
    is_first = np.ones(len(starts), dtype=bool)
    is_first[1:] = starts[1:] != stops[:-1] + 1  # a blank line is between them
    is_last = np.append(is_first[1:], True)[: len(stops)]
    return {"starts": starts[is_first], "stops": stops[is_last]}


def _has_visible(data: NDArray[np.uint8], heads: Indices, *, first: bool) -> NDArray[np.bool_]:
    """Return for each line of a chunk whether it contains more than white space.

    For most lines the first byte decides. Only if it does not, the other bytes are examined.

    Args:
        data: The chunk.
        heads: Where its lines begin. The last one may be the end of the chunk.
        first: Whether the first line contains more than white space in earlier chunks.
    """
    has_visible = np.zeros(len(heads), dtype=bool)
    inside = heads[: -1 if heads[-1] == len(data) else None]
    has_visible[: len(inside)] = _IS_VISIBLE[data[inside]]
    has_visible[0] |= first
    if len(inside) and not has_visible[: len(inside)].all():
        has_visible[: len(inside)] |= np.logical_or.reduceat(_IS_VISIBLE[data], inside)
    return has_visible


def _concatenate(arrays: list[Indices]) -> Indices:
    return np.concatenate([np.empty(0, dtype=np.int64), *arrays])
