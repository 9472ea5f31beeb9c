"""Read all records of a source, a block at a time."""

from collections.abc import Iterable, Iterator
from itertools import islice

from gristmill._base.trees.columns import Columns, SupportsColumns
from gristmill._data.writers.records import estimate_bytes, read_records
from gristmill.types import Element, RandomAccessDataSource

_BLOCK_BYTES = 2**22
"""Blocks of this size are large enough for NumPy, and small enough for the memory."""

_MAX_RECORDS = 2**16
_MAX_GROWTH = 8
_NUM_MEASURED = 8


def blocks_of_source(
    source: RandomAccessDataSource[Element],
) -> Iterator[tuple[int, Columns | list[Element]]]:
    """Yield the number of records of each block, and the block. Absent elements are left out.

    >>> [count for count, _ in blocks_of_source(range(100))]
    [1, 8, 64, 27]
    """
    length, start, num_records = len(source), 0, 1
    while start < length:
        indices = range(start, min(start + num_records, length))
        block = _read(source, indices)
        yield len(block), block
        start = indices.stop
        num_records = _next_count(block, len(indices))


def blocks_of_elements(elements: Iterable[Element]) -> Iterator[tuple[int, list[Element]]]:
    """Yield the number of elements of each block, and the elements.

    >>> [count for count, _ in blocks_of_elements(iter(range(100)))]
    [1, 8, 64, 27]
    """
    iterator = iter(elements)
    num_elements = 1
    while block := list(islice(iterator, num_elements)):
        yield len(block), block
        num_elements = _next_count(block, len(block))


def _read(source: RandomAccessDataSource[Element], indices: range) -> Columns | list[Element]:
    if isinstance(source, SupportsColumns) and source.is_columnar:
        return source.read_columns(indices)
    records = read_records(source, indices)
    return [record for record in records if record is not None]


def _next_count(block: Columns | list[Element], count: int) -> int:
    """Return how many records to read next, from the sizes of some of the last ones."""
    step = max(1, len(block) // _NUM_MEASURED)
    sample = [one for k in range(0, len(block), step) for one in _rows(block[k : k + 1])]
    mean_bytes = sum(map(estimate_bytes, sample)) / max(1, len(sample))
    wanted = int(_BLOCK_BYTES / max(1.0, mean_bytes))
    return max(1, min(wanted, count * _MAX_GROWTH, _MAX_RECORDS))


def _rows(block: Columns | list[Element]) -> list[Element]:
    return block.rows() if isinstance(block, Columns) else block
