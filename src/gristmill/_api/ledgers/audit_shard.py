"""Count the records that one shard of a run yielded, and check that its ledger has no gaps."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import final

from gristmill._api.ledgers.audit_phases import AuditedPipeline, Phase, ShardRecord
from gristmill._checkpoint.excluded_records import Exclusion, excluded_by, excluded_in
from gristmill._checkpoint.ledger_file import (
    LedgerSection,
    LedgerStep,
    cursor_digest,
    stream_digest,
)
from gristmill._checkpoint.skipped_record import SkippedRecord
from gristmill._checkpoint.state import Position
from gristmill._engine.provenance.coverage import (
    MAX_LATER,
    Counts,
    RecordKey,
    TracedRun,
    add_records,
    below_batches,
    count_epochs,
    count_held,
    keeping_remainders,
)
from gristmill._engine.provenance.trace import PlanTracer
from gristmill._engine.run import Run
from gristmill._plan.nodes.base import Node
from gristmill.errors import StateError
from gristmill.types import Cursor

_MAX_LISTED = 10


@final
@dataclass
class ShardAudit:
    """What a shard yielded in a phase, and where it is."""

    plan: Node
    """The plan that ran last."""
    end: Position
    """The position after the last step."""
    counts: Counts = field(default_factory=Counter[RecordKey])
    due: Counts = field(default_factory=Counter[RecordKey])
    """What it yields up to there if no step is left out or taken twice."""
    excluded: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])
    """Numbers of sources, and records of them."""
    skipped: set[SkippedRecord] = field(default_factory=set[SkippedRecord])
    problems: list[str] = field(default_factory=list[str])
    num_steps: int = 0


@final
class ShardAuditor:
    """Audits the shards of one run."""

    def __init__(self, pipeline: AuditedPipeline) -> None:
        self._pipeline = pipeline
        self._tracer = PlanTracer()

    def audit(self, phase: Phase, shard: int) -> ShardAudit:
        """Count what a shard yielded in a phase."""
        record = phase.shards.get(shard, ShardRecord())
        before = [one for one in record.exclusions if _is_at(one, range(len(phase.history)))]
        run = self._pipeline.open(phase, shard, before)
        try:
            found = ShardAudit(run.plan, run.stream.position)
            name = f"shard {shard} of {phase.shard_count}"
            if record.segments:
                self._audit_segments(run, record, found, name)
            elif record.end is not None:
                self._count_to_state(run, phase, shard, found)
        finally:
            run.stream.close()
        return found

    def _audit_segments(self, run: Run, record: ShardRecord, found: ShardAudit, name: str) -> None:
        digest = cursor_digest(found.end.cursor, stream_digest(run.state))
        path = _Path(digest)
        step = at = None
        for segment in record.segments:
            where = f"{name}, step {segment.first_step}"
            if step is not None and segment.first_step != step:
                found.problems.append(f"{where}: there is no line from step {step} on")
            elif segment.digest != digest:
                found.problems.append(f"{where}: {_jump(at, segment, is_first=step is None)}")
            if segment.digest not in path.digests:
                self._add_gap(segment, found, path)
            run.restore(segment.state)
            start = Position(run.stream.cursor, run.stream.position.skipped)
            found.plan = run.plan
            found.excluded |= _pairs(excluded_in(segment.state))
            with closing(self._trace(run.plan, start)) as rows:
                found.problems += self._count(segment, rows, found, name, path)
                found.end = rows.position
            found.skipped |= {entry for _, entry in found.end.skipped}
            if segment.steps:
                step, digest, at = segment.end, segment.steps[-1].state, segment.steps[-1].at
        wanted = record.end
        if wanted is not None and cursor_digest(wanted, stream_digest(run.state)) != digest:
            found.problems.append(
                f"{name}: the ledger ends at another position than the state, {list(wanted)}"
            )

    def _trace(self, plan: Node, start: Position | None) -> TracedRun:
        return TracedRun(plan, self._pipeline.settings, start, self._tracer)

    def _add_gap(self, segment: LedgerSection, found: ShardAudit, path: "_Path") -> None:
        """Add what comes before a segment that does not follow the steps before it, if it does."""
        due: Counts = Counter()
        prefix = stream_digest(segment.state)
        with closing(self._trace(found.plan, found.end)) as rows:
            for origins in islice(rows, MAX_LATER):
                add_records(due, origins)
                if cursor_digest(rows.position.cursor, prefix) == segment.digest:
                    found.due += due
                    path.add(segment.digest)
                    return

    def _count(
        self,
        segment: LedgerSection,
        rows: TracedRun,
        found: ShardAudit,
        name: str,
        path: "_Path",
    ) -> Iterator[str]:
        """Count the records of the steps that have a line, and yield the problems."""
        prefix = stream_digest(segment.state)
        lines: dict[int, list[LedgerStep]] = {}
        for line in segment.steps:
            lines.setdefault(line.step, []).append(line)
        missing: list[int] = []
        elements = iter(rows)
        is_new = segment.digest == path.end
        for step in range(segment.first_step, segment.end):
            origins = next(elements, None)
            if origins is None:
                raise StateError(
                    f"The ledger of {name} has a step {step}, but the pipeline ends before it. "
                    "Audit the run with the pipeline that it used."
                )
            of_step = lines.get(step, [])
            digest = cursor_digest(rows.position.cursor, prefix)
            if any(line.state != digest for line in of_step):
                raise StateError(
                    f"At step {step}, the ledger of {name} is at another position than the "
                    "pipeline: a filter, a flat map or the source returns something else than in "
                    "the run. Audit the run with the pipeline that it used."
                )
            if not of_step:
                missing.append(step)
            if len(of_step) > 1:
                yield f"{name}: step {step} has {len(of_step)} lines"
            found.num_steps += len(of_step)
            add_records(found.counts, origins, len(of_step))
            if is_new:
                add_records(found.due, origins)
                path.add(digest)
            is_new = is_new or digest == path.end
        if missing:
            shown = ", ".join(map(str, missing[:_MAX_LISTED])) + ", ..." * (
                len(missing) > _MAX_LISTED
            )
            yield f"{name}: there is no line of step {shown}"

    def _count_to_state(self, run: Run, phase: Phase, shard: int, found: ShardAudit) -> None:
        """Count the records up to the position of a state.

        Where nothing is held, a state does not contain since when records are excluded, and so not
        which batches came: those records before the position have come.
        """
        record = phase.shards[shard]
        assert record.end is not None, "only a state is counted to"
        number = len(phase.history)
        known = [one for one in record.exclusions if _is_at(one, range(number))]
        for one in record.exclusions:
            if one.cursors is not None and one.num_reshards == number:
                self._count_to(run.plan, run, one.cursors[0], found)
                known.append(one)
                run.restore(self._pipeline.state(phase, shard, one.cursors[0], known))
        knows_all = len(known) == len(record.exclusions)
        plan = run.plan if knows_all else below_batches(run.plan)
        self._count_to(plan, run, record.end, found)
        run.restore(self._pipeline.state(phase, shard, record.end, record.exclusions))
        found.plan = run.plan
        found.end = Position(record.end, found.end.skipped)
        found.excluded |= _pairs(excluded_by(record.exclusions))

    def _count_to(self, plan: Node, run: Run, cursor: Cursor, found: ShardAudit) -> None:
        """Count the records up to a cursor."""
        prefix = stream_digest(run.state)
        start = run.stream.position
        with closing(self._trace(plan, start if plan is run.plan else None)) as rows:
            size = len(rows.position.cursor)
            wanted = cursor_digest(cursor[:size], prefix)
            elements = iter(rows)
            while cursor_digest(rows.position.cursor, prefix) != wanted:
                origins = next(elements, None)
                if origins is None:
                    index, count = run.state["shard"]
                    raise StateError(
                        f"The stream of shard {index} of {count} ends before the position of the "
                        f"state, {list(cursor)}. Audit the run with the pipeline that it used."
                    )
                found.num_steps += plan is run.plan
                add_records(found.counts, origins)
                add_records(found.due, origins)
            found.end = rows.position
        found.skipped |= {entry for _, entry in found.end.skipped}

    def whole(self, phase: Phase, last_epochs: dict[int, int | None]) -> Counts:
        """Count what all shards yield from the start of a phase, with dropped remainders."""
        counts: Counts = Counter()
        for shard in range(phase.shard_count):
            run = self._pipeline.open(phase, shard)
            run.stream.close()
            counts += self._count_on(keeping_remainders(run.plan), None, last_epochs)
        return counts

    def rest(self, found: ShardAudit, last_epochs: dict[int, int | None]) -> tuple[Counts, Counts]:
        """Count what a shard has yet to yield, without and with a remainder that is dropped."""
        plain = self._count_on(found.plan, found.end, last_epochs)
        whole = keeping_remainders(found.plan)
        if whole == found.plan:
            return plain, plain
        return plain, self._count_on(whole, found.end, last_epochs)

    def held(self, found: ShardAudit) -> Counts:
        """Count what a shard holds in windows or bins."""
        settings = self._pipeline.settings
        return count_held(found.plan, found.end.cursor, settings, self._tracer)

    def _count_on(
        self, plan: Node, start: Position | None, last_epochs: dict[int, int | None]
    ) -> Counts:
        with closing(self._trace(plan, start)) as rows:
            return count_epochs(rows, last_epochs)


@final
class _Path:
    """The checksums of the positions that a shard comes by if no step is left out."""

    def __init__(self, start: str) -> None:
        self.end = start
        self.digests = {start}

    def add(self, digest: str) -> None:
        """Add the position after one more step."""
        self.end = digest
        self.digests.add(digest)


def _is_at(exclusion: Exclusion, phases: range) -> bool:
    """Return whether it is known that records were excluded in one of some phases."""
    return exclusion.cursors is not None and exclusion.num_reshards in phases


def _pairs(excluded: Mapping[int, set[int]]) -> set[tuple[int, int]]:
    return {(number, record) for number, records in excluded.items() for record in records}


def _jump(at: tuple[int, ...] | None, segment: LedgerSection, *, is_first: bool) -> str:
    """Return how a segment does not follow the step before."""
    if is_first:
        return f"the ledger begins at position {segment.at or 'of a later state'}, not at the start"
    if at is None or segment.at is None or len(at) != len(segment.at):
        return "the run continues from another position than that of the step before"
    if segment.at < at:
        return f"the run goes back from position {list(at)} to {list(segment.at)}: records repeat"
    return f"the run jumps from position {list(at)} to {list(segment.at)}: records are left out"
