"""Turn records into columns: the values at each leaf of their trees."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import numpy as np

from gristmill._base.trees.columns import Columns, RaggedError
from gristmill._base.trees.tree import children, leaves_with_paths
from gristmill._data.writers.records import RECORD_COLUMN
from gristmill.types import AnyArray, Element, Leaf

Column: TypeAlias = "AnyArray | list[Leaf]"
"""The values of some records at one path: numbers with a first axis that counts them, or a list."""

_PLAIN = frozenset({bool, int, float, str, bytes, type(None), np.ndarray})
"""The usual types of leaves, which need no search for children."""


def columns_of(
    records: Iterable[Element], nested: Counter[str] | None = None
) -> dict[str, list[Leaf]]:
    """Return the leaves of some records, by their paths.

    Lists of numbers become arrays. The items of other lists are in a column of their own, whose
    path ends in `[*]`, after a column with the lists.

    >>> columns_of([{"x": 1, "tags": ["a"]}, {"x": None, "tags": ["b", "c"]}])
    {'x': [1, None], 'tags': [['a'], ['b', 'c']], 'tags[*]': ['a', 'b', 'c']}
    >>> columns_of([(5, [1, 2])])
    {'record[0]': [5], 'record[1]': [array([1, 2])]}

    Args:
        records: The records.
        nested: Counts the trees at each path: a column of nulls is missing only where the other
            records have no tree.
    """
    nested = Counter() if nested is None else nested
    columns: dict[str, list[Leaf]] = {}
    for record in records:
        if type(record) is dict or isinstance(record, Mapping):  # the first is faster
            for key, value in cast("Mapping[object, Element]", record).items():
                _add(columns, nested, str(key), value)
        else:
            _add(columns, nested, RECORD_COLUMN, record)
    return columns


def columns_of_arrays(columns: Columns) -> dict[str, Column]:
    """Return the columns that a source has read, by the paths that `columns_of` returns."""
    try:
        tree = columns.gather()
    except RaggedError:
        return dict(columns_of(columns.rows()))
    is_mapping = isinstance(tree, Mapping)
    named = (
        [(str(key), value) for key, value in cast("Mapping[object, Element]", tree).items()]
        if is_mapping
        else [(RECORD_COLUMN, tree)]
    )
    found: dict[str, Column] = {}
    for name, inner in named:
        for path, leaf in leaves_with_paths(inner, name):
            array = cast("AnyArray", leaf)
            found[path] = array.tolist() if array.dtype.hasobject else array
    return found


def _add(columns: dict[str, list[Leaf]], nested: Counter[str], path: str, value: Element) -> None:
    if type(value) in _PLAIN:
        columns.setdefault(path, []).append(value)
        return
    if type(value) is list:
        items = cast("list[Element]", value)
        numbers = as_numbers(items)
        if numbers is not None:
            columns.setdefault(path, []).append(numbers)
            return
        columns.setdefault(path, []).append(items)
        for item in items:
            _add(columns, nested, f"{path}[*]", item)
        return
    inner = children(value)
    if inner is None:
        columns.setdefault(path, []).append(value)
        return
    nested[path] += 1
    for child_path, child in zip(*inner, strict=True):
        _add(columns, nested, path + child_path, child)


def as_numbers(items: Sequence[Element]) -> AnyArray | None:
    """Return a list of numbers as an array; `None` for other lists, and for an empty one.

    >>> as_numbers([1, 2]), as_numbers([1, "a"])
    (array([1, 2]), None)
    """
    if not items or not set(map(type, items)) <= {int, float, bool}:
        return None
    try:
        array = np.asarray(items)
    except OverflowError:  # depending on the version of NumPy
        return None
    return array if array.dtype.kind in "biuf" else None
