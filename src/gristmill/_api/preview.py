"""A preview: some elements of a pipeline as images, decoded tokens, packed rows and values."""

import os
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, TextIO, final

from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.checks import as_int
from gristmill._engine.inline_plan import inline_plan
from gristmill._io.folders.write_output import write_output
from gristmill._metrics.pages.html_table import escape_steps
from gristmill._plan.nodes.base import Node
from gristmill._plan.traverse import labels_of, shorten_steps
from gristmill._printable import printable
from gristmill._views.elements import DecodeArgument, ElementView, as_numpy, rows_of
from gristmill._views.page import fragment, page
from gristmill._views.terminal_image import supports_images
from gristmill.options import ReadOptions
from gristmill.types import Element


@final
class Preview:
    """Some elements of a pipeline, to look at: what `DataLoader.preview` returns.

    Notebooks show it as a page. `print` writes it as text, `show` as text with images where the
    terminal has colors, and `save` as a page in a file.

    >>> from gristmill import load
    >>> print(load([{"x": 1.5}], num_epochs=1).preview(1))
    list(<1 records>) -> IndexSampler: 1 element
    [0]
      x: 1.5
    """

    def __init__(self, title: str, views: Iterable[ElementView]) -> None:
        self._title = title
        self._views = list(views)

    def __len__(self) -> int:
        return len(self._views)

    def show(self, file: TextIO | None = None) -> None:
        """Write the elements to a terminal, with images if it has colors.

        Args:
            file: The stream to write to. By default standard output.
        """
        output = sys.stdout if file is None else file
        shows_images = supports_images(output, os.environ)
        output.writelines(f"{line}\n" for line in self._lines(shows_images=shows_images))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the elements to an HTML page, which needs no network and no other file.

        Args:
            path: The file. An existing one is replaced.

        Raises:
            PlanError: The file cannot be written.
        """
        heading = f'<h1>gristmill preview</h1><p class="soft">{escape_steps(self._heading)}</p>'
        content = page("gristmill preview", [heading, self._grid])
        write_output(path, [content.encode("utf-8", "backslashreplace")], name="preview")

    def __str__(self) -> str:
        """Return the elements as text."""
        return "\n".join(self._lines(shows_images=False))

    def __repr__(self) -> str:
        return f"<Preview of {printable(self._heading)}>"

    def _repr_html_(self) -> str:
        return fragment([f'<p class="soft">{escape_steps(self._heading)}</p>', self._grid])

    @property
    def _heading(self) -> str:
        plural = "" if len(self) == 1 else "s"
        return f"{self._title}: {len(self)} element{plural}"

    @property
    def _grid(self) -> str:
        return f'<div class="grid">{"".join(view.html() for view in self._views)}</div>'

    def _lines(self, *, shows_images: bool) -> Iterator[str]:
        yield printable(self._heading)
        for view in self._views:
            yield from view.lines(shows_images=shows_images)


def preview_dataset(
    dataset: MapDataset[Any] | IterDataset[Any], count: int, decode: DecodeArgument
) -> Preview:
    """Return a preview of the first elements of a dataset, computed in this process."""
    stream = (
        dataset.to_iter_dataset(ReadOptions(num_threads=0))
        if isinstance(dataset, MapDataset)
        else dataset
    )
    plan = inline_plan(plan_of(stream))
    title = shorten_steps(labels_of(plan_of(dataset)))
    planned: IterDataset[Any] = PlannedIterDataset(plan, tuple(stream.parents))
    elements = iter(planned)
    try:
        return preview_elements(elements, plan, count, decode, title=title)
    finally:
        elements.close()


def preview_elements(
    elements: Iterable[Element], plan: Node, count: int, decode: DecodeArgument, *, title: str
) -> Preview:
    """Return a preview of the first elements of a pipeline; of batches, the first rows.

    Args:
        elements: The elements, of which no more are taken than needed.
        plan: The plan that they come from.
        count: How many to show.
        decode: How to decode tokens.
        title: What the elements are of.
    """
    number = as_int("num_elements", count, minimum=1)
    arrays = map(as_numpy, elements)
    rows = chain.from_iterable(map(rows_of, arrays)) if plan.yields_batches else arrays
    return Preview(
        title,
        (
            ElementView(title=f"[{index}]", element=element, decode=decode)
            for index, element in enumerate(islice(rows, number))
        ),
    )
