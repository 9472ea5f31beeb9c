"""Compare the automatic choice of threads and workers with every fixed one, on several workloads.

    python -m benchmarks.tuner_matrix                       # 10 s for each setting: 15 minutes
    python -m benchmarks.tuner_matrix --seconds 3 --only columns --only bursts

Each setting of each workload runs in a new process, repeated until the time has passed. CPU time is
that of all its processes. The automatic choice should reach 0.9 of the elements per second of the
best fixed setting, with at most 1.1 of its CPU time per element. The default runs in one process,
so it is compared with the settings without workers; `worker_count=None` with all of them.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks._processes import descendants
from benchmarks._tuner_workloads import WORKLOADS, open_workload

MIN_SPEED, MAX_CPU = 0.9, 1.1
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The options of a run. `num_threads=None` leaves the choice to gristmill."""

    name: str
    num_threads: int | None = None
    worker_count: int | None = 0

    @property
    def is_automatic(self) -> bool:
        return self.num_threads is None and self.worker_count in (0, None)


SETTINGS = (
    Setting(name="default"),
    Setting(name="worker_count=None", worker_count=None),
    *(Setting(name=f"num_threads={count}", num_threads=count) for count in (0, 1, 4, 16)),
    *(Setting(name=f"worker_count={count}", worker_count=count, num_threads=0) for count in (1, 2)),
)
"""`num_threads=0` is also what `worker_count=0` means for a fixed choice."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one process has measured."""

    elements_per_s: float
    cpu_s_per_element: float


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """An automatic setting compared with the best fixed one of the same workload."""

    setting: str
    best: str
    speed: float
    """Elements per second, relative to the best."""
    cpu: float
    """CPU time per element, relative to the best."""

    @property
    def met(self) -> bool:
        return self.speed >= MIN_SPEED and self.cpu <= MAX_CPU


def judge(runs: dict[str, Run]) -> list[Verdict]:
    """Compare each automatic setting with the fastest fixed one that it could have chosen."""
    settings = [setting for setting in SETTINGS if setting.name in runs]
    verdicts: list[Verdict] = []
    for automatic in settings:
        if not automatic.is_automatic:
            continue
        fixed = [
            setting
            for setting in settings
            if not setting.is_automatic and automatic.worker_count in (None, setting.worker_count)
        ]
        best = max(fixed, key=lambda setting: runs[setting.name].elements_per_s)
        run, best_run = runs[automatic.name], runs[best.name]
        verdicts.append(
            Verdict(
                setting=automatic.name,
                best=best.name,
                speed=run.elements_per_s / best_run.elements_per_s,
                cpu=run.cpu_s_per_element / max(best_run.cpu_s_per_element, 1e-12),
            )
        )
    return verdicts


def measure(workload: str, setting: Setting, seconds: float, folder: Path) -> Run:
    """Run a workload in this process: epoch after epoch of one loader, from its first `iter`."""
    loader, consume = open_workload(
        workload, folder, num_threads=setting.num_threads, worker_count=setting.worker_count
    )
    count = 0
    cpu_before = cpu_seconds()
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds:
        for element in loader:
            count += consume(element)
            if time.perf_counter() > begin + seconds:
                break
    elapsed = time.perf_counter() - begin
    cpu_s = cpu_seconds() - cpu_before
    return Run(elements_per_s=count / elapsed, cpu_s_per_element=cpu_s / max(1, count))


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its living descendants."""
    total = 0.0
    for pid in (os.getpid(), *descendants(os.getpid())):
        try:
            fields = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        total += (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
    return total


def run_child(workload: str, setting: Setting, seconds: float) -> Run:
    """Measure in a new process."""
    request = {"workload": workload, "setting": asdict(setting), "seconds": seconds}
    with tempfile.TemporaryDirectory(prefix="gristmill-matrix-") as folder:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "benchmarks.tuner_matrix", "--child"),
                json.dumps({**request, "folder": folder}),
            ],
            capture_output=True,
            text=True,
            timeout=60 + 5 * seconds,
            check=True,
        )
    return Run(**json.loads(done.stdout.splitlines()[-1]))


def table(workload: str, runs: dict[str, Run]) -> str:
    """Return the runs of a workload as Markdown, with the verdicts on the automatic settings."""
    best = max(run.elements_per_s for run in runs.values())
    lines = [
        f"**{workload}**: {WORKLOADS[workload]}",
        "",
        "| setting | elements/s | vs best | CPU us/element |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {name} | {run.elements_per_s:,.0f} | {run.elements_per_s / best:.2f}x | "
        f"{run.cpu_s_per_element * 1e6:,.1f} |"
        for name, run in runs.items()
    ]
    lines.append("")
    lines += [
        f"- {verdict.setting}: {verdict.speed:.2f} of the speed of {verdict.best} and "
        f"{verdict.cpu:.2f} of its CPU time, {'met' if verdict.met else 'NOT MET'}."
        for verdict in judge(runs)
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the matrix. Return 1 if an automatic setting misses its target."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tuner_matrix", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(WORKLOADS), metavar="WORKLOAD")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each run (default 10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        request: Any = json.loads(options.child)
        setting, folder = Setting(**request["setting"]), Path(request["folder"])
        run = measure(request["workload"], setting, request["seconds"], folder)
        print(json.dumps(asdict(run)), flush=True)
        os._exit(0)  # does not wait for the threads of a loader that was stopped within an epoch
    found: dict[str, dict[str, Run]] = {}
    for workload in options.only or WORKLOADS:
        found[workload] = {
            setting.name: run_child(workload, setting, options.seconds) for setting in SETTINGS
        }
        print(table(workload, found[workload]), flush=True)
    if options.json:
        plain = {name: {k: asdict(run) for k, run in runs.items()} for name, runs in found.items()}
        options.json.write_text(json.dumps(plain, indent=2))
    return 0 if all(verdict.met for runs in found.values() for verdict in judge(runs)) else 1


if __name__ == "__main__":
    sys.exit(main())
