"""Prints the results as a table."""

from rich import box
from rich.table import Table

TITLES = ("s/epoch", "images/s", "test\naccuracy", "vs peer")
MEASURED = (
    "An epoch lasts from the creation of an iterator to the end of the last update, without "
    "compilation. The peer reads the same dataset: its time divided by that of gristmill."
)


def table(results):
    """Return a rich table with gristmill right after the loader that reads the same dataset.

    It fits into a terminal of 80 columns.
    """
    by_name = {result.name: result for result in results}
    grid = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), caption=MEASURED)
    grid.caption_justify = "left"
    grid.add_column("loader", no_wrap=True, vertical="bottom")
    for title in TITLES:
        grid.add_column(title, justify="right", no_wrap=True, vertical="bottom")
    for result in results:
        peer = by_name.get(result.peer)
        grid.add_row(
            result.name,
            f"{result.seconds:.2f}",
            f"{result.images_per_second:,.0f}",
            f"{result.accuracy}",
            "" if peer is None else f"{peer.seconds / result.seconds:.2f}x",
            style="bold green" if "gristmill" in result.name else None,
        )
    return grid
