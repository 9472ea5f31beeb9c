"""Compare the figures of a row with its targets."""

from dataclasses import dataclass

from benchmarks._model import Role, Row, Score, Target
from benchmarks._runner import Result

_ROLES = {"limit": Role.LIMIT, "base": Role.BASE}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A target, and the figure that gristmill reached."""

    target: Target
    wording: str
    """A description of the target."""
    reached: float | None = None
    """None if a figure is missing."""
    met: bool | None = None
    against: str = ""


def speed(result: Result, score: Score) -> float:
    """Return the median of a contender, as a number that is larger if it is faster."""
    return score.speed(result.median(score.metric))


def fastest(
    results: list[Result], score: Score | None, *, role: Role, family: str | None = None
) -> Result | None:
    """Return the contender with the best median, or None if none ran or the row has no score."""
    if score is None:
        return None
    able = [result for result in of_kind(results, role, family) if result.usable]
    return max(able, key=lambda result: speed(result, score), default=None)


def of_kind(results: list[Result], role: Role, family: str | None) -> list[Result]:
    """Return the contenders with a role, of one family or of all."""
    return [
        result
        for result in results
        if result.contender.role is role and family in (None, result.contender.family)
    ]


def judge(row: Row, results: list[Result]) -> list[Verdict]:
    """Return the verdict on every target of the row."""
    return [judge_target(row, target, results) for target in row.targets]


def _others(of: str, results: list[Result]) -> list[Result]:
    """Return the contenders that a target compares with: one by its name, or all of a kind."""
    named = [result for result in results if result.contender.name == of]
    family = None if of in (*_ROLES, "best peer") else of
    return named or of_kind(results, _ROLES.get(of, Role.PEER), family)


def _all_usable(results: list[Result]) -> bool:
    return bool(results) and all(result.usable for result in results)


def judge_target(row: Row, target: Target, results: list[Result]) -> Verdict:
    """Return the verdict on one target. It is open if a contender did not run."""
    wording, score = row.wording(target), row.score
    ours = fastest(results, score, role=Role.OURS)
    if ours is None or score is None:
        return Verdict(target=target, wording=wording)
    if target.of is None:
        reached = ours.median(score.metric)
        met = reached <= target.times if score.lower_is_better else reached >= target.times
        return Verdict(target=target, wording=wording, reached=reached, met=met)
    others = _others(target.of, results)
    other = max(others, key=lambda result: speed(result, score)) if _all_usable(others) else None
    if other is None:
        return Verdict(target=target, wording=wording)
    reached = speed(ours, score) / speed(other, score)
    return Verdict(
        target=target,
        wording=wording,
        reached=reached,
        met=reached >= target.times,
        against=other.contender.name,
    )
