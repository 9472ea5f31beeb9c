"""Show a pipeline: its steps in the order of the data, each with the line that added it."""

import html
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from gristmill._api.dataset.element_spec import get_element_spec
from gristmill._api.plan_access import plan_of
from gristmill._plan.element_spec import format_spec
from gristmill._plan.nodes.base import Node
from gristmill._plan.traverse import shorten_steps
from gristmill.errors import SpecError

_MAX_WIDTH = 60
"""The width of the first column. A longer label shifts only the columns of its own row."""

_MAX_INPUTS = 4
"""A line shows at most this many of the inputs of one step."""

_MAX_COUNTED = 2**53
"""Longer datasets are endless, or were before they were batched."""


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """One step: the lines that connect it with the others, its label, and what is known of it."""

    branch: str
    label: str
    site: str
    length: str
    spec: str

    @property
    def step(self) -> str:
        """The label, after the lines that connect it with the others."""
        return self.branch + self.label


def show_text(dataset: Any) -> str:
    """Return a pipeline as a string, from its sources down to its last step.

    >>> from gristmill import MapDataset
    >>> ds = MapDataset.mix([MapDataset.range(3), MapDataset.range(5).shuffle(seed=1)]).batch(2)
    >>> print(show_text(ds).replace(" ", ".").partition("..")[0])
    ┌.RangeDataSource(start=0,.stop=3,.step=1)
    """
    rows = [[row.step, row.site, row.length, row.spec] for row in _rows(dataset, "")]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    widths[0] = min(widths[0], _MAX_WIDTH)
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
    return "\n".join(lines)


def show_line(dataset: Any, kind: str) -> str:
    """Return a pipeline in one line. States do not contain it: `stable_repr` leaves it out.

    The inputs of a step that has several are in brackets before it:

    >>> from gristmill import MapDataset
    >>> first, second = MapDataset.source(range(3)), MapDataset.source(range(2))
    >>> show_line(MapDataset.mix([first.map(abs), second]), "MapDataset")
    '<MapDataset: [range(0, 3) -> Map abs | range(0, 2)] -> Mix(weights=[1, 1]), 4 elements>'
    """
    length = _length(plan_of(dataset))
    elements = f", {length} elements" if length else ""
    return f"<{kind}: {_steps_line(dataset)}{elements}>"


def _steps_line(dataset: Any) -> str:
    labels: list[str] = []
    while len(dataset.parents) == 1:
        labels.append(plan_of(dataset).label)
        (dataset,) = dataset.parents
    labels.append(plan_of(dataset).label)
    if dataset.parents:
        inputs = [_steps_line(parent) for parent in dataset.parents[:_MAX_INPUTS]]
        num_more = len(dataset.parents) - len(inputs)
        labels.append(f"[{' | '.join([*inputs, *([f'{num_more} more'] if num_more else [])])}]")
    return shorten_steps(labels[::-1])


def show_html(dataset: Any) -> str:
    """Return a pipeline as a table, for notebooks. What styles it is imported only then."""
    heads = "".join(f"<th>{head}</th>" for head in ("step", "written at", "length", "element"))
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="text-align:left"><code style="white-space:pre">{html.escape(cell)}'
            "</code></td>"
            for cell in (row.step, row.site, row.length, row.spec)
        )
        + "</tr>"
        for row in _rows(dataset, "")
    )
    module: Any = importlib.import_module("gristmill._metrics.pages.page")
    table = f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"
    return module.fragment_html(f'<div class="wide">{table}</div>')


def _rows(dataset: Any, branch: str) -> Iterator[Row]:
    parents = dataset.parents
    if len(parents) == 1:
        yield from _rows(parents[0], branch)
    else:
        for parent in parents:
            for number, row in enumerate(_rows(parent, "")):
                mark = "│ " if number else "┌ " if parent is parents[0] else "├ "
                yield Row(**{**vars(row), "branch": branch + mark + row.branch})
    node = plan_of(dataset)
    yield Row(
        branch=branch,
        label=node.label,
        site=_short(node.site),
        length=_length(node),
        spec=_spec(dataset),
    )


def _short(site: str) -> str:
    file, _, line = site.rpartition(":")
    return f"{Path(file).name}:{line}"


def _length(node: Node) -> str:
    try:
        length, is_known = node.length(), node.is_dense
    except Exception:  # of a user's `__len__`; printing a dataset must not raise it
        return ""
    if length > _MAX_COUNTED:
        return ""
    return str(length) if is_known else f"<= {length}"


def _spec(dataset: Any) -> str:
    try:
        return format_spec(get_element_spec(dataset))
    except SpecError:
        return ""
    except Exception:  # a user's `output_spec`
        return ""
