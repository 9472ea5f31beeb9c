"""What is shown of a column: its facts, its classes, and its histogram in a line of text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from gristmill._base.format_size import format_size
from gristmill._data.statistics.column_summary import ColumnSummary
from gristmill._data.statistics.distribution import Distribution
from gristmill._data.statistics.histogram import Histogram
from gristmill._data.statistics.leaf_statistics import show_numbers
from gristmill._data.statistics.table_summary import TableSummary
from gristmill._views.values import shorten

_MAX_CLASSES = 20
"""Columns with more distinct values, and without names of classes, are not labels."""

_SHOWN_CLASSES = 5
_BARS = " ▁▂▃▄▅▆▇█"


@final
@dataclass(frozen=True, kw_only=True)
class ColumnView:
    """What is shown of a column."""

    name: str
    types: str
    missing: str
    """The number and the share of the missing values; empty without any."""
    facts: Sequence[str]
    """Its range, its lengths, its classes, ..."""
    histogram: Histogram | None
    classes: Sequence[tuple[str, int]]
    """The names and the counts of the classes, the most frequent first; empty for other columns."""


def view_columns(
    table: TableSummary, class_names: Mapping[str, Sequence[str]]
) -> Iterator[ColumnView]:
    """Yield what is shown of each column.

    Args:
        table: The summary of the records.
        class_names: The names of the classes of columns with labels, by the name of the column.
    """
    for name, column in table.columns.items():
        classes = _classes(column, class_names.get(name))
        yield ColumnView(
            name=name,
            types=" or ".join([*(["nested"] if table.num_nested.get(name) else []), *column.types])
            or "nothing",
            missing=" and ".join(_missing(table, name)),
            facts=list(_facts(column, classes, is_label=name in class_names)),
            histogram=None if classes and column.numbers is None else _shown_histogram(column),
            classes=classes,
        )


def spark_line(histogram: Histogram, *, width: int = 16) -> str:
    """Return a histogram as a line of bars. Only empty bins are blank.

    >>> from gristmill._data.statistics.histogram import histogram_of
    >>> spark_line(histogram_of(np.array([0.0, 1.0, 1.0, 3.0])), width=4)
    '▄█ ▄'
    """
    counts = join_bins(histogram, max_bins=width, is_whole=False).counts
    heights = np.ceil(counts * (len(_BARS) - 1) / counts.max()).astype(int)
    return "".join(_BARS[height] for height in heights.tolist())


def join_bins(histogram: Histogram, *, max_bins: int, is_whole: bool) -> Histogram:
    """Return a histogram with at most some number of bins.

    Args:
        histogram: The histogram.
        max_bins: The largest number of bins.
        is_whole: Whether the values are whole numbers, so that bins are at least 1 wide.
    """
    if histogram.low == histogram.high:
        return histogram
    exponent, start, counts = histogram.exponent, histogram.start, histogram.counts
    while len(counts) > max_bins or (is_whole and exponent < 0):
        exponent += 1
        bins = (start + np.arange(len(counts))) >> 1
        start = int(bins[0])
        counts = np.bincount(bins - start, weights=counts).astype(np.int64)
    return Histogram(
        low=histogram.low, high=histogram.high, exponent=exponent, start=start, counts=counts
    )


def _missing(table: TableSummary, name: str) -> Iterator[str]:
    """Yield how many values are missing, and how many numbers inside of arrays."""
    num_missing = table.num_missing(name)
    if num_missing:
        yield f"{num_missing:,} ({_percent(num_missing, table.num_expected(name))})"
    num_inside, numbers = table.num_missing_inside(name), table.columns[name].numbers
    if num_inside and numbers is not None:
        total = numbers.count + numbers.num_nan + numbers.num_infinite
        yield f"{num_inside:,} of {total:,} numbers ({_percent(num_inside, total)})"


def _facts(
    column: ColumnSummary, classes: Sequence[tuple[str, int]], *, is_label: bool
) -> Iterator[str]:
    if column.images is not None:
        yield str(column.images)
    if classes:
        total = sum(count for _, count in classes)
        shown = [f"{name} {_percent(count, total)}" for name, count in classes[:_SHOWN_CLASSES]]
        more = ["..."] if len(classes) > _SHOWN_CLASSES else []
        yield f"{len(classes):,} different: {', '.join([*shown, *more])}"
    is_label = is_label or {name for name, _ in column.shapes} == {"bool"}
    if column.numbers is not None and column.numbers.low is not None and not is_label:
        yield _describe_numbers(column.numbers)
    if not (column.lengths is None or classes or _has_fixed_size(column)):
        yield _describe_lengths(column)
    if column.times is not None:
        yield f"{column.times[0]} to {column.times[1]}"
    if column.numbers is not None:
        for count, name in ((column.numbers.num_nan, "NaN"), (column.numbers.num_infinite, "inf")):
            if count:
                yield f"{count:,} {name}"


def _has_fixed_size(column: ColumnSummary) -> bool:
    """Return whether the shape of arrays shows their length already."""
    return all(axes and None not in axes for axes in column.shapes.values())


def _percent(count: int, total: int) -> str:
    return f"{count / total:.0%}" if count * 100 >= total or not count else "<1%"


def _describe_numbers(numbers: Distribution) -> str:
    if numbers.low == numbers.high:
        return f"always {show_numbers(numbers.low)}"
    mean, std = show_numbers(numbers.mean), show_numbers(numbers.std)
    return f"{show_numbers(numbers.low)} to {show_numbers(numbers.high)}, mean {mean}, std {std}"


def _describe_lengths(column: ColumnSummary) -> str:
    lengths = column.lengths
    if lengths is None:
        return ""
    names = {name for name, _ in column.shapes}
    if names == {"bytes"}:
        low, high, mean = (
            format_size(size) for size in (lengths.low or 0, lengths.high or 0, lengths.mean)
        )
    else:
        low, high, mean = str(lengths.low), str(lengths.high), f"{lengths.mean:.4g}"
    unit = "" if names == {"bytes"} else " characters" if "str" in names else " items"
    if low == high:
        return f"{low}{unit}"
    return f"{low} to {high}{unit}, mean {mean}"


def _classes(column: ColumnSummary, names: Sequence[str] | None) -> list[tuple[str, int]]:
    counts = column.categories.counts
    if not counts or (names is None and len(counts) > _MAX_CLASSES):
        return []
    if names is None and max(counts.values()) == 1:
        return []  # each comes once: a name or a number of the record
    if names is None and len(counts) == 1 and column.numbers is not None:
        return []  # a constant
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    return [(_class_name(value, names), count) for value, count in ordered]


def _class_name(value: object, names: Sequence[str] | None) -> str:
    if names is not None and isinstance(value, int) and 0 <= value < len(names):
        return shorten(names[value], 40)
    return shorten(str(value), 40) or "''"


def _shown_histogram(column: ColumnSummary) -> Histogram | None:
    """Return the histogram of the numbers of a column, or else of its lengths."""
    shown = column.numbers if column.numbers is not None else column.lengths
    if shown is None or shown.histogram is None or shown.histogram.low == shown.histogram.high:
        return None
    is_whole = not any(name.startswith("float") for name, _ in column.shapes)
    return join_bins(shown.histogram, max_bins=32, is_whole=is_whole or shown is column.lengths)
