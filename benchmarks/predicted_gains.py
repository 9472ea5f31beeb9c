"""Compare the gains that `explain()` predicts with those that its advice brings.

    python -m benchmarks.predicted_gains                  # 3 s for each setting: four minutes
    python -m benchmarks.predicted_gains --json benchmarks/results/predicted_gains.json

Each case has a planted bottleneck and a setting. Its verdict must name the bottleneck. The change
that it recommends is then made, and the measured gain should be within 25% of the prediction. If it
recommends none, another setting should gain less than that. Run it on a machine that does nothing
else. Rates are those after some seconds, when the number of threads no longer changes.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import gristmill as gm
from benchmarks.__main__ import machine
from benchmarks._gain_cases import CASES, Case, Setting, consume
from gristmill._metrics.explanation import Change, explain_stats
from gristmill._metrics.stats import StepStats

TOLERANCE = 0.25
FEWER_BYTES = "With half as many bytes"


@dataclass(frozen=True, kw_only=True)
class Gain:
    """What was predicted for a case, and what was measured."""

    name: str
    kind: str
    """The bottleneck that was named."""
    is_named: bool
    """Whether it is the planted one."""
    action: str
    """The change that was recommended, or measured in its absence."""
    predicted: float
    measured: float

    @property
    def is_met(self) -> bool:
        """Whether the bottleneck is right, and the gain within the bound."""
        return self.is_named and abs(self.predicted / self.measured - 1) <= TOLERANCE

    @property
    def verdict(self) -> str:
        """Whether the bound is met, in words."""
        return "met" if self.is_met else "NOT MET" + ("" if self.is_named else " (bottleneck)")

    def __str__(self) -> str:
        return (
            f"{self.name:45} {self.kind:12} {self.action:62} predicted {self.predicted:5.2f}x, "
            f"measured {self.measured:5.2f}x: {self.verdict}"
        )


def run(case: Case, setting: Setting, *, seconds: float) -> tuple[gm.Stats, float]:
    """Return what happened in some seconds, after as many to settle, and the batches per second."""
    with case.open(setting) as batches:
        _take(batches, case, seconds)
        before = batches.stats()
        rate = _take(batches, case, seconds)
        return since(before, batches.stats()), rate


def _take(batches: Any, case: Case, seconds: float) -> float:
    """Take batches for some seconds, and return how many per second."""
    started_at, count = time.perf_counter(), 0
    while time.perf_counter() < started_at + seconds:
        next(batches)
        count += 1
        if case.consumer_s:
            consume(case.consumer_s)
    return count / (time.perf_counter() - started_at)


_SUMS = (
    *("num_elements", "output_bytes", "elapsed_s", "waited_s", "first_wait_s", "consumer_cpu_s"),
    *("busy_s", "transfer_s", "place_s", "host_wait_s", "num_blocks", "num_positions"),
)
"""The fields of statistics that an explanation depends on and that increase."""


def since(before: gm.Stats, after: gm.Stats) -> gm.Stats:
    """Return what happened between two moments, as far as an explanation depends on it."""

    def less(first: Any, second: Any, names: Sequence[str]) -> dict[str, Any]:
        return {name: getattr(second, name) - getattr(first, name) for name in names}

    of_steps = [field.name for field in fields(StepStats) if field.name != "name"]
    steps = tuple(
        replace(new, **less(old, new, of_steps))
        for old, new in zip(before.steps, after.steps, strict=True)
    )
    return replace(after, steps=steps, **less(before, after, _SUMS))


def changed(setting: Setting, change: Change) -> Setting:
    """Return the setting that a change recommends.

    >>> changed(Setting(), Change(action="With `worker_count=2`", speedup=2.0, limit=""))
    Setting(worker_count=2, num_threads=0, size=1.0)
    """
    if change.action.startswith(FEWER_BYTES):
        return replace(setting, size=0.5 * setting.size)
    (name, value), *_ = re.findall(r"(num_threads|num_workers|worker_count)=(\d+)", change.action)
    if name == "num_threads":
        return replace(setting, num_threads=int(value))
    return replace(setting, worker_count=int(value))


def check(case: Case, *, seconds: float) -> Gain:
    """Run a case before and after the change that is recommended."""
    stats, rate = run(case, case.setting, seconds=seconds)
    explanation = explain_stats(stats, is_dataset=case.is_dataset)
    kind = explanation.bottleneck.kind if explanation.bottleneck else "nothing"
    change = next(
        (one for one in explanation.changes if one.action.startswith(("With `", FEWER_BYTES))), None
    )
    if case.alternative is not None and (change is None or change.action.startswith(FEWER_BYTES)):
        other, predicted, action = case.alternative, 1.0, f"nothing, and not {case.alternative}"
    elif change is not None:
        other, predicted, action = changed(case.setting, change), change.speedup, change.action
    else:
        other, predicted, action = case.setting, 1.0, "nothing"
    _, rate_after = run(case, other, seconds=seconds)
    measured = rate_after / rate
    if other in (case.alternative, case.setting):  # what is slower is rightly not recommended
        measured = max(1.0, measured)
    return Gain(
        name=case.name,
        kind=kind,
        is_named=kind in case.kinds,
        action=action,
        predicted=predicted,
        measured=measured,
    )


def scaling(seconds: float) -> float:
    """Return how much faster two processes compute than one: less than 2 if cores share a unit."""

    def rate(num_processes: int) -> float:
        program = (
            "import time; end = time.time() + " + str(seconds) + "; count = 0\n"
            "while time.time() < end: count += sum(range(1000)) > 0\nprint(count)"
        )
        several = [
            subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
            for _ in range(num_processes)
        ]
        return sum(int(one.communicate()[0]) for one in several)

    return rate(2) / rate(1)


def document(gains: Sequence[Gain], *, host: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Return all results, as `benchmarks.publish` reads them."""
    return {
        "machine": host,
        "seconds": seconds,
        "versions": _versions(),
        "rows": {},
        "gains": [{**asdict(gain), "verdict": gain.verdict} for gain in gains],
    }


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in ("gristmill", "numpy", "jax"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all cases; return 1 if a prediction is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predicted_gains")
    parser.add_argument("--seconds", type=float, default=3.0, help="to settle, and to measure")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    parsed = parser.parse_args(arguments)
    host = machine()
    print(f"load {host['load_at_start']:.1f}; two processes compute {scaling(1.0):.2f}x as fast")
    gains: list[Gain] = []
    for case in CASES:
        if parsed.only in case.name:
            gains.append(check(case, seconds=parsed.seconds))
            print(gains[-1], flush=True)
    print(f"{sum(gain.is_met for gain in gains)} of {len(gains)} within {TOLERANCE:.0%}")
    if parsed.json:
        parsed.json.write_text(json.dumps(document(gains, host=host, seconds=parsed.seconds)))
    return 0 if all(gain.is_met for gain in gains) else 1


if __name__ == "__main__":
    sys.exit(main())
