"""Check from ledgers and states that each record of a run came as often as it should."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

from gristmill._api.ledgers.audit_phases import AuditedPipeline, sort_into_phases
from gristmill._api.ledgers.audit_shard import ShardAudit, ShardAuditor
from gristmill._api.plan_access import pipeline_of
from gristmill._checkpoint.ledger_file import Ledger
from gristmill._engine.provenance.coverage import Counts, RecordKey, splits_records
from gristmill.types import JsonObject

_MAX_LISTED = 10


@final
@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How often the records of one epoch of a source came."""

    source: int
    epoch: int | None
    num_expected: int
    """How often records come in the epoch if it is read to its end."""
    num_came: int
    num_to_come: int
    num_held: int
    """How many of those to come are held in windows or bins."""
    excluded: tuple[int, ...]
    num_dropped: int
    """Records of a last, smaller batch that is dropped."""
    lost: tuple[int, ...]
    """Records that did not come as often as they should."""
    repeated: tuple[int, ...]
    """Records that came more often than they should."""
    displaced: tuple[int, ...] = ()
    """Records that do not come, because steps such as a limit or a mix yield others in place of
    those that are excluded."""

    def __str__(self) -> str:
        epoch = "" if self.epoch is None else f", epoch {self.epoch}"
        words = [
            f"source {self.source}{epoch}: {self.num_came} of {self.num_expected} records came"
        ]
        if self.num_to_come:
            held = f", {self.num_held} of them are held in windows or bins" * bool(self.num_held)
            words.append(f"{self.num_to_come} are to come{held}")
        if self.excluded:
            words.append(f"{_listed(self.excluded)} excluded")
        if self.num_dropped:
            words.append(f"{self.num_dropped} are in batches that are dropped")
        if self.displaced:
            words.append(
                f"{_listed(self.displaced)} no longer come, as a step yields others without those "
                "excluded"
            )
        return "; ".join(words)


