import datetime
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gristmill._data.sources.tables.parquet_footer import (
    PHYSICAL_TYPES,
    read_row_groups,
    read_tail,
)
from gristmill._io.open_files import open_file
from gristmill._io.paths import find_file
from gristmill.errors import CorruptFileError
from tests.hostile.mutations import mutate

TABLE = pa.table(
    {
        "count": range(100),
        "half": pa.array([None if n % 7 else n / 2 for n in range(100)]),
        "text": [f"text {n}" * (n % 9) for n in range(100)],
        "flag": [n % 3 == 0 for n in range(100)],
        "day": [datetime.date(2020, 1, 1 + n % 28) for n in range(100)],
        "nothing": pa.array([None] * 100, pa.int8()),
        "nested": [{"a": [n] * (n % 3), "b": {"c": None}} for n in range(100)],
        "fixed": pa.array([bytes(5)] * 100, pa.binary(5)),
        "vector": pa.FixedSizeListArray.from_arrays(np.arange(300.0), 3),
        **{f"column {number}": range(100) for number in range(20)},
    }
)


def tail_of(path: Path) -> bytes:
    return read_tail(open_file(find_file(path)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"row_group_size": 7},
        {"write_statistics": False},
        {"write_statistics": ["count", "text"], "compression": "zstd"},
        {"use_dictionary": False, "data_page_version": "2.0", "write_page_index": True},
        {"store_schema": False, "sorting_columns": [pq.SortingColumn(0)]},
    ],
)
def test_row_groups_are_those_of_pyarrow(tmp_path: Path, options: dict[str, Any]) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", **options)
    metadata: Any = pq.read_metadata(tmp_path / "a.parquet")
    num_rows, groups = read_row_groups(tail_of(tmp_path / "a.parquet"), "a.parquet")
    assert (num_rows, len(groups)) == (metadata.num_rows, metadata.num_row_groups)
    for number, group in enumerate(groups):
        expected = metadata.row_group(number)
        assert (group.num_rows, group.num_bytes) == (expected.num_rows, expected.total_byte_size)
        assert len(group.columns) == expected.num_columns
        for leaf, column in enumerate(group.columns):
            described: Any = expected.column(leaf)
            statistics = described.statistics
            has_count = statistics is not None and statistics.has_null_count
            assert PHYSICAL_TYPES[column.type_number] == described.physical_type
            assert column.num_values == described.num_values
            assert column.num_nulls == (described.statistics.null_count if has_count else None)


def test_a_footer_of_any_size_is_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({f"{'long' * 10} {number}": [number] for number in range(2000)})
    pq.write_table(table, path)
    assert len(tail_of(path)) > 2**17
    assert len(read_row_groups(tail_of(path), "a.parquet")[1][0].columns) == 2000
    pq.write_table(table.select([0]), path)
    assert tail_of(path) == path.read_bytes()


def test_damaged_footers_are_read_or_refused(tmp_path: Path) -> None:
    pq.write_table(TABLE, tmp_path / "a.parquet", row_group_size=50)
    tail = tail_of(tmp_path / "a.parquet")
    size = int.from_bytes(tail[-8:-4], "little")
    num_refused = 0
    for number in range(2000):
        footer = mutate(tail[-8 - size : -8], random.Random(number))
        try:
            read_row_groups(footer + len(footer).to_bytes(4, "little") + b"PAR1", "a.parquet")
        except CorruptFileError:
            num_refused += 1
    assert 0 < num_refused < 2000


def test_very_many_items_that_are_not_there_are_not_skipped_one_by_one() -> None:
    # Field 1, a list of 2**62 items of several types.
    for kind in (1, 7, 12, 8, 6):
        footer = b"\x19" + bytes([0xF0 | kind]) + b"\x80" * 8 + b"\x40"
        with pytest.raises(CorruptFileError):
            read_row_groups(footer + len(footer).to_bytes(4, "little") + b"PAR1", "a.parquet")


def test_structs_inside_each_other_without_end_are_refused() -> None:
    footer = b"\x1c" * 100_000
    with pytest.raises(CorruptFileError):
        read_row_groups(footer + len(footer).to_bytes(4, "little") + b"PAR1", "a.parquet")
