"""`statistics`: mean, standard deviation, range and counts of a dataset, in one pass."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast, final

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.plan_access import HasPlan, plan_of, source_node
from gristmill._base.checks import as_int
from gristmill._base.text_table import format_table
from gristmill._base.trees.columns import Columns
from gristmill._data.statistics.blocks import blocks_of_elements, blocks_of_source
from gristmill._data.statistics.kinds import LeftOut
from gristmill._data.statistics.leaf_statistics import (
    LeafStatistics,
    LeafSummary,
    show_numbers,
    summarize_leaf,
)
from gristmill._data.statistics.leaves import columns_of, columns_of_arrays
from gristmill._metrics.pages.html_table import escape, table
from gristmill._metrics.pages.page import fragment_html
from gristmill._plan.nodes.base import ENDLESS
from gristmill._plan.traverse import bottom_of
from gristmill._printable import printable
from gristmill.errors import PlanError
from gristmill.types import Element, RandomAccessDataSource

_HEADS = ("leaf", "values", "missing", "mean", "std", "min", "max")


_REMEDIES: dict[LeftOut, str] = {
    "strings": "convert them to numbers or tokens first, as in "
    "`MapDataset.source(source).map(tokenize)`",
    "bytes": "decode them first, as in `MapDataset.source(source).map(decode)`",
    "complex numbers": "map them to real numbers first, such as their absolute values",
    "times": "map them to numbers first, such as seconds",
    "other objects": "map them to numbers or arrays first",
}


@final
class Statistics(Mapping[str, LeafStatistics]):
    """Statistics of the leaves of some elements, by name.

    The names are the keys of dicts, with the path of inner leaves: `"label"`, `'box["x"]'`. The
    items of lists of lists, of strings or of dicts are at `"tags[*]"`. Elements that are not dicts
    are at `"record"`.

    The statistics of several shards are added with `+`. They can be pickled.

    >>> first, second = statistics([{"x": 1}, {"x": 2}]), statistics([{"x": 6}])
    >>> (first + second)["x"].mean
    3.0
    """

    def __init__(self, num_elements: int, summaries: Mapping[str, LeafSummary]) -> None:
        self._num_elements = num_elements
        self._summaries = dict(summaries)

    @property
    def num_elements(self) -> int:
        """The number of elements."""
        return self._num_elements

    def __getitem__(self, name: str) -> LeafStatistics:
        if name not in self._summaries:
            known = ", ".join(map(repr, self._summaries))
            raise KeyError(f"There is no leaf {name!r}. There are: {printable(known)}")
        return self._summaries[name].statistics()

    def __iter__(self) -> Iterator[str]:
        return iter(self._summaries)

    def __len__(self) -> int:
        return len(self._summaries)

    def __add__(self, other: "Statistics") -> "Statistics":
        """Return the statistics of the elements of both."""
        if not isinstance(cast(object, other), Statistics):
            return NotImplemented
        merged = dict(self._summaries)
        for name, summary in other._summaries.items():
            _merge_into(merged, name, summary)
        return Statistics(self._num_elements + other._num_elements, merged)

    def __str__(self) -> str:
        """Return a table with a row for each leaf, and what is left out of it."""
        rows = [[printable(cell) for cell in row] for row in self._rows()]
        return "\n".join([format_table([_HEADS, *rows]), *map(printable, self._notes())])

    def __repr__(self) -> str:
        return f"<Statistics: {self._num_elements:,} elements, {len(self)} leaves>"

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return fragment_html(f'<div class="wide">{table(_HEADS, self._rows())}</div>{notes}')

    def _rows(self) -> list[tuple[str, ...]]:
        return [
            (
                name,
                f"{leaf.count:,}",
                f"{leaf.num_missing:,}",
                *(
                    show_numbers(one)
                    for one in (leaf.mean, leaf.std, leaf.min, leaf.max)
                    if leaf.min is not None
                ),
                *(["-"] * 4 if leaf.min is None else []),
            )
            for name, leaf in self.items()
        ]

    def _notes(self) -> Iterator[str]:
        """Yield what is left out of the numbers of each leaf, and what to do about it."""
        for name, leaf in self.items():
            for kind, count in leaf.num_left_out.items():
                one = kind.removesuffix("s") if count == 1 and kind != "bytes" else kind
                what = f"{count:,} values of bytes" if kind == "bytes" else f"{count:,} {one}"
                counted = kind == "strings" and leaf.counts is not None and not leaf.count
                remedy = "`counts` has how often each comes" if counted else _REMEDIES[kind]
                yield f"{name}: {what} left out; {remedy}."


def statistics(
    source: RandomAccessDataSource[Element] | Iterable[Element], *, axis: int | None = None
) -> Statistics:
    """Return mean, standard deviation, range and counts of all elements, in one pass.

    Each number is read once, in blocks, and the sums keep their precision whatever the mean and the
    number of elements. Elements are trees of arrays, numbers and strings, nested and of different
    lengths. To compute the elements in several threads or processes, pass a loader. The statistics
    of shards add up: `statistics(first) + statistics(second)`.

    >>> import numpy as np
    >>> images = np.arange(2 * 4 * 4 * 3).reshape(2, 4, 4, 3)
    >>> image = statistics([{"image": image} for image in images], axis=-1)["image"]
    >>> image.mean, image.min, image.count
    (array([46.5, 47.5, 48.5]), array([0, 1, 2]), 96)
    >>> print(statistics([{"label": 3, "name": "a"}, {"label": 5, "name": "b"}]))
    leaf   values  missing  mean  std  min  max
    label       2        0     4    1    3    5
    name        0        0     -    -    -    -
    name: 2 strings left out; `counts` has how often each comes.

    Args:
        source: A source, a dataset, a loader without repetition, or any iterable of elements.
        axis: The axis of arrays that keeps statistics of its own, such as -1 for the channels of
            images or the features of rows. By default each leaf is summarised by one number. Arrays
            without that axis are, too.

    Raises:
        PlanError: The loader or dataset never ends, or the axis has different sizes.
        PlanTypeError: The source is of a type that cannot be read.
    """
    chosen = None if axis is None else as_int("axis", axis, minimum=-(2**31))
    num_elements = 0
    summaries: dict[str, LeafSummary] = {}
    for count, block in _blocks(source):
        columns = columns_of_arrays(block) if isinstance(block, Columns) else columns_of(block)
        num_elements += count
        for name, column in columns.items():
            _merge_into(summaries, name, summarize_leaf(column, axis=chosen))
    return Statistics(num_elements, summaries)


def _merge_into(summaries: dict[str, LeafSummary], name: str, summary: LeafSummary) -> None:
    known = summaries.get(name)
    try:
        summaries[name] = summary if known is None else known.merge(summary)
    except PlanError as error:
        error.add_note(f"In the leaf {printable(name)!r}.")
        raise


def _blocks(source: Any) -> Iterator[tuple[int, Columns | list[Element]]]:
    if isinstance(source, HasPlan):
        _check_end(source)
        if not isinstance(source, MapDataset):
            return blocks_of_elements(cast("Iterable[Element]", source))
    elif isinstance(source, Iterable) and not isinstance(source, RandomAccessDataSource):
        return blocks_of_elements(cast("Iterable[Element]", source))
    return blocks_of_source(source_node(source).source)


def _check_end(planned: HasPlan) -> None:
    if bottom_of(plan_of(planned)).length() >= ENDLESS:
        raise PlanError(
            "`source` never ends. Pass a loader with `num_epochs=1`, or a dataset without `repeat`."
        )
