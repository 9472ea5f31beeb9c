"""Sort the ledgers and states of a run by the number of shards that it had at the time.

A run that resumes with another number of shards begins another *phase*. Its states contain where
all shards of the earlier phases ended.
"""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

from gristmill._checkpoint.excluded_records import Exclusion
from gristmill._checkpoint.ledger_file import (
    Ledger,
    LedgerSection,
    cursor_digest,
    stream_digest,
)
from gristmill._checkpoint.mismatch import Description
from gristmill._checkpoint.state import Position, State, decode_state, encode_state
from gristmill._engine.inline_plan import inline_settings
from gristmill._engine.run import Run
from gristmill._engine.settings import Settings
from gristmill._plan.nodes.base import Node
from gristmill._plan.sharding import has_contiguous_shards, shard_of, with_shard
from gristmill.errors import StateError
from gristmill.options import ShardOptions
from gristmill.types import Cursor, JsonObject

ReshardHistory: TypeAlias = tuple[tuple[Cursor, ...], ...]

_PhaseKey: TypeAlias = tuple[str, int]
"""Where the shards of the earlier phases ended, as JSON, and the number of shards."""


@final
@dataclass(frozen=True, kw_only=True)
class AuditedPipeline:
    """The pipeline of a run."""

    plan: Node
    settings: Settings
    description: Description
    is_contiguous: bool
    """Whether each of the first shards was a contiguous range of the records."""

    def open(self, phase: "Phase", shard: int, exclusions: Sequence[Exclusion] = ()) -> Run:
        """Return a run of a shard at the start of a phase, without what was excluded before."""
        options = ShardOptions(shard, phase.shard_count)
        plan, own = self.plan, shard_of(self.plan)
        is_same = (own.shard_index, own.shard_count) == (shard, phase.shard_count)
        # A dataset that is not sliced into shards is the only shard that there is.
        if not is_same or has_contiguous_shards(plan) != self.is_contiguous:
            plan = with_shard(plan, options, is_contiguous=self.is_contiguous)
        run = Run(plan, inline_settings(self.settings), self.description)
        if phase.history:
            *before, last = phase.history
            gathered = State(
                positions=tuple(Position(cursor) for cursor in last),
                shard=None,
                shard_history=tuple(before),
                is_contiguous=self.is_contiguous,
                exclusions=tuple(exclusions),
            )
            run.restore(encode_state(gathered, self.description))
        return run

    def state(
        self, phase: "Phase", shard: int, cursor: Cursor, exclusions: Sequence[Exclusion]
    ) -> JsonObject:
        """Return the state of a shard at a cursor of a phase."""
        state = State(
            positions=(Position(cursor),),
            shard=(shard, phase.shard_count),
            shard_history=phase.history,
            is_contiguous=self.is_contiguous,
            exclusions=tuple(exclusions),
        )
        return encode_state(state, self.description)


@final
@dataclass(frozen=True, kw_only=True)
class ShardRecord:
    """What is known about a shard in a phase."""

    segments: Sequence[LedgerSection] = ()
    """Its steps, in the order in which they were taken."""
    end: Cursor | None = None
    """Where it ended, if a state contains that."""
    exclusions: tuple[Exclusion, ...] = ()
    """The exclusions of that state, each with the cursor of this shard."""


@final
@dataclass(kw_only=True)
class Phase:
    """A part of a run with one number of shards."""

    shard_count: int
    history: ReshardHistory
    """Where the shards of each earlier phase ended."""
    shards: dict[int, ShardRecord] = field(default_factory=dict[int, ShardRecord])

    @property
    def key(self) -> _PhaseKey:
        """What distinguishes the phase from others. Cursors may contain lists."""
        return json.dumps(self.history), self.shard_count