@final
@dataclass(frozen=True, kw_only=True)
class Audit:
    """The result of an audit."""

    coverage: tuple[Coverage, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    """What is wrong; empty if each record came as often as it should."""


def audit(pipeline: Any, ledgers: Sequence[Ledger], states: Sequence[JsonObject] = ()) -> Audit:
    """Check that each record came as often as it should, from the ledgers or states of all shards.

    Args:
        pipeline: The loader or dataset of the run.
        ledgers: The ledgers of the shards.
        states: States of shards, for those without a ledger.

    Raises:
        StateError: The ledgers belong to another pipeline, or to several runs.
    """
    phases, is_contiguous = sort_into_phases(ledgers, states)
    plan, settings, description = pipeline_of(pipeline)
    audited = AuditedPipeline(
        plan=plan, settings=settings, description=description, is_contiguous=is_contiguous
    )
    auditor = ShardAuditor(audited)
    last_phase = phases[-1]
    found = [
        [auditor.audit(phase, shard) for shard in range(phase.shard_count)] for phase in phases
    ]
    every = [one for some in found for one in some]
    came: Counts = Counter()
    due: Counts = Counter()
    for one in every:
        came += one.counts
        due += one.due
    problems = [problem for one in every for problem in one.problems]
    problems += [
        f"there is no ledger or state of shard {number} of {last_phase.shard_count}"
        for number in range(last_phase.shard_count)
        if number not in last_phase.shards
    ]
    last_epochs: dict[int, int | None] = {}
    for number, epoch, _ in came:
        known = last_epochs.setdefault(number, epoch)
        last_epochs[number] = epoch if known is None or epoch is None else max(known, epoch)
    expected = auditor.whole(phases[0], last_epochs)
    to_come, with_dropped, held = _remaining(auditor, found[-1], last_epochs)
    excluded = set[tuple[int, int]]().union(*(one.excluded for one in every))
    can_vary = bool(excluded) or (len(phases) > 1 and splits_records(plan))
    if not can_vary:  # with other shards, a limit may yield other records, each of them once
        due = Counter(dict.fromkeys(due, 1) if len(phases) > 1 else ())
    coverage = tuple(
        _coverage(expected, due, came, to_come, with_dropped, held, excluded, can_vary=can_vary)
    )
    for part in coverage:
        of = f"source {part.source}" + ("" if part.epoch is None else f", epoch {part.epoch}")
        if part.lost:
            problems.append(f"{of}: {_listed(part.lost)} did not come")
        if part.repeated:
            problems.append(f"{of}: {_listed(part.repeated)} came too often")
    return Audit(coverage=coverage, notes=tuple(_notes(ledgers, every)), problems=tuple(problems))


def _remaining(
    auditor: ShardAuditor, shards: Sequence[ShardAudit], last_epochs: dict[int, int | None]
) -> tuple[Counts, Counts, Counts]:
    """Return the records not yielded yet, without and with dropped remainders, and those held."""
    plain: Counts = Counter()
    whole: Counts = Counter()
    held: Counts = Counter()
    for shard in shards:
        some, more = auditor.rest(shard, last_epochs)
        plain += some
        whole += more
        held += auditor.held(shard)
    return plain, whole, held


def _coverage(
    expected: Counts,
    due: Counts,
    came: Counts,
    to_come: Counts,
    with_dropped: Counts,
    held: Counts,
    excluded: set[tuple[int, int]],
    *,
    can_vary: bool,
) -> Iterator[Coverage]:
    """Yield how the records of each epoch of a source came.

    If it `can_vary` how often a record comes, because others are excluded or split elsewhere, what
    the run has yielded counts (`due`), not what it would have yielded otherwise (`expected`).
    """
    keys: dict[tuple[int, int | None], list[RecordKey]] = defaultdict(list)
    for key in expected.keys() | came.keys():
        keys[key[:2]].append(key)
    for number, epoch in sorted(
        keys, key=lambda pair: (pair[0], -1 if pair[1] is None else pair[1])
    ):
        mine = sorted(keys[number, epoch])
        missing = [key for key in mine if expected[key] > came[key] + to_come[key]]
        left_out = [key for key in missing if key[::2] in excluded]
        dropped = [
            key
            for key in missing
            if key[::2] not in excluded and expected[key] <= came[key] + with_dropped[key]
        ]
        explained = {*left_out, *dropped}
        others = [key for key in missing if can_vary and due[key] <= came[key]]
        displaced = [
            key
            for key in others
            if excluded and key not in explained and not came[key] + to_come[key]
        ]
        explained.update(displaced, (key for key in others if came[key] + to_come[key]))
        yield Coverage(
            source=number,
            epoch=epoch,
            num_expected=sum(expected[key] for key in mine),
            num_came=sum(came[key] for key in mine),
            num_to_come=sum(to_come[key] for key in mine),
            num_held=sum(held[key] for key in mine),
            excluded=tuple(key[2] for key in left_out),
            num_dropped=len(dropped),
            lost=tuple(key[2] for key in missing if key not in explained),
            repeated=tuple(key[2] for key in mine if came[key] > max(expected[key], due[key])),
            displaced=tuple(key[2] for key in displaced),
        )


def _notes(ledgers: Sequence[Ledger], shards: Sequence[ShardAudit]) -> Iterator[str]:
    num_steps = sum(shard.num_steps for shard in shards)
    yield f"{_counted(num_steps, 'step')} of {_counted(len(shards), 'shard')}"
    for ledger in ledgers:
        if ledger.num_replaced:
            yield f"{ledger.path}: taken back by a restore: {_counted(ledger.num_replaced, 'step')}"
        if ledger.is_cut_off:
            yield f"{ledger.path}: the last line is cut off, and was left out"
    skipped = {entry for shard in shards for entry in shard.skipped}
    if skipped:
        records = sorted({entry.record for entry in skipped if entry.record is not None})
        yield f"{_listed(tuple(records))} skipped, because they raised"


def _listed(records: Sequence[int]) -> str:
    """Return some records.

    >>> _listed((3, 4)), _listed(tuple(range(20)))
    ('2 records (3, 4)', '20 records (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, ...)')
    """
    shown = ", ".join(map(str, records[:_MAX_LISTED]))
    more = ", ..." if len(records) > _MAX_LISTED else ""
    return f"{_counted(len(records), 'record')} ({shown}{more})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"
