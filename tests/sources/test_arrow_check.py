from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tables import tables

from gristmill.sources._arrow_check import check_offsets


def with_offsets(kind: Any, offsets: list[int]) -> Any:
    """Give an array over 10 bytes or items, with offsets that may be wrong."""
    dtype = np.int64 if "large" in str(kind) else np.int32
    memory = [None, pa.py_buffer(np.array(offsets, dtype))]
    if pa.types.is_nested(kind):
        items = pa.array([""] * 10)
        return pa.Array.from_buffers(kind, len(offsets) - 1, memory, children=[items])
    return pa.Array.from_buffers(kind, len(offsets) - 1, [*memory, pa.py_buffer(b"0123456789")])


KINDS = [
    pa.string(),
    pa.binary(),
    pa.large_string(),
    pa.large_binary(),
    pa.list_(pa.string()),
    pa.large_list(pa.string()),
]


@settings(max_examples=50, deadline=None)
@given(table=tables())
def test_what_pyarrow_makes_is_sound(table: pa.Table):
    for column in table.columns:
        check_offsets(column.combine_chunks())
        check_offsets(column.combine_chunks().slice(1))


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_offsets_within_the_data_are_sound(kind: Any):
    check_offsets(with_offsets(kind, [0, 3, 3, 10]))
    check_offsets(with_offsets(kind, [2, 5]))


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("offsets", [[0, 3, 11], [0, 99, 10], [-1, 3, 5], [0, 5, 4, 10]])
def test_offsets_outside_of_the_data_raise(kind: Any, offsets: list[int]):
    with pytest.raises(ValueError, match="offset"):
        check_offsets(with_offsets(kind, offsets))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda bad: pa.StructArray.from_arrays([bad], names=["a"]),
        lambda bad: pa.FixedSizeListArray.from_arrays(bad, 1),
        lambda bad: pa.ListArray.from_arrays([0, len(bad)], bad),
        lambda bad: pa.ExtensionArray.from_storage(pa.json_(), bad),
        lambda bad: pa.MapArray.from_arrays([0, len(bad)], pa.array(["k"] * len(bad)), bad),
    ],
)
def test_offsets_inside_of_others_are_looked_at(wrap: Any):
    with pytest.raises(ValueError, match=r"offset|Offset"):
        check_offsets(wrap(with_offsets(pa.string(), [0, 99, 10])))
