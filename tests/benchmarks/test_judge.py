"""Targets compare gristmill with the contenders that they name."""

import pytest

from benchmarks._judge import judge
from benchmarks._model import Contender, Role, Row, Target, contender
from benchmarks._runner import Result

CONTENDERS = (
    contender("Grain", "default threads", Role.PEER, "grain", "grain:packing"),
    contender("Grain", "num_threads=0", Role.PEER, "grain", "grain:packing"),
    contender("gristmill", "default", Role.OURS, "gristmill", "gristmill:packing"),
)


def row(of: str) -> Row:
    return Row(
        name="row",
        title="A row",
        measure=lambda *_: (_ for _ in ()).throw(AssertionError),
        contenders=CONTENDERS,
        targets=(Target(times=50, of=of),),
    )


def result(one: Contender, rate: float | None) -> Result:
    rounds = [] if rate is None else [{"records_per_s": rate}]
    return Result(contender=one, rounds=rounds)


@pytest.mark.parametrize(
    ("of", "reached", "met"),
    [
        ("Grain, default threads", 100, True),
        ("Grain, num_threads=0", 20, False),
        ("Grain", 20, False),
        ("best peer", 20, False),
    ],
)
def test_a_target_names_one_contender_or_the_fastest_of_several(of: str, reached: float, met: bool):
    results = [result(*pair) for pair in zip(CONTENDERS, (1, 5, 100), strict=True)]

    (verdict,) = judge(row(of), results)

    assert (verdict.reached, verdict.met) == (reached, met)
    assert verdict.wording == f"50x {of}"


@pytest.mark.parametrize(("of", "is_open"), [("Grain", True), ("Grain, default threads", False)])
def test_a_target_is_open_if_a_contender_that_it_compares_with_did_not_run(of: str, is_open: bool):
    results = [result(*pair) for pair in zip(CONTENDERS, (1, None, 100), strict=True)]

    (verdict,) = judge(row(of), results)

    assert (verdict.reached is None) == is_open
