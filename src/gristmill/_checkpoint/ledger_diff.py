"""Find the first step at which two runs differ, and what may have caused it."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from gristmill._checkpoint.excluded_records import excluded_in
from gristmill._checkpoint.ledger_file import Ledger, LedgerSection, LedgerStep


class LedgerDifference(NamedTuple):
    """How two ledgers of one shard differ."""

    step: int | None
    """The first step that differs, or that only one run has; `None` if all are equal."""
    lines: list[str]
    """The difference and its possible causes."""


def compare_ledgers(one: Ledger, other: Ledger) -> LedgerDifference:
    """Compare what two runs yielded, step by step."""
    steps = [
        {line.step: (line, part) for part in run.segments for line in part.steps}
        for run in (one, other)
    ]
    common = sorted(steps[0].keys() & steps[1].keys())
    for number in common:
        (line, segment), (other_line, other_segment) = (found[number] for found in steps)
        what = _difference(line, other_line)
        if what is not None:
            causes = list(_causes(segment, other_segment))
            if not causes:
                causes = [_UNEXPLAINED if line.state == other_line.state else _UNEXPLAINED_POSITION]
            return LedgerDifference(
                number,
                [f"step {number} is the first that differs: {what}"]
                + [f"  {cause}" for cause in causes],
            )
    lines: list[str] = []
    if common:
        lines.append(f"{len(common)} steps are equal, from {common[0]} to {common[-1]}")
    alone = [
        (name, sorted(mine.keys() - others.keys()))
        for name, mine, others in (("first", steps[0], steps[1]), ("second", steps[1], steps[0]))
    ]
    lines += [
        f"{len(numbers)} steps are only in the {name} run, from {numbers[0]} on"
        for name, numbers in alone
        if numbers
    ]
    if not lines:
        lines = ["neither run has a step"]
    firsts = [numbers[0] for _, numbers in alone if numbers]
    if not (common and firsts):
        lines += [f"  {cause}" for cause in _causes(one.segments[-1], other.segments[-1])]
    return LedgerDifference(min(firsts, default=None), lines)


_UNEXPLAINED = (
    "the pipelines have the same description and code: the source returned other data, or a step "
    "is not deterministic"
)
_UNEXPLAINED_POSITION = (
    "the pipelines have the same description and code: other records were filtered, split or "
    "skipped, because the source returned other data or a step is not deterministic"
)


def _difference(one: LedgerStep, other: LedgerStep) -> str | None:
    if one.batch == other.batch and one.state == other.state:
        return None
    if one.state == other.state:
        return "the elements differ, at the same position"
    where = "" if one.at is None or other.at is None else f", {list(one.at)} and {list(other.at)}"
    both = "the positions differ" if one.batch == other.batch else "elements and positions differ"
    return f"{both}{where}"


def _causes(one: LedgerSection, other: LedgerSection) -> Iterator[str]:
    """Yield how the pipelines and the programs differ."""
    for name in sorted(one.versions.keys() | other.versions.keys()):
        versions = one.versions.get(name, "none"), other.versions.get(name, "none")
        if versions[0] != versions[1]:
            yield f"another version of {name}: {versions[0]} and {versions[1]}"
    yield from _state_causes(one.state, other.state)
    if one.shard != other.shard:
        yield "another shard: " + " and ".join(
            f"{s[0]} of {s[1]}" for s in (one.shard, other.shard)
        )
    labels = [[label for label, _ in some.code] for some in (one, other)]
    if labels[0] == labels[1]:
        for (label, code), (_, other_code) in zip(one.code, other.code, strict=True):
            if code != other_code:
                yield f"other code in {label}"


def _state_causes(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    if one.get("source") != other.get("source"):
        yield f"another source: {one.get('source')} and {other.get('source')}"
    for name, what in (("order", "order"), ("steps", "steps")):
        before, after = one.get(name), other.get(name)
        if before == after or (name == "steps" and one.get("order") != other.get("order")):
            continue
        seeds = [re.findall(r"seed=(\w+)", str(some)) for some in (before, after)]
        without = [re.sub(r"seed=\w+", "", str(some)) for some in (before, after)]
        if without[0] == without[1]:
            yield f"another seed: {', '.join(seeds[0])} and {', '.join(seeds[1])}"
        else:
            yield f"other {what}: {before} and {after}"
    excluded = [excluded_in(some) for some in (one, other)]
    if excluded[0] != excluded[1]:
        counts = [sum(map(len, some.values())) for some in excluded]
        yield f"other excluded records: {counts[0]} and {counts[1]} of them"
