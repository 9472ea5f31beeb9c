"""Index the records of a CSV file.

A line end ends a record unless it is inside quotes. A quote opens at the beginning of a field, and
the next quote closes. A quote that directly follows a closing one opens again: this is how a quote
is written inside quotes. Any other quote is an ordinary character: `5" pipe`.

So usually every second quote closes, and it is enough to count them. The bytes before the opening
quotes show whether that is the case. If not, the quotes are examined one by one.
"""

from typing import final

import numpy as np
from numpy.typing import NDArray

from gristmill._data.sources.file_head import UTF8_BOM, refuse_non_utf8
from gristmill._io.file import File
from gristmill.errors import CorruptFileError
from gristmill.types import Indices

_QUOTE, _FEED, _RETURN = b'"\n\r'
_NO_OFFSET = -2
"""An offset that no byte of a file is next to."""


def index_records(file: File, *, delimiter: str, has_header: bool) -> dict[str, Indices]:
    """Return the `starts` and `stops` of all records, without line ends, header and blank lines."""
    scan = _QuoteScan(ord(delimiter))
    starts: list[Indices] = [np.empty(0, np.int64)]
    stops: list[Indices] = [np.empty(0, np.int64)]
    begin = 0
    for chunk in file.chunks():
        if not scan.offset:
            refuse_non_utf8(chunk, file.ref.path)
            if chunk.startswith(UTF8_BOM):
                begin = scan.offset = len(UTF8_BOM)
                chunk = chunk[begin:]
        ends = scan.find_ends(chunk)
        heads = np.append(begin, ends + 1)
        begin = int(heads[-1])
        is_record = ends > heads[:-1]  # a line feed after a carriage return ends only a blank line
        starts.append(heads[:-1][is_record])
        stops.append(ends[is_record])
    if scan.is_inside_quotes:
        raise CorruptFileError(
            "A quote is opened and never closed: the file is truncated, or a quote inside a field "
            "is not doubled.",
            path=file.ref.path,
            offset=scan.last_quote,
            record=max(0, sum(map(len, starts)) - has_header),
        )
    if begin < scan.offset:
        starts.append(np.array([begin]))
        stops.append(np.array([scan.offset]))
    first = 1 if has_header else 0
    return {"starts": np.concatenate(starts)[first:], "stops": np.concatenate(stops)[first:]}


@final
class _QuoteScan:
    """A pass over a file, chunk by chunk, that tracks which bytes are inside quotes."""

    def __init__(self, delimiter: int) -> None:
        self.offset = 0
        """Where the next chunk begins."""
        self.is_inside_quotes = False
        self.last_quote = _NO_OFFSET
        self._is_before_field = np.zeros(256, dtype=bool)
        self._is_before_field[[delimiter, _FEED, _RETURN]] = True
        self._last_byte = _FEED

    def find_ends(self, chunk: bytes) -> Indices:
        """Return the offsets of the line ends in a chunk that end a record."""
        data = np.frombuffer(chunk, dtype=np.uint8)
        ends = np.flatnonzero(
            (data == _FEED) | (data == _RETURN) if b"\r" in chunk else data == _FEED
        )
        was_inside = self.is_inside_quotes
        quotes = self._find_quotes(data) if b'"' in chunk else ends[:0]
        if len(quotes):
            is_inside = (np.searchsorted(quotes, ends) + was_inside) % 2 == 1
            ends = ends[~is_inside]
            self.is_inside_quotes = (len(quotes) + was_inside) % 2 == 1
            self.last_quote = int(quotes[-1]) + self.offset
        elif was_inside:
            ends = ends[:0]
        ends = ends + self.offset
        self.offset += len(data)
        self._last_byte = chunk[-1] if chunk else self._last_byte
        return ends

    def _find_quotes(self, data: NDArray[np.uint8]) -> Indices:
        """Return where quotes open or close."""
        quotes = np.flatnonzero(data == _QUOTE)
        before = np.append(self._last_byte, data)[quotes]
        may_open = self._is_before_field[before]
        is_adjacent = np.diff(quotes, prepend=self.last_quote - self.offset) == 1
        if (may_open | is_adjacent)[int(self.is_inside_quotes) :: 2].all():
            return quotes
        return self._find_quotes_one_by_one(quotes, may_open)

    def _find_quotes_one_by_one(self, quotes: Indices, may_open: NDArray[np.bool_]) -> Indices:
        is_inside, last = self.is_inside_quotes, self.last_quote - self.offset
        found: list[int] = []
        for quote, is_first in zip(quotes.tolist(), may_open.tolist(), strict=True):
            if is_inside or is_first or quote == last + 1:
                is_inside, last = not is_inside, quote
                found.append(quote)
        return np.array(found, dtype=np.int64)
