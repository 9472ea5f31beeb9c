"""Batches of elements in order, in whatever blocks they arrive."""

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gristmill import MapDataset
from gristmill._engine.blocks.block import Block, BlockResult
from gristmill._engine.blocks.lineage import lineage_of
from gristmill._engine.stages.base import Stage
from gristmill._engine.stages.batch import BatchStage
from gristmill._metrics.counters import StepClock
from gristmill.types import Cursor


class Blocks(Stage):
    """Integers, in blocks of some sizes, and perhaps an error after them."""

    def __init__(self, sizes: Sequence[int], error: Exception | None = None) -> None:
        self._sizes = sizes
        self._error = error
        self._blocks = iter(sizes)
        self._next = 0

    def pull(self) -> BlockResult | None:
        size = next(self._blocks, None)
        if size is None:
            error, self._error = self._error, None
            return None if error is None else BlockResult(Block.empty(), error)
        positions = range(self._next, self._next + size)
        self._next += size
        return BlockResult(Block(list(positions), lineage_of(positions)))

    @property
    def start(self) -> Cursor:
        return (0,)

    @property
    def needs_thread(self) -> bool:
        return False

    def seek(self, cursor: Cursor) -> Cursor:
        self._blocks, self._next = iter(self._sizes), cursor[0]
        return cursor

    def interrupt(self) -> None: ...
    def close(self) -> None: ...
    def dispose(self) -> None: ...


def stage_of(parent: Stage, size: int, *, drop_remainder: bool = False) -> BatchStage:
    dataset: Any = MapDataset.range(99).batch(size, drop_remainder=drop_remainder)
    return BatchStage(dataset._plan_node, parent, StepClock(""))


def drain(stage: Stage) -> tuple[list[Any], list[Cursor], list[str]]:
    batches: list[Any] = []
    cursors: list[Cursor] = []
    errors: list[str] = []
    while (result := stage.pull()) is not None:
        batches += [batch.tolist() for batch in result.block.rows()]
        cursors += [result.block.lineage.after(row) for row in range(len(result.block))]
        errors += [] if result.error is None else [str(result.error)]
    return batches, cursors, errors


@given(
    sizes=st.lists(st.integers(0, 9), max_size=9),
    size=st.integers(1, 5),
    drop_remainder=st.booleans(),
)
def test_batches_do_not_depend_on_the_blocks(sizes: list[int], size: int, drop_remainder: bool):
    batches, cursors, _ = drain(stage_of(Blocks(sizes), size, drop_remainder=drop_remainder))

    total = sum(sizes)
    end = total - total % size if drop_remainder else total
    expected = [range(start, min(start + size, end)) for start in range(0, end, size)]
    assert batches == [list(numbers) for numbers in expected]
    assert cursors == [(numbers.stop,) for numbers in expected]


def test_an_error_follows_the_batches_before_it():
    batches, _, errors = drain(stage_of(Blocks([3, 2], error=OSError("after five")), 2))

    assert batches == [[0, 1], [2, 3], [4]]
    assert errors == ["after five"]


def test_pending_elements_are_dropped_by_a_seek():
    stage = stage_of(Blocks([3]), 2)
    stage.pull()

    stage.seek((10,))

    assert drain(stage)[0] == [[10, 11], [12]]
