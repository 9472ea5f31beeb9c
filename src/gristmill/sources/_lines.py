"""Where the lines of a text begin and end."""

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import FormatError
from gristmill.files import File
from gristmill.sources._compressed import refuse_compressed
from gristmill.types import Indices

_NEWLINE = 10
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")

_IS_INK = np.ones(256, dtype=bool)
_IS_INK[list(b" \t\r\n")] = False


def index_lines(file: File) -> dict[str, Indices]:
    """Give the `starts` and `stops` of all lines that are not blank, without their line feeds.

    A carriage return in front of a line feed counts as white space that belongs to the line.
    """
    starts: list[Indices] = []
    stops: list[Indices] = []
    position = 0
    begin, is_blank = 0, True  # of the line that the last chunk did not end
    for chunk in file.chunks():
        if not position:
            _check_text(chunk, file.ref.path)
            if chunk.startswith(_BYTE_ORDER_MARK):
                begin = position = len(_BYTE_ORDER_MARK)
                chunk = chunk[position:]
        data = np.frombuffer(chunk, dtype=np.uint8)
        ends = np.flatnonzero(data == _NEWLINE)
        heads = np.concatenate([[0], ends + 1])
        is_text = _has_ink(data, heads, first=not is_blank)
        lines = heads + position
        lines[0] = begin
        starts.append(lines[:-1][is_text[:-1]])
        stops.append((ends + position)[is_text[:-1]])
        begin, is_blank = int(lines[-1]), not is_text[-1]
        position += len(data)
    if not is_blank:
        starts.append(np.array([begin]))
        stops.append(np.array([position]))
    return {"starts": _join(starts), "stops": _join(stops)}


def _has_ink(data: NDArray[np.uint8], heads: Indices, *, first: bool) -> NDArray[np.bool_]:
    """Tell for each part of a chunk whether there is more than white space in it.

    The first byte of a line mostly tells; the rest of the chunk is looked at only if it does not.
    """
    has_ink = np.zeros(len(heads), dtype=bool)
    inside = heads[: -1 if heads[-1] == len(data) else None]
    has_ink[: len(inside)] = _IS_INK[data[inside]]
    has_ink[0] |= first
    if len(inside) and not has_ink[: len(inside)].all():
        has_ink[: len(inside)] |= np.logical_or.reduceat(_IS_INK[data], inside)
    return has_ink


def _join(parts: list[Indices]) -> Indices:
    return np.concatenate([np.empty(0, dtype=np.int64), *parts])


def _check_text(head: bytes, path: str) -> None:
    refuse_compressed(head, path)
    if head.startswith(_UTF_16):
        raise FormatError(
            "The text is in UTF-16. Convert it, for instance with `iconv -f UTF-16 -t UTF-8`.",
            path=path,
            offset=0,
        )
    if b"\x00" in head:
        raise FormatError(
            "The file holds bytes of zero, as no text does. Pass a text file in UTF-8.",
            path=path,
            offset=head.index(b"\x00"),
        )
