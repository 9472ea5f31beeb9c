"""Columns as lines of text, for terminals."""

import codecs
from collections.abc import Iterator, Sequence

from gristmill._base.text_table import format_table
from gristmill._printable import printable
from gristmill._views.columns import ColumnView, spark_line
from gristmill._views.values import shorten

_MAX_NAME = 32
_MAX_TYPES = 40
_MAX_FACTS = 84


def column_lines(views: Sequence[ColumnView], *, encoding: str | None) -> Iterator[str]:
    """Yield a line for each column, without what a terminal would interpret.

    Args:
        views: The columns.
        encoding: The encoding of the stream. Histograms are left out if it has no characters for
            them.
    """
    shows_bars = _encodes_bars(encoding)
    rows = [
        (
            shorten(printable(view.name), _MAX_NAME),
            shorten(printable(view.types), _MAX_TYPES),
            f"{view.missing} missing" if view.missing else "",
            spark_line(view.histogram) if shows_bars and view.histogram is not None else "",
            shorten(printable("; ".join(view.facts)), _MAX_FACTS),
        )
        for view in views
    ]
    # A column of the table that is empty in every row is left out.
    kept = [number for number in range(5) if any(row[number] for row in rows)]
    yield from format_table([[row[number] for number in kept] for row in rows], num_text=5).split(
        "\n"
    )


def _encodes_bars(encoding: str | None) -> bool:
    try:
        codecs.lookup(encoding or "utf-8").encode("▁█")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
