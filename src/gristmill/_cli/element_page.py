"""An element and its records as one HTML page, without scripts and other files."""

from typing import Any

import numpy as np

from gristmill._base.trees.tree import leaves_with_paths
from gristmill._engine.provenance.origin import Provenance
from gristmill._metrics.pages.html_table import escape, table
from gristmill._views.page import page
from gristmill._views.pixels import image_of
from gristmill._views.png import image_tag
from gristmill._views.values import format_value, shorten
from gristmill.types import Element

_MAX_ROWS = 256
_MAX_ITEMS = 64
_MAX_CHARACTERS = 500
_IMAGE_WIDTH = 256


def element_page(
    title: str, element: Element, provenance: Provenance | str, verdict: str = ""
) -> str:
    """Return a page that shows an element row by row, with the records of each row.

    Args:
        title: What the element is.
        element: The element.
        provenance: Its records, or why they are not known.
        verdict: Whether the element is that of a ledger.
    """
    leaves = list(leaves_with_paths(element, "element"))
    values = [(path, format_value(leaf)) for path, leaf in leaves]
    parts = [
        f"<h1>gristmill replay</h1><p>{escape(title)}</p>",
        f"<p>{escape(verdict)}</p>" if verdict else "",
        f'<div class="scroll">{table(["leaf", "value"], values, num_text=2)}</div>',
    ]
    if isinstance(provenance, str):
        parts.append(f"<h2>Records</h2><p>{escape(provenance)}</p>")
    else:
        parts.append("<h2>Rows</h2>" + _rows(leaves, provenance))
    return page(f"gristmill: {title}", parts)


def _rows(leaves: list[tuple[str, Any]], provenance: Provenance) -> str:
    count = len(provenance.rows)
    by_row: list[tuple[str, Any]] = [
        (path, leaf) for path, leaf in leaves if _num_rows(leaf) == count
    ]
    heads = "".join(f"<th>{escape(name)}</th>" for name in ["row", "records", *dict(by_row)])
    lines: list[str] = []
    for number, row in enumerate(provenance.rows[:_MAX_ROWS]):
        records = "<br>".join(escape(origin) for origin in row) or "no record"
        cells = "".join(f"<td>{_cell(leaf[number])}</td>" for _, leaf in by_row)
        lines.append(f'<tr><td>{number}</td><td class="long">{records}</td>{cells}</tr>')
    more = f"<p>{count - _MAX_ROWS} more rows</p>" if count > _MAX_ROWS else ""
    table_of_rows = f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return f'<div class="scroll">{table_of_rows}</div>{more}'


def _num_rows(leaf: Any) -> int | None:
    """Return the length of the first axis of an array; `None` if it has none."""
    return np.shape(leaf)[0] if type(leaf) is np.ndarray and np.ndim(leaf) else None


def _cell(item: Any) -> str:
    """Return a row of a leaf as HTML: an image, or some of its numbers."""
    image = image_of(item)
    if image is not None:
        return image_tag(image.pixels, width=_IMAGE_WIDTH) + escape(image.note)
    numbers = np.asarray(item).reshape(-1)
    shown = " ".join(str(number) for number in numbers[:_MAX_ITEMS].tolist())
    more = " ..." if numbers.size > _MAX_ITEMS else ""
    return escape(shorten(shown, _MAX_CHARACTERS) + more)
