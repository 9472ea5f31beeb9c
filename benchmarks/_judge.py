"""Which figure is compared with which."""

from dataclasses import dataclass

from benchmarks._model import Role, Row, Score, Target
from benchmarks._runner import Result

_ROLES = {"limit": Role.LIMIT, "base": Role.BASE}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A target, and what was reached of it."""

    target: Target
    wording: str
    """The target in words."""
    reached: float | None = None
    """None where a figure is missing."""
    met: bool | None = None
    against: str = ""


def speed(result: Result, score: Score) -> float:
    """The median of a contender, turned so that more is faster."""
    return score.speed(result.median(score.metric))


def fastest(
    results: list[Result], score: Score | None, *, role: Role, family: str | None = None
) -> Result | None:
    """The one with the best median, of those that ran; no one in a row that compares nobody."""
    if score is None:
        return None
    able = [result for result in of_kind(results, role, family) if result.usable]
    return max(able, key=lambda result: speed(result, score), default=None)


def of_kind(results: list[Result], role: Role, family: str | None) -> list[Result]:
    """The contenders with that role, of one family or of all."""
    return [
        result
        for result in results
        if result.contender.role is role and family in (None, result.contender.family)
    ]


def judge(row: Row, results: list[Result]) -> list[Verdict]:
    """Every target of the row against what gristmill reached."""
    return [judge_target(row, target, results) for target in row.targets]


def judge_target(row: Row, target: Target, results: list[Result]) -> Verdict:
    """One target; peers that did not run leave it open rather than met."""
    wording, score = row.wording(target), row.score
    ours = fastest(results, score, role=Role.OURS)
    if ours is None or score is None:
        return Verdict(target=target, wording=wording)
    if target.of is None:
        reached = ours.median(score.metric)
        met = reached <= target.times if score.lower_is_better else reached >= target.times
        return Verdict(target=target, wording=wording, reached=reached, met=met)
    role = _ROLES.get(target.of, Role.PEER)
    family = None if target.of in (*_ROLES, "best peer") else target.of
    other = fastest(results, score, role=role, family=family)
    if other is None or not all(result.usable for result in of_kind(results, role, family)):
        return Verdict(target=target, wording=wording)
    reached = speed(ours, score) / speed(other, score)
    return Verdict(
        target=target,
        wording=wording,
        reached=reached,
        met=reached >= target.times,
        against=other.contender.name,
    )
