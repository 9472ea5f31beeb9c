"""Which figure is compared with which."""

from dataclasses import dataclass

from benchmarks._model import Role, Row, Target
from benchmarks._runner import Result

RATE = "records_per_s"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A target, and what was reached of it."""

    target: Target
    reached: float | None
    """None where a figure is missing."""
    against: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.reached is None else self.reached >= self.target.times


def fastest(results: list[Result], *, role: Role, family: str | None = None) -> Result | None:
    """The one with the highest median, of those that ran."""
    able = [
        result
        for result in results
        if result.usable
        and result.contender.role is role
        and (family is None or result.contender.family == family)
    ]
    return max(able, key=lambda result: result.median(RATE), default=None)


def judge(row: Row, results: list[Result]) -> list[Verdict]:
    """Every target of the row against what gristmill reached."""
    return [judge_target(target, results) for target in row.targets]


def judge_target(target: Target, results: list[Result]) -> Verdict:
    """One target; peers that did not run leave it open rather than met."""
    ours = fastest(results, role=Role.OURS)
    if ours is None:
        return Verdict(target=target, reached=None)
    if target.of is None:
        return Verdict(target=target, reached=ours.median(RATE))
    if target.of == "limit":
        other = fastest(results, role=Role.LIMIT)
        rivals = [result for result in results if result.contender.role is Role.LIMIT]
    else:
        family = None if target.of == "best peer" else target.of
        other = fastest(results, role=Role.PEER, family=family)
        rivals = [
            result
            for result in results
            if result.contender.role is Role.PEER and family in (None, result.contender.family)
        ]
    if other is None or not all(result.usable for result in rivals):
        return Verdict(target=target, reached=None)
    reached = ours.median(RATE) / other.median(RATE)
    return Verdict(target=target, reached=reached, against=other.contender.name)
