"""Run every contender in processes of its own, round after round, and keep all figures."""

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
_QUIET = {  # for every contender alike
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
}


@dataclass(kw_only=True)
class Result:
    """What a contender did over all rounds."""

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
    tell: Callable[[str], None],
) -> dict[str, list[Result]]:
    """Run the rows, one after the other.

    Within a row the contenders take turns, and each round begins with another one, so that a
    machine that grows slower does so for all. The first round also verifies every byte.
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
                tell(f"{row.name}, round {number + 1} of {num_rounds}: {result.contender.name}")
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
    """One contender, once, in a fresh process; nothing that it started is left."""
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as folder:
        answer, errors = Path(folder) / "answer.json", Path(folder) / "stderr"
        command = [sys.executable, "-m", "benchmarks._child"]
        command.append(json.dumps({**request, "answer": str(answer)}))
        with errors.open("wb") as stderr:  # a pipe would wait for workers that outlive the process
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
            return {"error": f"No answer within {timeout_s:.0f} s."}
        finally:
            end_group(process)
        if not answer.exists():
            text = errors.read_text(errors="replace")
            return {"error": f"Ended with code {code}.\n{text[-2000:]}"}
        return json.loads(answer.read_text())


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End the process and the workers it left, so that they do not run beside the next one.

    Not at once by force: whoever tracks their shared memory is to give it back first.
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
    """Take a process's answer into the contender's result."""
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
