"""Print the tables in colour, if rich is installed."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks._model import Role, Row
from benchmarks._report import cells, conclusions
from benchmarks._runner import Result

_STYLES = {Role.OURS: "bold green", Role.BASE: "green", Role.LIMIT: "dim", Role.INFO: "italic"}


def show(rows: list[Row], results: dict[str, list[Result]]) -> None:
    """Print a table for each row, and the conclusions from it."""
    console = Console(markup=False)  # `images[rows]` is not markup
    if not console.is_terminal:
        console = Console(markup=False, width=140)
    for row in rows:
        headings, lines = cells(row, results[row.name])
        table = Table(title=f"{row.name}: {row.title}", title_justify="left")
        for heading in headings:
            is_text = heading in ("contender", "how", "note")
            table.add_column(heading, justify="left" if is_text else "right", no_wrap=True)
        for result, line in zip(results[row.name], lines, strict=True):
            table.add_row(*map(Text, line), style=_STYLES.get(result.contender.role, ""))
        console.print(table)
        for line in conclusions(row, results[row.name]):
            bad = "NOT MET" in line or "DIFFERENT" in line or "as fast as" in line
            style = "dim" if line == row.note else "red" if bad else "green"
            console.print(line, style=style, highlight=False)
        console.print()
