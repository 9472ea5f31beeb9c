"""Read records of a source of unknown format, and find out their columns from a sample."""

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from gristmill._data.example_proto.parse import parse_example
from gristmill._data.writers.table_records import SupportsReadTable, TableRecords
from gristmill.errors import BatchError, FileError
from gristmill.types import (
    Element,
    Indices,
    RandomAccessDataSource,
    Span,
    SupportsGetItems,
)

RECORD_COLUMN = "record"
"""The name of the only column if records are not dicts."""


def read_records(source: RandomAccessDataSource[Element], indices: Span) -> Sequence[Element]:
    """Return the records at `indices`, read in one call if the source supports it."""
    if isinstance(source, SupportsReadTable):
        return TableRecords(source.read_table(indices))
    numbers: Sequence[int] = indices if isinstance(indices, range) else indices.tolist()
    if isinstance(source, SupportsGetItems):
        return list(cast("SupportsGetItems[Element]", source).__getitems__(numbers))
    return [source[index] for index in numbers]


def sample_indices(length: int, max_count: int) -> range:
    """Return at most `max_count` evenly spaced indices of a source.

    >>> sample_indices(1000, 3)
    range(0, 1000, 334)
    """
    return range(0, length, max(1, -(-length // max_count)))


def spread_indices(length: int, max_count: int) -> Indices:
    """Return at most `max_count` indices of a source, one at random from each equal share of it.

    Evenly spaced ones could all be of one kind, if kinds repeat. The same source has the same ones.

    >>> spread_indices(1000, 3), spread_indices(2, 3)
    (array([283, 545, 836]), array([0, 1]))
    """
    count = min(length, max_count)
    edges = np.arange(count + 1, dtype=np.int64) * length // max(1, count)
    return np.random.default_rng(0).integers(edges[:-1], edges[1:])


def are_examples(records: Sequence[Element]) -> bool:
    """Return whether all records are serialized `tf.train.Example` messages.

    >>> from gristmill._data.example_proto.serialize import format_example
    >>> are_examples([format_example({"x": 1})]), are_examples([b"some bytes"])
    (True, False)
    """
    return bool(records) and all(
        isinstance(record, bytes) and _is_example(record) for record in records
    )


def _is_example(record: bytes) -> bool:
    try:
        return bool(parse_example(record))
    except FileError:
        return False


def column_parser(sample: Sequence[Element]) -> Callable[[Element], dict[str, Element]]:
    """Return a function that splits a record like those of `sample` into named columns.

    A feature that has one value in every Example of the sample becomes that value; other features
    become arrays.

    >>> from gristmill._data.example_proto.serialize import format_example
    >>> parse = column_parser([format_example({"x": 1, "y": [1, 2]})])
    >>> parse(format_example({"x": 7, "y": [8]}))
    {'x': np.int64(7), 'y': array([8])}
    """
    if not are_examples(sample):
        return as_columns
    counts = [
        (name, len(values)) for record in sample for name, values in parse_example(record).items()
    ]
    scalars = {name for name, _ in counts} - {name for name, count in counts if count != 1}

    def parse(record: Element) -> dict[str, Element]:
        return {
            name: values[0] if name in scalars and len(values) == 1 else values
            for name, values in parse_example(record).items()
        }

    return parse


def as_columns(record: Element) -> dict[str, Element]:
    """Return a record as named columns.

    >>> as_columns({"x": 1}), as_columns(b"bytes")
    ({'x': 1}, {'record': b'bytes'})
    """
    if isinstance(record, Mapping):
        return {str(key): value for key, value in cast("Mapping[object, Element]", record).items()}
    if isinstance(record, tuple) and not all(map(np.isscalar, cast("Sequence[Element]", record))):
        raise BatchError(
            "An element is a tuple, whose items have no names in a file. Return a dict in a `map` "
            'before, such as `{"image": image, "label": label}`.'
        )
    return {RECORD_COLUMN: record}


def estimate_bytes(value: Element) -> int:
    """Return the approximate size of a value in bytes.

    >>> estimate_bytes({"x": np.zeros(3, np.float32), "y": 7, "z": "text"})
    24
    """
    if isinstance(value, Mapping):
        return sum(map(estimate_bytes, cast("Mapping[object, Element]", value).values()))
    if isinstance(value, list | tuple):
        return sum(map(estimate_bytes, cast("Sequence[Element]", value)))
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, np.ndarray | np.generic):
        return cast("np.generic", value).nbytes
    return 0 if value is None else 8
