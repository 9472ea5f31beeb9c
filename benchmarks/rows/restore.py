"""Resume from a state, at an early step and at one far into the run."""

import json
import statistics
import time
from collections.abc import Callable
from typing import Any

from benchmarks._check import ContentError
from benchmarks._model import Contender, Measurement, Role, Row, Score, Settings, Target, contender

NUM_RECORDS = 10**6
REPEATS = 30
NEAR, FAR = 10, 10**9


def measure(program: Callable[..., Any], contender: Contender, settings: Settings) -> Measurement:
    """Measure `get_state`, and the time from the creation of an iterator to its next element."""
    start, go_to = program(NUM_RECORDS)
    iterator = iter(start())
    go_to(iterator, contender.arguments["step"])
    get_state_s: list[float] = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        state = iterator.get_state()
        get_state_s.append(time.perf_counter() - begin)
    json_state = json.dumps(state)
    expected = next(iterator)

    restore_s: list[float] = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        other = iter(start())
        other.set_state(json.loads(json_state))
        element = next(other)
        restore_s.append(time.perf_counter() - begin)
        if element != expected:
            raise ContentError(f"Expected {expected} after the state, got {element}.")
    return Measurement(
        metrics={
            "restore_ms": statistics.median(restore_s) * 1e3,
            "get_state_us": statistics.median(get_state_s) * 1e6,
            "state_bytes": len(json_state),
        },
        records=REPEATS,
        complete=True,
    )


ROW = Row(
    name="restore",
    title="Resume from a state: a million records, shuffled in each epoch, repeated indefinitely",
    note="From the creation of the iterator to the next element. It must not depend on the step.",
    measure=measure,
    contenders=(
        contender("Grain", "step 10", Role.PEER, "grain", "grain:endless", step=NEAR),
        contender("Grain", "step 10^9", Role.PEER, "grain", "grain:endless", step=FAR),
        contender("gristmill", "step 10", Role.BASE, "gristmill", "gristmill:endless", step=NEAR),
        contender("gristmill", "step 10^9", Role.OURS, "gristmill", "gristmill:endless", step=FAR),
    ),
    targets=(Target(times=0.8, of="base"),),
    score=Score(metric="restore_ms", unit="ms", lower_is_better=True),
    metrics={
        "restore_ms": "restore, ms",
        "get_state_us": "get_state, us",
        "state_bytes": "state, bytes",
    },
)
