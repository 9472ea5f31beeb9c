"""Rows of packed documents: their segments, how full they are, and how both look."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast, final

import numpy as np
from numpy.typing import NDArray

from gristmill._metrics.pages.html_table import escape
from gristmill._views.values import shorten
from gristmill.types import AnyArray, Element

SEGMENT_IDS, POSITIONS = "_segment_ids", "_positions"
"""How the names of the features end that packing adds."""

_BAR_WIDTH = 64
_MARKS = "█▓▒"
_PADDING = "·"
_NUM_COLORS = 6
_MAX_DECODED = 600

Decode = Callable[[Sequence[int]], object]
"""Turns the numbers of tokens into a string."""


@final
@dataclass(frozen=True)
class RowSegment:
    """Consecutive tokens of a row that belong to one document, or the padding between them."""

    number: int
    """The number of the document in the row, from 1; 0 for padding."""
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PackedRow:
    """One feature of a row of packed documents.

    >>> row = PackedRow(name="x", tokens=np.array([5, 6, 7, 0]), segment_ids=np.array([1, 1, 2, 0]))
    >>> row.summary
    '2 documents of 2, 1; 3 of 4 tokens, 75% filled'
    """

    name: str
    tokens: AnyArray
    segment_ids: NDArray[np.integer]

    @property
    def segments(self) -> list[RowSegment]:
        """The documents and the padding, in order."""
        edges = np.flatnonzero(np.diff(self.segment_ids)) + 1
        starts = [0, *edges.tolist()]
        stops = [*edges.tolist(), len(self.segment_ids)]
        return [
            RowSegment(int(self.segment_ids[start]), start, stop)
            for start, stop in zip(starts, stops, strict=True)
            if stop > start
        ]

    @property
    def summary(self) -> str:
        """How many documents there are, how long they are, and how full the row is."""
        lengths = [len(segment) for segment in self.segments if segment.number]
        shown = ", ".join(map(str, lengths[:8])) + (", ..." if len(lengths) > 8 else "")
        plural = "" if len(lengths) == 1 else "s"
        size = max(1, len(self.segment_ids))
        documents = f"{len(lengths)} document{plural}" + (f" of {shown}" if lengths else "")
        return f"{documents}; {sum(lengths)} of {size} tokens, {sum(lengths) / size:.0%} filled"

    def bar(self) -> str:
        """Return the row as a line of characters: another one for each document, dots for padding.

        Short documents may be missing: a character is the document at its middle.
        """
        size = len(self.segment_ids)
        width = min(_BAR_WIDTH, size)
        middles = ((np.arange(width) + 0.5) * size / max(1, width)).astype(int)
        numbers: list[int] = self.segment_ids[middles].tolist()
        return "".join(_MARKS[(n - 1) % len(_MARKS)] if n else _PADDING for n in numbers)

    def decoded(self, decode: Decode) -> Iterator[tuple[int, str]]:
        """Yield the number of each document, and its tokens as a string."""
        for segment in self.segments:
            if segment.number:
                tokens = self.tokens[segment.start : segment.stop].tolist()
                yield segment.number, shorten(str(decode(tokens)), _MAX_DECODED)

    def html(self, decode: Decode | None) -> str:
        """Return the row as colored segments, with its decoded documents. All is escaped."""
        spans = "".join(
            f'<span class="{_color(segment.number)}" style="flex:{len(segment)}" '
            f'title="{_title(segment)}">{len(segment) if segment.number else ""}</span>'
            for segment in self.segments
        )
        shown = ""
        if decode is not None:
            documents = "".join(
                f'<span class="{_color(number)}">{escape(text)}</span> '
                for number, text in self.decoded(decode)
            )
            shown = f'<div class="tokens">{documents}</div>'
        caption = f'<p class="soft">{escape(self.name)}: {escape(self.summary)}</p>'
        return f'{caption}<div class="row">{spans}</div>{shown}'


def packed_rows(element: Element) -> list[PackedRow]:
    """Return the packed features of an element.

    >>> element = {"x": np.array([4, 0]), "x_segment_ids": np.array([1, 0]), "y": 3}
    >>> [row.name for row in packed_rows(element)]
    ['x']
    """
    if not isinstance(element, Mapping):
        return []
    fields = cast("Mapping[object, Element]", element)
    rows: list[PackedRow] = []
    for key, tokens in fields.items():
        ids = fields.get(f"{key}{SEGMENT_IDS}") if isinstance(key, str) else None
        if isinstance(ids, np.ndarray) and isinstance(tokens, np.ndarray):
            numbers = cast("AnyArray", ids)
            is_row = numbers.ndim == 1 and numbers.dtype.kind in "iu"
            values = cast("AnyArray", tokens)
            if is_row and len(numbers) and values.shape[:1] == numbers.shape:
                rows.append(PackedRow(name=str(key), tokens=values, segment_ids=numbers))
    return rows


def _color(number: int) -> str:
    return f"s{(number - 1) % _NUM_COLORS}" if number else "fill"


def _title(segment: RowSegment) -> str:
    kind = f"document {segment.number}" if segment.number else "padding"
    return f"{kind}: {len(segment)} tokens from {segment.start}"