def sort_into_phases(
    ledgers: Sequence[Ledger], states: Sequence[JsonObject]
) -> tuple[list[Phase], bool]:
    """Return the phases of a run in order, and whether their first shards were ranges of records.

    Raises:
        StateError: The ledgers and states are of several runs, or there are none.
    """
    found: dict[_PhaseKey, Phase] = {}
    contiguous: set[bool] = set()
    pipelines: set[str] = set()

    def phase_of(state: State, shard_count: int) -> Phase:
        contiguous.add(state.is_contiguous)
        phase = Phase(shard_count=shard_count, history=state.shard_history)
        return found.setdefault(phase.key, phase)

    for ledger in ledgers:
        by_phase: dict[_PhaseKey, list[LedgerSection]] = defaultdict(list)
        for segment in ledger.segments:
            phase = phase_of(decode_state(segment.state, None), segment.shard[1])
            by_phase[phase.key].append(segment)
            pipelines.add(_pipeline_of(segment.state))
        for key, segments in by_phase.items():
            found[key].shards[segments[0].shard[0]] = ShardRecord(segments=segments)
    for body in states:
        state = decode_state(body, None)
        pipelines.add(_pipeline_of(body))
        count = len(state.positions) if state.shard is None else state.shard[1]
        first = 0 if state.shard is None else state.shard[0]
        shards = phase_of(state, count).shards
        for number, position in enumerate(state.positions, start=first):
            shards[number] = replace(
                shards.get(number, ShardRecord()),
                end=position.cursor,
                exclusions=_of_shard(state.exclusions, number - first, len(state.shard_history)),
            )
    if not found:
        raise StateError("There is no ledger and no state to audit.")
    if len(pipelines) > 1:
        raise StateError(
            "The ledgers and states are of different pipelines: "
            f"{' and '.join(sorted(pipelines))}. Audit those of one run."
        )
    if len(contiguous) > 1:
        raise StateError(
            "The ledgers and states are of different runs: in one, each shard is a range of the "
            "records, in the other, every n-th record."
        )
    return _in_order(list(found.values())), contiguous.pop()


def _pipeline_of(state: Mapping[str, Any]) -> str:
    names = ("source", "order", "steps", "epoch")
    return json.dumps({name: state[name] for name in names if name in state})


def _in_order(found: Sequence[Phase]) -> list[Phase]:
    """Return the phases of the longest history; the states contain where the earlier ones ended."""
    last = max(found, key=lambda phase: len(phase.history))
    phases = [
        Phase(shard_count=len(cursors), history=last.history[:number])
        for number, cursors in enumerate(last.history)
    ]
    known = {phase.key: phase for phase in [*phases, last]}
    for phase in found:
        if phase.key not in known:
            raise StateError(
                f"The ledgers and states are of several runs: one with {phase.shard_count} shards "
                f"does not come before the one with {last.shard_count}. Audit those of one run."
            )
        known[phase.key].shards |= phase.shards
    exclusions = _exclusions_in(last)
    for phase, cursors in zip(phases, last.history, strict=True):
        for number, cursor in enumerate(cursors):
            record = phase.shards.get(number, ShardRecord())
            phase.shards[number] = replace(
                record,
                segments=cut_at(record.segments, cursor),
                end=cursor,
                exclusions=_of_shard(exclusions, number, len(phase.history)),
            )
    return [*phases, last]


def _exclusions_in(phase: Phase) -> tuple[Exclusion, ...]:
    """Return the exclusions of a phase that has a state of any shard."""
    for record in phase.shards.values():
        if record.segments:
            return decode_state(record.segments[-1].state, None).exclusions
        return record.exclusions
    return ()


def _of_shard(
    exclusions: Sequence[Exclusion], shard: int, num_reshards: int
) -> tuple[Exclusion, ...]:
    """Return the exclusions up to a phase, with the cursor of one shard where it is that phase."""
    return tuple(
        replace(one, cursors=one.cursors[shard : shard + 1])
        if one.cursors is not None and one.num_reshards == num_reshards
        else one
        for one in exclusions
        if one.num_reshards <= num_reshards
    )


def cut_at(segments: Sequence[LedgerSection], end: Cursor) -> Sequence[LedgerSection]:
    """Return the steps up to a position, as later ones were rolled back; all if none is there."""
    kept: list[LedgerSection] = []
    for segment in segments:
        wanted = cursor_digest(end, stream_digest(segment.state))
        if segment.digest == wanted and not kept:
            return kept
        for number, line in enumerate(segment.steps, start=1):
            if line.state == wanted:
                return [*kept, replace(segment, steps=segment.steps[:number])]
        kept.append(segment)
    return segments
