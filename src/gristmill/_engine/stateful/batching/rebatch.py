"""Regroup the rows of batches into batches of another size."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from gristmill._base.trees.tree import flatten, leaves_with_paths, with_sorted_keys
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import Mark, StatefulStage
from gristmill._plan.nodes.stream import RebatchNode
from gristmill.errors import BatchError
from gristmill.types import Element, Tree


@final
class RebatchStage(StatefulStage):
    """Collects rows of the parent's batches until there are enough for a batch.

    The state is the cursor before the parent's batch whose rows come next, and how many of its rows
    were emitted; if there are any, also a 1 for that batch and the cursor after it.
    """

    def __init__(self, node: RebatchNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._chunks: list[_BatchRows] = []
        self._skip = 0
        self._last = _RowPosition(self._buffer.mark(), 0, 0)

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._skip, *_ = state
        self._chunks = []
        self._buffer.seek(below)
        self._last = _RowPosition(self._buffer.mark(), 0, self._skip)

    def pull(self) -> BlockResult | None:
        count = self._buffer.fill()
        if not count:
            return self._finish()
        mark = self._buffer.mark()
        rows: list[Element] = []
        positions = [self._last]
        error: BaseException | None = None
        for number, batch in enumerate(self._buffer.take(count)):
            try:
                self._add(_BatchRows(batch), mark, number, rows, positions)
            except Exception as raised:
                add_note_once(raised, f"In {self._node.label}, added at {self._node.site}.")
                error = raised
                break
        rows = rows[: len(positions) - 1]
        self._last = positions[-1]
        return self.emit(rows, lambda count: positions[count].state(), error)

    def _add(
        self,
        batch_rows: "_BatchRows",
        mark: Mark,
        number: int,
        rows: list[Element],
        positions: list["_RowPosition"],
    ) -> None:
        """Add the rows of a batch, and emit all batches that are then full."""
        done, self._skip = self._skip, 0
        while done < batch_rows.num_rows:
            wanted = self._node.size - sum(one.num_rows for one in self._chunks)
            end = min(done + wanted, batch_rows.num_rows)
            self._chunks.append(batch_rows[done:end])
            if end - done == wanted:
                rows.append(_join(self._chunks))
                self._chunks = []
                is_used = end == batch_rows.num_rows
                positions.append(_RowPosition(mark, number + is_used, 0 if is_used else end))
            done = end

    def _finish(self) -> BlockResult | None:
        """Emit the remaining rows, once."""
        if self._buffer.error is not None:
            return self.emit([], lambda _: None, self._buffer.error)
        if not self._chunks or self._node.drop_remainder:
            return None
        positions = (self._last, _RowPosition(self._buffer.mark(), 0, 0))
        rows = [_join(self._chunks)]
        self._chunks, self._last = [], positions[1]
        return self.emit(rows, lambda count: positions[count].state())


@final
class _RowPosition:
    """A position before row `done` of batch `number` after a mark."""

    __slots__ = ("_done", "_mark", "_number")

    def __init__(self, mark: Mark, number: int, done: int) -> None:
        self._mark = mark
        self._number = number
        self._done = done

    def state(self) -> Any:
        """Return the position as a state."""
        before = self._mark.after(self._number)
        if not self._done:
            return [before, 0]
        return [before, self._done, 1, self._mark.after(self._number + 1)]


@final
class _BatchRows:
    """Some rows of a batch."""

    __slots__ = ("_batch", "_rows", "leaves", "num_rows")

    def __init__(self, batch: Tree, rows: slice = slice(None)) -> None:
        self._batch = batch
        self._rows = rows
        leaves = list(leaves_with_paths(batch, "batch"))
        lengths = {path: _num_rows(leaf) for path, leaf in leaves}
        if len(set(lengths.values())) != 1 or not all(lengths.values()):
            raise BatchError(
                "Rebatching needs batches whose arrays have the same number of rows, at least "
                f"one, got {lengths or batch!r}."
            )
        self.leaves = {path: leaf[rows] for path, leaf in leaves}
        self.num_rows = len(next(iter(self.leaves.values())))

    def __getitem__(self, rows: slice) -> "_BatchRows":
        return self if rows == slice(0, self.num_rows) else _BatchRows(self._batch, rows)

    def with_leaves(self, leaves: Sequence[Any]) -> Tree:
        """Return a batch with the structure of this one and other arrays."""
        return with_sorted_keys(flatten(self._batch)[1](leaves))


def _num_rows(leaf: Any) -> int | None:
    """Return the number of rows of a leaf, `None` if it is a scalar."""
    try:
        return len(leaf)
    except TypeError:
        return None


def _join(chunks: Sequence[_BatchRows]) -> Tree:
    first, *others = chunks
    for other in others:
        if other.leaves.keys() != first.leaves.keys():
            raise BatchError(
                f"Rebatching needs batches of one structure, got {list(first.leaves)} and "
                f"{list(other.leaves)}."
            )
    if not others:
        return first.with_leaves(list(first.leaves.values()))
    return first.with_leaves(
        [
            np.concatenate([batch_rows.leaves[path] for batch_rows in chunks])
            for path in first.leaves
        ]
    )
