"""Keep the elements of a stream in memory, for when it is run again."""

from typing import Any, final

from gristmill.execute._outcome import Outcome
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import Mark, StatefulStage
from gristmill.plan import CacheNode
from gristmill.types import Element


@final
class CacheStage(StatefulStage):
    """Hands elements on, and keeps them; sent back, it gives those it has.

    The state is the cursor below, and how many elements lie before. One that lies beyond what is
    kept, as after a restart, is gone on from without keeping anything: so nothing is read twice
    for it, and the next epoch is kept.
    """

    def __init__(self, node: CacheNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        del node
        self._intake = self._intakes[0]
        self._kept: list[_Kept] = []
        self._end: Mark = self._intake.mark()  # of what is kept
        self._num_kept = 0
        self._is_complete = False
        self._is_at_end = True  # whether the parent stands where what is kept ends
        self._position = 0
        self._block = 0  # the next one to give of those kept

    def first_state(self) -> Any:
        return [self._intake.stage.start, 0]

    def restore(self, state: Any) -> None:
        below, self._position = state
        self._is_at_end = False
        self._block = next(
            (number for number, kept in enumerate(self._kept) if kept.end > self._position),
            len(self._kept),
        )
        if self._position > self._num_kept:
            self._intake.seek(below)

    def pull(self) -> Outcome | None:
        if self._block < len(self._kept):
            kept = self._kept[self._block]
            self._block += 1
            return self._give(kept, self._position - kept.first)
        if self._is_complete and self._position == self._num_kept:
            return None
        keeps = self._position == self._num_kept
        if keeps and not self._is_at_end:
            self._intake.seek(self._end.after())
            self._is_at_end = True
        if not self._intake.fill():
            error = self._intake.error
            self._is_complete = self._is_complete or (keeps and error is None)
            return None if error is None else self.give([], lambda _: None, error)
        mark = self._intake.mark()
        made = _Kept(self._position, mark, self._intake.take(self._intake.count))
        if keeps:
            self._kept.append(made)
            self._block = len(self._kept)
            self._num_kept = made.end
            self._end = self._intake.mark()
        return self._give(made, 0)

    def _give(self, kept: "_Kept", place: int) -> Outcome:
        rows, mark, first = kept.rows[place:], kept.mark, kept.first
        self._position = kept.end
        return self.give(rows, lambda count: [mark.after(place + count), first + place + count])


@final
class _Kept:
    """Some consecutive elements, from a position on, and where they come from."""

    __slots__ = ("first", "mark", "rows")

    def __init__(self, first: int, mark: Mark, rows: list[Element]) -> None:
        self.first = first
        self.mark = mark
        self.rows = rows

    @property
    def end(self) -> int:
        """The position after them."""
        return self.first + len(self.rows)
