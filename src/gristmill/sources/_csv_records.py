"""Where the records of a CSV file begin and end.

A line end ends a record unless it is within quotes. A quote opens where a field begins, the next
one closes, and one that follows right after opens again, which is how a quote is written within
quotes. Any other is a character like others: `5" pipe`.

So mostly every second quote closes, and it is enough to count them. Whether it is so is seen at
the bytes in front of the quotes that open; if not, the quotes are gone through one by one.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill.errors import CorruptFileError, FormatError
from gristmill.files import File
from gristmill.sources._compressed import refuse_compressed
from gristmill.types import Indices

_QUOTE, _FEED, _RETURN = b'"\n\r'
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_NOWHERE = -2
"""A position that no byte is next to."""


def index_records(file: File, *, delimiter: str, has_header: bool) -> dict[str, Indices]:
    """Give the `starts` and `stops` of all records, without line ends, headers and blank lines."""
    scan = _Scan(ord(delimiter))
    starts: list[Indices] = [np.empty(0, np.int64)]
    stops: list[Indices] = [np.empty(0, np.int64)]
    begin = 0
    for chunk in file.chunks():
        if not scan.position:
            _check_text(chunk, file.ref.path)
            if chunk.startswith(_BYTE_ORDER_MARK):
                begin = scan.position = len(_BYTE_ORDER_MARK)
                chunk = chunk[begin:]
        ends = scan.ends(chunk)
        heads = np.append(begin, ends + 1)
        begin = int(heads[-1])
        is_text = ends > heads[:-1]  # a feed after a return ends nothing but a blank line
        starts.append(heads[:-1][is_text])
        stops.append(ends[is_text])
    if scan.is_inside:
        raise CorruptFileError(
            "A quote is opened and never closed: the file was cut short, or a quote in a text was "
            "not doubled.",
            path=file.ref.path,
            offset=scan.last_quote,
            record=max(0, sum(map(len, starts)) - has_header),
        )
    if begin < scan.position:
        starts.append(np.array([begin]))
        stops.append(np.array([scan.position]))
    first = 1 if has_header else 0
    return {"starts": np.concatenate(starts)[first:], "stops": np.concatenate(stops)[first:]}


@final
class _Scan:
    """A pass over a file, chunk by chunk."""

    def __init__(self, delimiter: int) -> None:
        self.position = 0
        self.is_inside = False
        self.last_quote = _NOWHERE
        self._begins_field = np.zeros(256, dtype=bool)
        self._begins_field[[delimiter, _FEED, _RETURN]] = True
        self._last_byte = _FEED

    def ends(self, chunk: bytes) -> Indices:
        """Give the positions of the line ends that end a record."""
        data = np.frombuffer(chunk, dtype=np.uint8)
        ends = np.flatnonzero(
            (data == _FEED) | (data == _RETURN) if b"\r" in chunk else data == _FEED
        )
        was_inside = self.is_inside
        quotes = self._quotes(data) if b'"' in chunk else ends[:0]
        if len(quotes):
            is_within = (np.searchsorted(quotes, ends) + was_inside) % 2 == 1
            ends = ends[~is_within]
            self.is_inside = (len(quotes) + was_inside) % 2 == 1
            self.last_quote = int(quotes[-1]) + self.position
        elif was_inside:
            ends = ends[:0]
        ends = ends + self.position
        self.position += len(data)
        self._last_byte = chunk[-1] if chunk else self._last_byte
        return ends

    def _quotes(self, data: NDArray[np.uint8]) -> Indices:
        """Give where quotes open or close."""
        quotes = np.flatnonzero(data == _QUOTE)
        before = np.append(self._last_byte, data)[quotes]
        may_open = self._begins_field[before]
        is_next = np.diff(quotes, prepend=self.last_quote - self.position) == 1
        if (may_open | is_next)[int(self.is_inside) :: 2].all():
            return quotes
        return self._quotes_one_by_one(quotes, may_open)

    def _quotes_one_by_one(self, quotes: Indices, may_open: NDArray[np.bool_]) -> Indices:
        inside, last = self.is_inside, self.last_quote - self.position
        found: list[int] = []
        for quote, begins in zip(quotes.tolist(), may_open.tolist(), strict=True):
            if inside or begins or quote == last + 1:
                inside, last = not inside, quote
                found.append(quote)
        return np.array(found, dtype=np.int64)


def _check_text(head: bytes, path: str) -> None:
    refuse_compressed(head, path)
    if b"\x00" in head:
        raise FormatError(
            "The file holds bytes of zero, as no text in UTF-8 does. Convert it, for instance "
            "with `iconv -f UTF-16 -t UTF-8`.",
            path=path,
            offset=head.index(b"\x00"),
        )
