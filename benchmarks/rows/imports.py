"""The time that a new interpreter takes to import gristmill, and to print its help."""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks._model import Contender, Measurement, Role, Row, Score, Settings, Target, contender

NUM_STARTS = 7


def measure(
    program: Callable[..., Any], contender: Contender, settings: Settings, *, beyond: Sequence[str]
) -> Measurement:
    """Measure interpreters that run a command, minus those that run `beyond`, in turn."""
    command = program()
    run_seconds(command)  # writes the bytecode
    pairs = [(run_seconds(command), run_seconds(beyond)) for _ in range(NUM_STARTS)]
    seconds = statistics.median(run - other for run, other in pairs)
    return Measurement(metrics={"ms": seconds * 1e3}, records=NUM_STARTS, complete=True)


def run_seconds(arguments: Sequence[str]) -> float:
    """Return the time of an interpreter, which may write bytecode."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - begin


def _row(
    name: str, title: str, program: str, beyond: Sequence[str], target_ms: float | None = None
) -> Row:
    return Row(
        name=name,
        title=title,
        note=f"Medians of {NUM_STARTS} new interpreters with bytecode.",
        measure=partial(measure, beyond=beyond),
        contenders=(contender("gristmill", "default", Role.OURS, "gristmill", program),),
        targets=() if target_ms is None else (Target(times=target_ms),),
        score=Score(metric="ms", unit="ms", lower_is_better=True),
        metrics={"ms": "ms"},
    )


NUMPY = ("-c", "import numpy")

ROWS = (
    _row("import", "import gristmill, beyond NumPy", "gristmill_start:imports", NUMPY, 80),
    _row(
        "import_loader",
        "from gristmill import DataLoader, beyond NumPy",
        "gristmill_start:imports_loader",
        NUMPY,
    ),
    _row(
        "help",
        "python -m gristmill --help, beyond an empty program",
        "gristmill_start:prints_help",
        ("-c", ""),
        150,
    ),
)
