"""Run every contender in its own processes, in several rounds, and collect all figures."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks._model import Contender, Row

_ROOT = Path(__file__).parents[1]
_QUIET = {  # the same for every contender
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


@dataclass(kw_only=True)
class Result:
    """The results of a contender in all rounds."""

    contender: Contender
    rounds: list[dict[str, float]] = field(default_factory=list[dict[str, float]])
    records: int = 0
    complete: bool = True
    fingerprint: int | None = None
    version: str = ""
    missing: str = ""
    """The package that is not installed."""
    error: str = ""

    @property
    def usable(self) -> bool:
        return bool(self.rounds) and not self.missing and not self.error

    def median(self, metric: str) -> float:
        return median(values[metric] for values in self.rounds)

    def spread(self, metric: str) -> tuple[float, float]:
        figures = [values[metric] for values in self.rounds]
        return min(figures), max(figures)


def run_rows(
    rows: Iterable[Row],
    *,
    data: Path,
    num_rounds: int,
    max_seconds: float,
    report: Callable[[str], None],
) -> dict[str, list[Result]]:
    """Run the rows, one after the other.

    Each round of a row runs all contenders, and starts with another one, so that a machine that
    becomes slower affects all of them. The first round also compares every byte.
    """
    results: dict[str, list[Result]] = {}
    for row in rows:
        found = [Result(contender=contender) for contender in row.contenders]
        for number in range(num_rounds):
            order = [(number + step) % len(found) for step in range(len(found))]
            for index in order:
                result = found[index]
                if result.missing or result.error:
                    continue
                report(f"{row.name}, round {number + 1} of {num_rounds}: {result.contender.name}")
                request = {
                    "row": row.name,
                    "contender": index,
                    "data": str(data),
                    "max_seconds": max_seconds,
                    "verify": number == 0,
                }
                add(result, run_child(request, timeout_s=120 + 10 * max_seconds))
        results[row.name] = found
    return results


def run_child(request: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
    """Run one contender once in a new process, and end all processes that it started."""
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as folder:
        answer, errors = Path(folder) / "answer.json", Path(folder) / "stderr"
        command = [sys.executable, "-m", "benchmarks._child"]
        command.append(json.dumps({**request, "answer": str(answer)}))
        with errors.open("wb") as stderr:  # a pipe would wait for workers that still run
            process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env={**os.environ, **_QUIET},
                stdin=subprocess.DEVNULL,
                stdout=stderr,
                stderr=stderr,
                start_new_session=True,
            )
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return {"error": f"There was no answer within {timeout_s:.0f} s."}
        finally:
            end_group(process)
        if not answer.exists():
            output = errors.read_text(errors="replace")
            return {"error": f"The process ended with code {code}.\n{output[-2000:]}"}
        return json.loads(answer.read_text())


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and its remaining workers, so that they do not slow down the next one.

    They get SIGTERM first, so that the process that tracks their shared memory can release it.
    """
    with suppress(ProcessLookupError):
        process.kill()
        process.wait()
        os.killpg(process.pid, signal.SIGTERM)
        deadline = time.monotonic() + 5
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)  # raises as soon as the group is empty
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)


def add(result: Result, answer: dict[str, Any]) -> None:
    """Add the answer of a process to the result of its contender."""
    if "missing" in answer:
        result.missing = answer["missing"]
    elif "error" in answer:
        result.error = answer["error"]
    else:
        measurement = answer["measurement"]
        result.rounds.append(measurement["metrics"])
        result.records = measurement["records"]
        result.complete = result.complete and measurement["complete"]
        result.fingerprint = measurement["fingerprint"]
        result.version = answer["version"]
