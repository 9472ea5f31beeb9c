"""Statistics as an HTML table, for notebooks and reports. Everything in it is escaped."""

import html
from collections.abc import Sequence

from gristmill._printable import printable


def escape(value: object) -> str:
    r"""Return an object as a string for HTML, with control characters shown as text.

    >>> escape("<b>\x1b")
    '&lt;b&gt;\\x1b'
    """
    return html.escape(printable(str(value)))


def escape_steps(title: object) -> str:
    """Return the steps of a pipeline for HTML, with arrows, in which no line ends.

    >>> escape_steps("range(0, 3) -> Batch(2)")
    'range(0, 3) → Batch(2)'
    """
    return escape(title).replace(" -&gt; ", " → ")


def table(heads: Sequence[str], rows: Sequence[Sequence[object]], *, num_text: int = 1) -> str:
    """Return an HTML table.

    >>> table(["step"], [["Map <lambda>"]]).count("&lt;lambda&gt;")
    1

    Args:
        heads: The heads of the columns.
        rows: The cells of each row.
        num_text: How many columns, from the left, are text. The others are numbers.
    """

    def cells(tag: str, row: Sequence[object]) -> str:
        sides = ["left"] * num_text + ["right;white-space:nowrap"] * (len(row) - num_text)
        return "".join(
            f'<{tag} style="text-align:{side}">{escape(cell)}</{tag}>'
            for cell, side in zip(row, sides, strict=True)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', heads)}</tr></thead><tbody>{body}</tbody></table>"
