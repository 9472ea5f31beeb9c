"""A running plan with states: what loaders and datasets share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from gristmill._base.config import config
from gristmill._checkpoint.grain_state import as_dataset_state
from gristmill._checkpoint.mismatch import check_shard
from gristmill._checkpoint.state import Position, State, decode_state, encode_state
from gristmill._engine.flat_map_cursor import cursor_after
from gristmill._engine.grain_cursor import grain_cursor
from gristmill._engine.inline_plan import inline_plan, inline_settings
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.cursor_checks import check_cursor
from gristmill._plan.nodes.base import Node, RecordsNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.stream import CustomStreamNode
from gristmill._plan.reshard import reshard_plan
from gristmill._plan.sharding import has_contiguous_shards, shard_of
from gristmill._plan.traverse import bottom_of
from gristmill.errors import StateError
from gristmill.types import Cursor

_MALFORMED = (
    *(TypeError, ValueError, LookupError, AttributeError),
    *(ArithmeticError, RecursionError, MemoryError),
)
"""What a state that does not fit may raise, wherever it is used."""


@final
class Run:
    """The stream of a plan, and the description of the pipeline that its states belong to.

    After a change of the number of shards it runs another plan: its shard of the records that
    remain. If all shards advance in lockstep, the state of each describes all of them.
    """

    def __init__(
        self,
        plan: Node,
        settings: Settings,
        description: Mapping[str, Any],
        *,
        is_lockstep: bool = False,
    ) -> None:
        if config.py_debug_mode:
            plan, settings = inline_plan(plan), inline_settings(settings)
        self._plan = plan
        self._settings = settings
        self._description = description
        self._is_lockstep = is_lockstep
        self._shard = shard_of(plan)
        self._is_contiguous: bool = has_contiguous_shards(plan)
        self._shard_history: tuple[tuple[Cursor, ...], ...] = ()
        self._running = plan
        self.stream = Stream(plan, settings)

    @property
    def state(self) -> dict[str, Any]:
        """The current position, as JSON."""
        return self.bookmark()()

    def bookmark(self) -> Callable[[], dict[str, Any]]:
        """Return a function that returns the state of now, wherever the stream is by then."""
        find, shard_history, is_contiguous = (
            self.stream.bookmark(),
            self._shard_history,
            self._is_contiguous,
        )

        def state() -> dict[str, Any]:
            position = find()
            if self._is_lockstep:
                taken = shard_history[0][0][0] if shard_history else 0
                number = taken + position.cursor[0] * self._shard.shard_count
                whole = State(positions=(Position((number,)),), shard=None)
                return encode_state(whole, self._description)
            part = State(
                positions=(position,),
                shard=self._index_and_count,
                shard_history=shard_history,
                is_contiguous=is_contiguous,
            )
            return encode_state(part, self._description)

        return state

    def restore(self, given: Any, *, validates: bool = True) -> None:
        """Continue from a state. One that does not fit raises an error and changes nothing."""
        if self._is_lockstep and isinstance(given, dict) and "global_next_index" in given:
            given = self._from_elastic(given["global_next_index"])
        elif (of_grain := self._as_grains(given)) is not None:
            self._go_to_cursor(grain_cursor(self._plan, self._settings, of_grain))
            return
        state = decode_state(given, self._description if validates else None)
        is_alike = state.is_contiguous == has_contiguous_shards(self._plan) or bool(
            state.shard_history
        )
        if state.shard is not None:
            check_shard(state.shard, self._index_and_count)
            if not is_alike:
                raise StateError(
                    "The state belongs to another order: here each shard is a range of the records "
                    "and there every n-th of them, or the reverse. Pass the shard options to the "
                    "sampler or to the loader, as before."
                )
            self._go_to(state, state.shard_history, state.positions[0])
        elif len(state.positions) == self._shard.shard_count and is_alike:
            self._go_to(state, state.shard_history, state.positions[self._shard.shard_index])
        else:
            cursors = tuple(position.cursor for position in state.positions)
            mine = state.positions[self._shard.shard_index :: self._shard.shard_count]
            skipped = [record for position in mine for _, record in position.skipped]
            self._go_to(state, (*state.shard_history, cursors), None, skipped)

    def _from_elastic(self, number: Any) -> dict[str, Any]:
        """Return the state for a position of Grain's `ElasticIterator`."""
        if type(number) is not int or number < 0:
            raise StateError(
                f"The state is corrupt: its position is {number!r:.100}. Restore an earlier "
                "checkpoint."
            )
        return encode_state(State(positions=(Position((number,)),), shard=None), self._description)

    def go_after(self, num_records: int, outputs: Sequence[int] = ()) -> None:
        """Continue after some records and some outputs of each flat map, bottom up."""
        check_cursor(self._plan, (num_records, *outputs))
        self._go_to_cursor(
            cursor_after(self._plan, self._settings, num_records=num_records, outputs=outputs)
        )

    def _as_grains(self, given: Any) -> dict[str, Any] | None:
        """Return a state of a dataset iterator of Grain; `None` if it is not one."""
        bottom = bottom_of(self._plan)
        if isinstance(bottom, SampleNode):
            return None  # of a loader, whose states differ
        return as_dataset_state(given, is_users=isinstance(bottom, CustomStreamNode))

    def _go_to_cursor(self, cursor: Cursor) -> None:
        """Continue from a cursor of the whole plan, not of one that continues other shards."""
        position = Position(cursor)
        is_contiguous = has_contiguous_shards(self._plan)
        self._go_to(State(positions=(position,), is_contiguous=is_contiguous), (), position)

    def _go_to(
        self,
        state: State,
        shard_history: tuple[tuple[Cursor, ...], ...],
        position: Position | None,
        skipped: Any = (),
    ) -> None:
        plan, stream = self._running, self.stream
        is_same = shard_history == self._shard_history and (
            not shard_history or state.is_contiguous == self._is_contiguous
        )
        try:
            if not is_same:
                plan = self._plan
                if shard_history:
                    contiguous = state.is_contiguous
                    plan = reshard_plan(plan, shard_history, self._shard, is_contiguous=contiguous)
            if not (is_same and (stream.seeks_at_once or _has_positions(plan))):
                stream = Stream(plan, self._settings)
            start = stream.cursor
            if position is None:
                position = Position(start, tuple((start, record) for record in skipped))
            check_cursor(plan, position.cursor)
            stream.seek(position)
        except _MALFORMED as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                "The state is corrupt: it does not fit the pipeline it belongs to. Restore an "
                "earlier checkpoint."
            ) from error
        if stream is not self.stream:
            self.stream.close()
            self.stream, self._running, self._shard_history = stream, plan, shard_history
            self._is_contiguous = state.is_contiguous

    @property
    def _index_and_count(self) -> tuple[int, int]:
        return self._shard.shard_index, self._shard.shard_count


def _has_positions(plan: Node) -> bool:
    """Return whether cursors are numbers only, so that `check_cursor` finds all that do not fit."""
    return isinstance(bottom_of(plan), RecordsNode)
