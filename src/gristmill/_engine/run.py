"""A running plan with states: what loaders and datasets share."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, final

from numpy.typing import NDArray

from gristmill._base.grain.config import config
from gristmill._checkpoint.excluded_records import Exclusion, excluded_by
from gristmill._checkpoint.grain_state import as_dataset_state
from gristmill._checkpoint.mismatch import check_shard
from gristmill._checkpoint.state import Position, State, decode_state, encode_state
from gristmill._engine.flat_map_cursor import cursor_after
from gristmill._engine.grain_cursor import grain_cursor
from gristmill._engine.inline_plan import asks_for_workers, inline_plan, inline_settings
from gristmill._engine.lazy_replay import find_held, find_origins, trace_element
from gristmill._engine.provenance.origin import Provenance, RecordOrigin
from gristmill._engine.run_log import RunLog
from gristmill._engine.settings import Settings
from gristmill._engine.stream import Stream
from gristmill._plan.breakpoints import calls_breakpoint
from gristmill._plan.cursor_checks import check_cursor
from gristmill._plan.exclusion import holds_elements, with_excluded
from gristmill._plan.nodes.base import Node, RecordsNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.stream import CustomStreamNode
from gristmill._plan.reshard import reshard_plan
from gristmill._plan.sharding import has_contiguous_shards, shard_of
from gristmill._plan.steps_of_records import no_element_at
from gristmill._plan.traverse import bottom_of, num_outputs_in_leaf, sample_below
from gristmill.errors import PlanError, ProvenanceError, StateError
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
        if config.py_debug_mode or (
            not asks_for_workers(plan, settings) and calls_breakpoint(plan)
        ):
            plan, settings = inline_plan(plan), inline_settings(settings)
        if config.py_debug_mode:
            settings = replace(settings, prints_summary=True)
        self._plan = plan
        self._settings = settings
        self._description = description
        self._is_lockstep = is_lockstep
        self._shard = shard_of(plan)
        self._is_contiguous: bool = has_contiguous_shards(plan)
        self._shard_history: tuple[tuple[Cursor, ...], ...] = ()
        self._exclusions: tuple[Exclusion, ...] = ()
        self._running = plan
        self._log = RunLog(plan, settings)
        self.moved: object = object()
        """Another object after each call that continues elsewhere, also one that Ctrl-C ended."""
        self.stream = Stream(plan, settings, self._log)

    @property
    def state(self) -> dict[str, Any]:
        """The current position, as JSON."""
        return self.bookmark()()

    def bookmark(self) -> Callable[[], dict[str, Any]]:
        """Return a function that returns the state of now, wherever the stream is by then."""
        find, shard_history, is_contiguous, exclusions = (
            self.stream.bookmark(),
            self._shard_history,
            self._is_contiguous,
            self._exclusions,
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
                exclusions=exclusions,
            )
            return encode_state(part, self._description)

        return state

    @property
    def pipeline(self) -> tuple[Node, Settings, Mapping[str, Any]]:
        """The plan that was given, how it runs, and the description of its states."""
        return self._plan, self._settings, self._description

    @property
    def plan(self) -> Node:
        """The plan that runs: without excluded records, and of what earlier shards left."""
        return self._running

    @property
    def shard_history(self) -> tuple[tuple[Cursor, ...], ...]:
        """The cursors of all shards at the end of each earlier run on other numbers of shards."""
        return self._shard_history

    @property
    def is_at_start(self) -> bool:
        """Whether no element of the stream comes before the position."""
        start = Stream(self._running, inline_settings(self._settings))
        try:
            return _as_lists(start.cursor) == _as_lists(self.stream.cursor)
        finally:
            start.close()

    def capture_provenance(self) -> Callable[[], Provenance]:
        """Return a function that returns the provenance of the present last element."""
        find, plan = self.stream.bookmark_last(), self._running

        def provenance() -> Provenance:
            found = find()
            if found is None:
                raise ProvenanceError(
                    "There is no last element: none was taken since the iterator was made, "
                    "restored, closed or raised an error. Call `next` before `provenance`."
                )
            return trace_element(plan, self._settings, *found)

        return provenance

    def origins(self, leaf: NDArray[Any]) -> list[RecordOrigin]:
        """Return the records with some numbers, each perhaps with the numbers of outputs."""
        width = 1 + num_outputs_in_leaf(self._plan)
        if leaf.dtype.kind not in "iu" or leaf.size % width:
            shape = "" if width == 1 else f" in rows of {width}"
            raise ProvenanceError(
                f"The leaf that `provenance=True` adds consists of integers{shape}, but this has "
                f"the type {leaf.dtype} and the shape {leaf.shape}. Pass that leaf."
            )
        rows = leaf.reshape(-1, width)
        return find_origins(sample_below(self._running), rows.tolist())

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
            state = _of_shard(state, self._shard.shard_index)
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

    def exclude(self, records: Mapping[int, set[int]]) -> None:
        """Leave more records out, starting at the current position.

        Args:
            records: Numbers of sources, each with some of its records.
        """
        records = {number: some for number, some in records.items() if some}
        if not records:
            return
        if self._is_lockstep:
            raise PlanError(
                "Records cannot be excluded from an iterator whose states are of all shards. "
                "Exclude them from a dataset or loader of which each process reads a shard."
            )
        position, exclusions, kept = self.stream.position, self._exclusions, self._exclusions
        is_anywhere = not holds_elements(self._plan)
        if is_anywhere:  # from which position on does not matter: one exclusion has all of them
            before, kept = excluded_by(exclusions), ()
            records = {n: before.get(n, set()) | records.get(n, set()) for n in before | records}
        added = Exclusion(
            records=tuple((number, tuple(sorted(records[number]))) for number in sorted(records)),
            cursors=None if is_anywhere else (position.cursor,),
            num_reshards=0 if is_anywhere else len(self._shard_history),
        )
        with_excluded(self._plan, added.records, original=self._plan)  # raises if not possible
        if not is_anywhere:
            self._check_held(added, position.cursor)
        state = State(
            positions=(position,),
            is_contiguous=self._is_contiguous,
            exclusions=(*kept, added),
        )
        self._go_to(state, self._shard_history, position)

    def _check_held(self, added: Exclusion, cursor: Cursor) -> None:
        """Raise if a record to be left out is in an element that is held at a cursor."""
        held = find_held(self._running, self._settings, cursor)
        for number, records in added.records:
            found = sorted(held & {(number, record) for record in records})
            if found:
                raise PlanError(
                    f"Record {found[0][1]} cannot be excluded here: it was read before, and a step "
                    "holds it in a window or in rows that are to come. Exclude it in an earlier "
                    "checkpoint, or take the element with it first."
                )

    def records_at(
        self, steps: Sequence[int], find: Callable[[int], Cursor | None]
    ) -> Iterator[tuple[int, int]]:
        """Yield the source and the index of each record of some steps.

        The plan is that before anything was excluded.

        Args:
            steps: The steps, in order.
            find: Returns the cursor before a step, or `None` if the elements must be counted.

        Raises:
            IndexError: The stream ends before a step.
        """
        other = Run(self._plan, inline_settings(self._settings), self._description)
        count = 0
        try:
            for step in steps:
                cursor = find(step)
                if cursor is not None:
                    other.go_to(cursor)
                    count = step
                while count <= step:
                    try:
                        next(other.stream)
                    except StopIteration:
                        raise no_element_at(step, count) from None
                    count += 1
                for origin in other.capture_provenance()().records:
                    yield origin.source_number, origin.index
        finally:
            other.stream.close()

    def go_to(self, cursor: Cursor) -> None:
        """Continue from a cursor of the plan."""
        check_cursor(self._plan, cursor)
        self._go_to_cursor(cursor)

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
        self.go_to_position(Position(cursor))

    def go_to_position(self, position: Position) -> None:
        """Continue from a position of the whole plan, as an earlier run over it has had."""
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
        is_same = (
            shard_history == self._shard_history
            and (not shard_history or state.is_contiguous == self._is_contiguous)
            and state.exclusions == self._exclusions
        )
        try:
            if not is_same:
                plan = self._make_plan(state, shard_history)
            if not (is_same and (stream.seeks_at_once or _has_positions(plan))):
                stream = Stream(plan, self._settings, self._log)
            start = stream.cursor
            if position is None:
                position = Position(start, tuple((start, record) for record in skipped))
            check_cursor(plan, position.cursor)
            stream.count_blocks(None)
            self.moved = object()
            stream.seek(position)
        except _MALFORMED as error:
            if isinstance(error, StateError):
                raise
            raise StateError(
                "The state is corrupt: it does not fit the pipeline it belongs to. Restore an "
                "earlier checkpoint."
            ) from error
        if stream is not self.stream:
            if self.stream.is_closed:
                stream.close()
            self.stream.close()
            self.stream, self._running, self._shard_history = stream, plan, shard_history
            self._exclusions = state.exclusions
            self._is_contiguous = state.is_contiguous

    def _make_plan(self, state: State, shard_history: tuple[tuple[Cursor, ...], ...]) -> Node:
        """Return the plan of what earlier shards left, without the excluded records."""

        def without(plan: Node, number: int, shard: int) -> Node:
            for one in state.exclusions:
                if one.num_reshards == number and one.cursors is not None:
                    check_cursor(plan, one.cursors[shard])
                    cursor = one.cursors[shard]
                    plan = with_excluded(plan, one.records, cursor, original=self._plan)
            return plan

        plan = self._plan
        for one in state.exclusions:
            if one.cursors is None:
                plan = with_excluded(plan, one.records, original=self._plan)
        if shard_history:
            plan = reshard_plan(
                plan,
                shard_history,
                self._shard,
                is_contiguous=state.is_contiguous,
                change=without,
            )
        return without(plan, len(shard_history), 0)

    @property
    def _index_and_count(self) -> tuple[int, int]:
        return self._shard.shard_index, self._shard.shard_count


def _of_shard(state: State, shard: int) -> State:
    """Return the state of all shards, with the exclusions of one."""
    last = len(state.shard_history)
    own = tuple(
        replace(one, cursors=one.cursors[shard : shard + 1])
        if one.cursors is not None and one.num_reshards == last
        else one
        for one in state.exclusions
    )
    return replace(state, exclusions=own)


def _as_lists(cursor: Any) -> Any:
    """Return a cursor in which tuples are lists, as in one from JSON."""
    if not isinstance(cursor, list | tuple):
        return cursor
    return [_as_lists(item) for item in cast("Sequence[Any]", cursor)]


def _has_positions(plan: Node) -> bool:
    """Return whether cursors are numbers only, so that `check_cursor` finds all that do not fit."""
    return isinstance(bottom_of(plan), RecordsNode)
