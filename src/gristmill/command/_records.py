"""What the records of a source are, found out by looking at some of them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from gristmill._example import parse_example
from gristmill.errors import FileError
from gristmill.types import Element, SupportsGetItems

BARE = "record"
"""The name of the column where records are not dicts."""


def read_records(source: Any, indices: range) -> list[Element]:
    """Read some records of a source, in one call where it can."""
    if isinstance(source, SupportsGetItems):
        return list(cast(Any, source).__getitems__(indices))
    return [source[index] for index in indices]


def some_indices(length: int, most: int) -> range:
    """Give some indices, all over the source.

    >>> some_indices(1000, 3)
    range(0, 1000, 334)
    """
    return range(0, length, max(1, -(-length // most)))


def are_examples(records: Sequence[Element]) -> bool:
    """Tell whether all are bytes that hold a `tf.train.Example`.

    >>> from gristmill._example import format_example
    >>> are_examples([format_example({"x": 1})]), are_examples([b"some bytes"])
    (True, False)
    """
    return bool(records) and all(isinstance(one, bytes) and _is_example(one) for one in records)


def _is_example(record: bytes) -> bool:
    try:
        return bool(parse_example(record))
    except FileError:
        return False


def columns_reader(sample: Sequence[Element]) -> Callable[[Element], dict[str, Any]]:
    """Give the function that makes named values of records like these.

    Of an Example, a feature that holds one value in each of them is that value.

    >>> from gristmill._example import format_example
    >>> read = columns_reader([format_example({"x": 1, "y": [1, 2]})])
    >>> read(format_example({"x": 7, "y": [8]}))
    {'x': np.int64(7), 'y': array([8])}
    """
    if not are_examples(sample):
        return as_columns
    counts = [
        (name, len(values)) for record in sample for name, values in parse_example(record).items()
    ]
    singles = {name for name, _ in counts} - {name for name, count in counts if count != 1}

    def read(record: Element) -> dict[str, Any]:
        return {
            name: values[0] if name in singles and len(values) == 1 else values
            for name, values in parse_example(record).items()
        }

    return read


def as_columns(record: Element) -> dict[str, Any]:
    """Give a record as named values.

    >>> as_columns({"x": 1}), as_columns(b"bytes")
    ({'x': 1}, {'record': b'bytes'})
    """
    if isinstance(record, Mapping):
        return {str(key): value for key, value in cast("Mapping[Any, Any]", record).items()}
    return {BARE: record}


def weigh(value: Element) -> int:
    """Give about how many bytes a value takes.

    >>> weigh({"x": np.zeros(3, np.float32), "y": 7, "z": "text"})
    24
    """
    if isinstance(value, Mapping):
        return sum(map(weigh, cast("Mapping[Any, Any]", value).values()))
    if isinstance(value, list | tuple):
        return sum(map(weigh, cast("Sequence[Any]", value)))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, np.ndarray | np.generic):
        return cast(Any, value).nbytes
    return 0 if value is None else 8
