"""Random Arrow tables, and comparisons with what pyarrow reads from them."""

import datetime
import decimal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

IPC_KINDS = {"file": pa.ipc.new_file, "stream": pa.ipc.new_stream}

SMALL = st.integers(-100, 100)
FLOAT = st.floats(width=32, allow_nan=False)
TEXT = st.text(max_size=5)

DENSE: list[tuple[Any, Any]] = [
    (pa.int8(), SMALL),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float16(), st.just(0.5)),
    (pa.float32(), FLOAT),
    (pa.float64(), FLOAT),
    (pa.bool_(), st.booleans()),
    (pa.date32(), st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1))),
    (pa.timestamp("us"), st.datetimes(datetime.datetime(1900, 1, 1))),
    (pa.duration("ms"), SMALL.map(lambda n: datetime.timedelta(milliseconds=n))),
    (pa.list_(pa.float32(), 2), st.lists(FLOAT, min_size=2, max_size=2)),
    (pa.list_(pa.bool_(), 3), st.lists(st.booleans(), min_size=3, max_size=3)),
    (
        pa.list_(pa.list_(pa.int16(), 2), 2),
        st.lists(st.lists(SMALL, min_size=2, max_size=2), min_size=2, max_size=2),
    ),
]
"""Types whose values are NumPy scalars or arrays, with values of each."""

OTHERS: list[tuple[Any, Any]] = [
    (pa.string(), TEXT),
    (pa.large_string(), TEXT),
    (pa.binary(), st.binary(max_size=5)),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.list_(pa.int32()), st.lists(SMALL, max_size=3)),
    (pa.large_list(pa.bool_()), st.lists(st.booleans(), max_size=3)),
    (pa.list_(pa.int32()), st.lists(SMALL | st.none(), max_size=3)),
    (pa.list_(pa.int8(), 2), st.lists(SMALL | st.none(), min_size=2, max_size=2)),
    (pa.list_(pa.string()), st.lists(TEXT | st.none(), max_size=3)),
    (pa.list_(pa.list_(pa.int8())), st.lists(st.lists(SMALL, max_size=2), max_size=3)),
    (
        pa.struct([("n", pa.int32()), ("t", pa.string())]),
        st.fixed_dictionaries({"n": SMALL | st.none(), "t": TEXT}),
    ),
    (
        pa.list_(pa.struct([("n", pa.int32())])),
        st.lists(st.fixed_dictionaries({"n": SMALL}) | st.none(), max_size=2),
    ),
    (pa.dictionary(pa.int32(), pa.string()), st.sampled_from("abc")),
    (pa.decimal128(5, 2), st.integers(-999, 999).map(lambda n: decimal.Decimal(n) / 100)),
    (pa.map_(pa.string(), pa.int8()), st.lists(st.tuples(TEXT, SMALL), max_size=2)),
]


@st.composite
def tables(draw: st.DrawFn, *, is_dense: bool = False) -> pa.Table:
    """Draw a table of some columns, with nulls unless `is_dense`."""
    count = draw(st.integers(0, 12))
    columns: dict[str, Any] = {}
    kinds = draw(st.lists(st.sampled_from(DENSE if is_dense else DENSE + OTHERS), min_size=1))
    for number, (kind, values) in enumerate(kinds[:5]):
        values = values if is_dense or draw(st.booleans()) else values | st.none()
        drawn = draw(st.lists(values, min_size=count, max_size=count))
        columns[f"c{number}"] = pa.array(drawn, kind)
    return pa.table(columns)


def to_python(value: Any) -> Any:
    """Convert a value to what `to_pylist` of pyarrow returns."""
    if isinstance(value, dict):
        return {name: to_python(one) for name, one in value.items()}
    if isinstance(value, list):
        return [to_python(one) for one in value]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value.item() if isinstance(value, np.generic) else value


def same(left: Any, right: Any) -> bool:
    """Return whether two values are equal, and of the same types and dtypes throughout."""
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return list(left) == list(right) and all(same(left[name], right[name]) for name in left)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, np.ndarray):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return left == right and getattr(left, "dtype", None) == getattr(right, "dtype", None)


def check_rows(source: Any, expected: Sequence[Any], indices: Sequence[int]) -> None:
    """Assert that a source reads the expected rows, one by one and in a block."""
    assert len(source) == len(expected)
    block = source.__getitems__(indices)
    assert to_python(block) == [expected[index] for index in indices]
    assert same(block, [source[index] for index in indices])
    if source.is_columnar:
        columns = source.read_columns(np.array(indices, dtype=np.int64))
        assert same(columns.rows(), block)


def write_ipc(
    path: Path, table: pa.Table, *, kind: str = "file", rows: int = 1000, compression: Any = None
) -> str:
    """Write an Arrow file or stream with so many rows per record batch; return its path."""
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with IPC_KINDS[kind](str(path), table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


def number_table(count: int = 100) -> pa.Table:
    """Create a table of dense columns."""
    x = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * count, dtype=np.float32)), 2)
    return pa.table({"id": np.arange(count), "x": x})


def string_table(count: int = 100) -> pa.Table:
    """Create a table with a column of strings."""
    return pa.table({"id": np.arange(count), "t": [str(n) for n in range(count)]})


def some_indices(draw: Any, count: int) -> list[int]:
    """Draw indices in any order, with repeats."""
    return draw(st.lists(st.integers(0, count - 1), max_size=20)) if count else []
