"""Cut the rows of batches into batches of another size."""

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from gristmill._tree import flatten, leaves_with_paths
from gristmill.errors import BatchError
from gristmill.execute._blame import add_note_once
from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import Mark, StatefulStage
from gristmill.plan import RebatchNode
from gristmill.types import Element, Tree


@final
class RebatchStage(StatefulStage):
    """Takes rows of the batches below until there are enough for one of its own.

    The state is the cursor before the batch below whose rows come next, and how many of them are
    done; if any are, a 1 for that batch, and the cursor after it.
    """

    def __init__(self, node: RebatchNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._parts: list[_Part] = []
        self._skip = 0
        self._last = _Place(self._intake.mark(), 0, 0)

    def first_state(self) -> Any:
        return [self._intake.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._skip, *_ = state
        self._parts = []
        self._intake.seek(below)
        self._last = _Place(self._intake.mark(), 0, self._skip)

    def pull(self) -> Outcome | None:
        count = self._intake.fill()
        if not count:
            return self._end()
        mark = self._intake.mark()
        rows: list[Element] = []
        places = [self._last]
        error: BaseException | None = None
        for number, batch in enumerate(self._intake.take(count)):
            try:
                self._add(_Part(batch), mark, number, rows, places)
            except Exception as raised:
                add_note_once(raised, f"In {self._node.label}, added at {self._node.site}.")
                error = raised
                break
        rows = rows[: len(places) - 1]
        self._last = places[-1]
        return self.give(rows, lambda count: places[count].state(), error)

    def _add(
        self,
        part: "_Part",
        mark: Mark,
        number: int,
        rows: list[Element],
        places: list["_Place"],
    ) -> None:
        """Take the rows of a batch, and make all batches that are full then."""
        done, self._skip = self._skip, 0
        while done < part.num_rows:
            wanted = self._node.size - sum(one.num_rows for one in self._parts)
            end = min(done + wanted, part.num_rows)
            self._parts.append(part[done:end])
            if end - done == wanted:
                rows.append(_join(self._parts))
                self._parts = []
                is_used = end == part.num_rows
                places.append(_Place(mark, number + is_used, 0 if is_used else end))
            done = end

    def _end(self) -> Outcome | None:
        """Give what is left, once."""
        if self._intake.error is not None:
            return self.give([], lambda _: None, self._intake.error)
        if not self._parts or self._node.drop_remainder:
            return None
        places = (self._last, _Place(self._intake.mark(), 0, 0))
        rows = [_join(self._parts)]
        self._parts, self._last = [], places[1]
        return self.give(rows, lambda count: places[count].state())


@final
class _Place:
    """A place among the rows of batches: before row `done` of batch `number` after a mark."""

    __slots__ = ("_done", "_mark", "_number")

    def __init__(self, mark: Mark, number: int, done: int) -> None:
        self._mark = mark
        self._number = number
        self._done = done

    def state(self) -> Any:
        """Give it as a state."""
        before = self._mark.after(self._number)
        if not self._done:
            return [before, 0]
        return [before, self._done, 1, self._mark.after(self._number + 1)]


@final
class _Part:
    """Some rows of a batch."""

    __slots__ = ("_batch", "_rows", "leaves", "num_rows")

    def __init__(self, batch: Tree, rows: slice = slice(None)) -> None:
        self._batch = batch
        self._rows = rows
        self.leaves = {path: leaf[rows] for path, leaf in leaves_with_paths(batch, "batch")}
        lengths = {path: len(leaf) for path, leaf in self.leaves.items()}
        if len(set(lengths.values())) != 1 or not all(lengths.values()):
            raise BatchError(
                f"Only batches whose arrays have the same number of rows, at least one, can be "
                f"batched anew, got {lengths or batch!r}."
            )
        self.num_rows: int = next(iter(lengths.values()))

    def __getitem__(self, rows: slice) -> "_Part":
        return self if rows == slice(0, self.num_rows) else _Part(self._batch, rows)

    def with_leaves(self, leaves: Sequence[Any]) -> Tree:
        """Give a batch like this one of other arrays."""
        return flatten(self._batch)[1](leaves)


def _join(parts: Sequence[_Part]) -> Tree:
    first, *others = parts
    for other in others:
        if other.leaves.keys() != first.leaves.keys():
            raise BatchError(
                f"Only batches of one structure can be batched anew, got {list(first.leaves)} and "
                f"{list(other.leaves)}."
            )
    if not others:
        return first.with_leaves(list(first.leaves.values()))
    return first.with_leaves(
        [np.concatenate([part.leaves[path] for part in parts]) for path in first.leaves]
    )
