"""Compare the gains that `explain()` predicts with those that its advice brings.

    python -m benchmarks.predicted_gains                  # 3 s for each setting: two minutes

Each case has a planted bottleneck and a setting. Its verdict must name the bottleneck. The setting
that it recommends is then used, and the measured gain should be within 25% of the prediction. Run
it on a machine that does nothing else. Rates are those after some seconds, when the
number of threads no longer changes.
"""

import argparse
import hashlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import gristmill
from gristmill._metrics.explanation import Change, Explanation, explain_stats

TOLERANCE = 0.25


def wait(number: int) -> int:
    """Wait as a read of a disk or a network does."""
    time.sleep(0.004)
    return number


def compute_in_python(number: int) -> int:
    """Hold the interpreter lock."""
    total = 0
    for value in range(60_000):
        total += value
    return number


_BYTES = np.ones(2**23, np.uint8).tobytes()


def compute_in_native_code(number: int) -> int:
    """Compute without the interpreter lock."""
    hashlib.sha256(_BYTES).digest()  # releases the interpreter lock
    return number


def consume(batch: Any) -> None:
    """Compute as a training step does."""
    end = time.thread_time() + 0.004
    while time.thread_time() < end:
        pass


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pipeline with a planted bottleneck."""

    name: str
    kinds: tuple[str, ...]
    step: Callable[[int], int]
    settings: dict[str, Any]
    consumer: Callable[[Any], None] | None = None


INLINE = {"worker_count": 0, "num_threads": 0}
THREADS = {"worker_count": 0, "num_threads": 2}
WORKER = {"worker_count": 1, "num_threads": 1}
CASES = (
    Case(name="waits, inline", kinds=("waiting",), step=wait, settings=INLINE),
    Case(name="waits, threads", kinds=("waiting",), step=wait, settings=THREADS),
    Case(name="waits, worker", kinds=("waiting",), step=wait, settings=WORKER),
    Case(
        name="waits, inline, and a consumer that computes",
        kinds=("waiting",),
        step=wait,
        settings=INLINE,
        consumer=consume,
    ),
    Case(
        name="Python, inline",
        kinds=("computing",),
        step=compute_in_python,
        settings=INLINE,
    ),
    Case(
        name="Python, threads",
        kinds=("interpreter", "computing"),
        step=compute_in_python,
        settings=THREADS,
    ),
    Case(
        name="Python, worker",
        kinds=("computing",),
        step=compute_in_python,
        settings=WORKER,
    ),
    Case(
        name="native code, inline",
        kinds=("computing",),
        step=compute_in_native_code,
        settings=INLINE,
    ),
    Case(
        name="native code, worker",
        kinds=("computing",),
        step=compute_in_native_code,
        settings=WORKER,
    ),
)


def run(case: Case, settings: dict[str, Any], *, seconds: float) -> tuple[gristmill.Stats, float]:
    """Return what happened in some seconds, after as many to settle, and the batches per second."""
    loader = gristmill.load(
        range(1_000_000),
        num_epochs=None,
        batch_size=4,
        transformations=[case.step],
        worker_count=settings["worker_count"],
        read_options=gristmill.ReadOptions(num_threads=settings["num_threads"]),
    )
    with iter(loader) as batches:
        _take(batches, case, seconds)
        before = batches.stats()
        rate = _take(batches, case, seconds)
        stats = since(before, batches.stats())
    loader.close()
    return stats, rate


def _take(batches: Any, case: Case, seconds: float) -> float:
    """Take batches for some seconds, and return how many per second."""
    started_at, count = time.perf_counter(), 0
    while time.perf_counter() < started_at + seconds:
        batch = next(batches)
        count += 1
        if case.consumer is not None:
            case.consumer(batch)
    return count / (time.perf_counter() - started_at)


def since(before: gristmill.Stats, after: gristmill.Stats) -> gristmill.Stats:
    """Return what happened between two moments, as far as an explanation depends on it."""

    def less(first: Any, second: Any, names: Sequence[str]) -> dict[str, float]:
        return {name: getattr(second, name) - getattr(first, name) for name in names}

    seconds = ("num_records", "elapsed_s", "cpu_s", "waited_s", "interpreter_wait_s", "in_order_s")
    steps = tuple(
        replace(new, **less(old, new, seconds))
        for old, new in zip(before.steps, after.steps, strict=True)
    )
    counts = ("num_blocks", "num_elements", "elapsed_s", "waited_s", "busy_s", "transfer_s")
    return replace(after, steps=steps, **less(before, after, counts))


def advice(explanation: Explanation) -> Change | None:
    """Return the change of a setting that is recommended."""
    return next((one for one in explanation.changes if one.action.startswith("With `")), None)


def changed(settings: dict[str, Any], action: str) -> dict[str, Any]:
    """Return the settings that a change recommends.

    >>> changed(INLINE, "With `worker_count=2`")
    {'worker_count': 2, 'num_threads': 0}
    """
    name, _, value = action.strip("`)").removeprefix("With `").rpartition("=")
    key = "num_threads" if "num_threads" in name else "worker_count"
    return {**settings, key: int(value)}


def check(case: Case, *, seconds: float) -> bool:
    """Run a case and print a line about it; return whether the prediction was right."""
    stats, rate = run(case, case.settings, seconds=seconds)
    explanation = explain_stats(stats)
    kind = explanation.bottleneck.kind if explanation.bottleneck else "nothing"
    change = advice(explanation)
    if change is None:
        print(f"{case.name:45} {kind:12} no advice: {explanation}")
        return False
    _, rate_after = run(case, changed(case.settings, change.action), seconds=seconds)
    gain = rate_after / rate
    is_right = kind in case.kinds and abs(change.speedup / gain - 1) <= TOLERANCE
    print(
        f"{case.name:45} {kind:12} {change.action:55} predicted {change.speedup:5.2f}x, "
        f"measured {gain:5.2f}x: {'ok' if is_right else 'WRONG'}",
        flush=True,
    )
    return is_right


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


def main() -> int:
    """Check all cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0, help="to settle, and to measure")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parsed = parser.parse_args()
    print(f"two processes compute {scaling(1.0):.2f}x as fast as one", flush=True)
    cases = [case for case in CASES if parsed.only in case.name]
    return sum(not check(case, seconds=parsed.seconds) for case in cases)


if __name__ == "__main__":
    sys.exit(main())
