"""Align the cells of a table for a terminal."""

from collections.abc import Sequence


def format_table(rows: Sequence[Sequence[str]], *, num_text: int = 1) -> str:
    """Return rows as lines with aligned columns.

    >>> print(format_table([("name", "size"), ("a", "10")]))
    name  size
    a       10

    Args:
        rows: The cells of each row, all with the same number of them.
        num_text: How many columns, from the left, are text. The others are numbers.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if number < num_text else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
