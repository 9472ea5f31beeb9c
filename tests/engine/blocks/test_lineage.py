"""Lineage: dense and sparse ones agree, and cursors do not depend on blocks."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._base.indices import as_indices
from gristmill._engine.blocks.lineage import (
    DenseLineage,
    Lineage,
    SparseLineage,
    concatenate_lineages,
    lineage_of,
)


def rows_of(lineage: Lineage) -> list[list[list[int]]]:
    sparse = lineage.sparse()
    return [array.tolist() for array in (sparse.origins, sparse.starts, sparse.ends)]


@st.composite
def dense_lineages(draw: st.DrawFn) -> DenseLineage:
    start = draw(st.integers(0, 50))
    lineage = DenseLineage.of_records(
        range(start, start + draw(st.integers(0, 30))), num_flat_maps=draw(st.integers(0, 2))
    )
    for size in draw(st.lists(st.integers(1, 4), max_size=2)):
        lineage = lineage.batched(ends_of(size, len(lineage)))
    return lineage


def ends_of(size: int, count: int) -> list[int]:
    return [min(first + size, count) for first in range(0, count, size)]


@given(lineage=dense_lineages(), bounds=st.tuples(st.integers(0, 35), st.integers(0, 35)))
def test_a_slice_of_a_dense_lineage_is_the_slice_of_the_sparse_one(
    lineage: DenseLineage, bounds: tuple[int, int]
):
    chosen = slice(*bounds)

    assert rows_of(lineage[chosen]) == rows_of(lineage.sparse()[chosen])
    assert len(lineage[chosen]) == len(lineage.sparse()[chosen])


@given(lineage=dense_lineages(), size=st.integers(1, 5))
def test_batches_of_a_dense_lineage_are_those_of_the_sparse_one(lineage: DenseLineage, size: int):
    ends = ends_of(size, len(lineage))

    assert rows_of(lineage.batched(ends)) == rows_of(lineage.sparse().batched(ends))


@given(lineage=dense_lineages(), position=st.integers(0, 90))
def test_positions_and_cursors_of_a_dense_lineage_are_those_of_the_sparse_one(
    lineage: DenseLineage, position: int
):
    sparse = lineage.sparse()
    rows = range(len(lineage))

    assert [lineage.after(row) for row in rows] == [sparse.after(row) for row in rows]
    assert [lineage.position(row) for row in rows] == sparse.positions().tolist()
    assert lineage.positions().tolist() == sparse.positions().tolist()
    cursors = [(position, *cursor[1:]) for cursor in map(lineage.after, rows[:1])]
    for cursor in [*cursors, *map(lineage.after, rows)]:
        assert lineage.num_until(cursor) == sparse.num_until(cursor)


@given(
    span=st.lists(st.integers(0, 50), max_size=9).map(lambda span: np.array(span, dtype=np.int64))
    | st.builds(range, st.integers(0, 9), st.integers(0, 30), st.integers(1, 3)),
    num_flat_maps=st.integers(0, 2),
)
def test_an_element_at_a_position_ends_before_the_next_position(span: Any, num_flat_maps: int):
    lineage = lineage_of(span, num_flat_maps=num_flat_maps)

    zeros = (0,) * num_flat_maps
    assert [lineage.after(row) for row in range(len(lineage))] == [
        (int(position) + 1, *zeros) for position in span
    ]
    assert lineage.positions().tolist() == list(span)
    assert lineage.sparse().starts.shape == (len(span), 1 + num_flat_maps)


def test_consecutive_positions_stay_a_few_integers():
    assert isinstance(lineage_of(range(5, 500)), DenseLineage)
    assert isinstance(lineage_of(range(5, 500, 2)), SparseLineage)


def test_outputs_of_a_flat_map_count_up_and_the_last_ends_its_input():
    lineage = lineage_of(range(4, 7), num_flat_maps=2).sparse()

    first = lineage.split(np.array([2, 0, 1]), level=1)
    assert first.starts.tolist() == [[4, 0, 0], [4, 1, 0], [6, 0, 0]]
    assert first.ends.tolist() == [[4, 1, 0], [5, 0, 0], [7, 0, 0]]
    second = first.split(np.array([1, 2, 1]), level=2)
    assert second.ends.tolist() == [[4, 1, 0], [4, 1, 1], [5, 0, 0], [7, 0, 0]]
    assert second.origins.tolist() == [[4, 1, 1], [4, 2, 1], [4, 2, 2], [6, 1, 1]]


def test_elements_before_a_cursor_are_those_of_its_record_only():
    lineage = lineage_of(range(4, 7), num_flat_maps=1).sparse().split(np.array([2, 3, 2]), level=1)

    assert lineage.is_before([(5, 2)]).tolist() == [False, False, True, True, False, False, False]
    assert lineage.is_before([(4, 1), (6, 1)]).nonzero()[0].tolist() == [0, 5]


def test_states_stay_with_their_numbers_when_lineages_are_joined_and_cut():
    def numbered(first: int, count: int, name: str) -> DenseLineage:
        return DenseLineage.of_records(
            range(first, first + count), num_flat_maps=0, states=lambda number: f"{name}{number}"
        )

    joined = concatenate_lineages([numbered(0, 3, "a"), numbered(3, 2, "b")])
    assert [joined.after(row) for row in range(5)] == [("a1",), ("a2",), ("b3",), ("b4",), ("b5",)]

    again = concatenate_lineages([joined[2:], numbered(5, 1, "c")])
    assert [again.after(row) for row in range(4)] == [("b3",), ("b4",), ("c5",), ("c6",)]


def test_joined_lineages_without_states_have_positions():
    joined = concatenate_lineages([lineage_of(range(2)), lineage_of(np.array([7]))])

    assert [joined.after(row) for row in range(3)] == [(1,), (2,), (8,)]


@pytest.mark.parametrize("first", [0, 2**31, 2**63 - 3, 2**63, 2**70, -5])
def test_positions_are_exact_however_large(first: int):
    dense = lineage_of(range(first, first + 5))
    sparse = lineage_of(as_indices([first, first + 7]))

    assert dense.positions().tolist() == list(range(first, first + 5))
    assert dense.sparse().positions().tolist() == list(range(first, first + 5))
    assert sparse.positions().tolist() == [first, first + 7]
    assert (dense.position(3), sparse.position(1)) == (first + 3, first + 7)


def test_the_positions_of_batches_end_with_the_last_one():
    batched = lineage_of(range(2**63 - 4, 2**63)).batched([3, 4])
    assert batched.positions().tolist() == [2**63 - 2, 2**63 - 1]
