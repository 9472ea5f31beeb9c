"""Blocks: elements, lineage and generators stay aligned."""

from typing import Any

import numpy as np

from gristmill._base.trees.columns import Columns
from gristmill._engine.blocks.block import Block, concatenate
from gristmill._engine.blocks.lineage import lineage_of

GENERATORS: Any = [{"number": number} for number in range(4)]


def rows(block: Block) -> tuple[list[Any], list[int], Any]:
    return block.rows(), block.lineage.positions().tolist(), block.generators


def letters(*, with_generators: bool = True) -> Block:
    return Block(list("abcd"), lineage_of(range(10, 14)), GENERATORS if with_generators else None)


def test_a_slice_is_of_elements_lineage_and_generators():
    assert rows(letters()[1:3]) == (["b", "c"], [11, 12], GENERATORS[1:3])
    assert rows(letters(with_generators=False)[3:]) == (["d"], [13], None)


def test_some_rows_are_taken_with_their_lineage_and_generators():
    chosen = letters().take(np.array([0, 3]))

    assert rows(chosen) == (["a", "d"], [10, 13], [GENERATORS[0], GENERATORS[3]])


def test_a_block_of_which_all_rows_are_taken_stays_as_it_is():
    columns = Block(Columns.of(np.arange(3), range(3)), lineage_of(range(3)))

    assert columns.take(np.arange(3)) is columns
    assert columns.take(np.array([1])).data == [1]


def test_fewer_rows_have_the_start_of_the_lineage():
    assert rows(letters().with_rows(["x", "y"])) == (["x", "y"], [10, 11], GENERATORS[:2])
    assert rows(letters().with_rows([])) == ([], [], None)
    assert rows(letters().with_rows([1, 2, 3, 4])) == ([1, 2, 3, 4], [10, 11, 12, 13], GENERATORS)


def test_columns_are_split_into_rows_on_request_only():
    block = letters().with_columns(Columns.of({"x": np.arange(9)}, range(3, 7)))

    assert isinstance(block[1:3].data, Columns)
    assert block[1:3].rows() == [{"x": 4}, {"x": 5}]


def test_blocks_are_concatenated_as_rows():
    other = Block(Columns.of(np.arange(9), range(2)), lineage_of(range(20, 22)), GENERATORS[:2])

    joined = concatenate([letters(), other])

    assert rows(joined)[:2] == (["a", "b", "c", "d", 0, 1], [10, 11, 12, 13, 20, 21])
    assert joined.generators == [*GENERATORS, *GENERATORS[:2]]
    assert concatenate([letters(with_generators=False), other]).generators is None
    assert concatenate([other]) is other
