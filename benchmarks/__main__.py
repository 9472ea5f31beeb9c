"""`python -m benchmarks`: run the selected rows and print the tables."""

import argparse
import datetime
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import _corpus, _files, _jpeg, _mnist, _tfds_mnist
from benchmarks._judge import judge
from benchmarks._model import Row
from benchmarks._report import INSTALL, failures, markdown, missing
from benchmarks._runner import Result, run_rows
from benchmarks.rows import ROWS

ROOT = Path(__file__).parents[1]


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure gristmill and other data loaders on this machine.",
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=list(ROWS),
        metavar="ROW",
        help=f"one of {', '.join(ROWS)}; may be repeated",
    )
    parser.add_argument("--rounds", type=int, help="rounds per row (default 5; 1 with --quick)")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="check that everything runs; the figures are not meaningful",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every figure to FILE")
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        help="the folder of MNIST's four idx files (default: the packaged sample, repeated)",
    )
    parser.add_argument("--markdown", action="store_true", help="print Markdown for the README")
    options = parser.parse_args(arguments)
    if options.rounds is None:
        options.rounds = 1 if options.quick else 5
    if options.rounds < 1:
        parser.error(f"`--rounds` must be at least 1, got {options.rounds}.")
    return options


def print_message(message: str) -> None:
    """Print a message that is not part of the tables."""
    sys.stderr.write(message + "\n")


def print_progress(message: str) -> None:
    """Print what runs now. In a terminal, it replaces the previous message."""
    sys.stderr.write(f"\r\x1b[K{message}" if sys.stderr.isatty() else message + "\n")
    sys.stderr.flush()


def machine() -> dict[str, Any]:
    """Return the properties of this machine that the figures depend on."""
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cpus": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9),
        "load_at_start": os.getloadavg()[0],
        "commit": commit(),
    }


def processor() -> str:
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def commit() -> str:
    """Return the commit that is measured, with a mark if files have changed since."""
    command = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def versions(results: list[Result]) -> dict[str, str]:
    """Return the version of every package that ran."""
    return {result.contender.package: result.version for result in results if result.version}


def prepare(rows: Sequence[Row], mnist: Path | None, folder: Path) -> dict[str, str]:
    """Write the data of the rows to `folder`, and return the origin of each kind of data."""
    needed = {row.data for row in rows}
    origins: dict[str, str] = {}
    if needed & {"mnist", "tfds"}:
        origins["MNIST"] = _mnist.prepare(mnist, folder)
    if "tfds" in needed:
        origins["TFDS"] = _tfds_mnist.prepare(folder)
    if "jpeg" in needed:
        origins["JPEG"] = _jpeg.prepare(folder)
    if "records" in needed:
        origins["Records"] = _files.prepare_records(folder)
    if "corpus" in needed:
        origins["Corpus"] = _corpus.prepare(folder)
    if "table" in needed:
        origins["Table"] = _files.prepare_table(folder)
    return origins


def document(
    host: dict[str, Any],
    options: argparse.Namespace,
    origins: dict[str, str],
    results: dict[str, list[Result]],
) -> dict[str, Any]:
    """Return every figure of the run, for `--json`."""
    everything = [result for row in results.values() for result in row]
    return {
        "machine": host,
        "rounds": options.rounds,
        "quick": options.quick,
        "data": origins,
        "versions": versions(everything),
        "rows": {
            name: {
                "results": [asdict(result) for result in found],
                "targets": [
                    {"target": verdict.wording, "reached": verdict.reached, "met": verdict.met}
                    for verdict in judge(ROWS[name], found)
                ],
            }
            for name, found in results.items()
        },
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks. Return 1 if a contender failed or delivered wrong content."""
    options = parse(arguments)
    rows = [ROWS[name] for name in ROWS if not options.only or name in options.only]
    host = machine()
    if host["load_at_start"] > 0.5:
        print_message(
            f"The load average is {host['load_at_start']:.1f}: the machine is busy, and the "
            "figures will be low."
        )
    with tempfile.TemporaryDirectory(prefix="gristmill-bench-") as folder:
        try:
            origins = prepare(rows, options.data, Path(folder))
        except ModuleNotFoundError as error:
            print_message(f"The data cannot be created: {error}. Run: {INSTALL}")
            return 2
        except ValueError as error:
            print_message(f"The images cannot be read: {error}")
            return 2
        results = run_rows(
            rows,
            data=Path(folder),
            num_rounds=options.rounds,
            max_seconds=1.0 if options.quick else 5.0,
            report=print_progress,
        )
    if sys.stderr.isatty():
        print_progress("")
    everything = [result for found in results.values() for result in found]
    if options.markdown or importlib.util.find_spec("rich") is None:
        sys.stdout.write(markdown(rows, results) + "\n")
    else:
        terminal = importlib.import_module("benchmarks._terminal")
        terminal.show(rows, results)
    packages = ", ".join(f"{name} {version}" for name, version in versions(everything).items())
    about = (
        f"Python {host['python']}, {host['cpus']} CPUs ({host['processor']}), {host['platform']}; "
        f"commit {host['commit']}; {packages}."
    )
    sys.stdout.write(
        f"\n{about}\nMedians of {options.rounds} rounds, each in a new process."
        f"{''.join(f' {name}: {origin}.' for name, origin in origins.items())}"
        f"{' QUICK RUN: do not publish.' if options.quick else ''}\n"
    )
    for message in (*failures(everything), missing(everything)):
        if message:
            print_message(message)
    if options.json:
        options.json.write_text(json.dumps(document(host, options, origins, results), indent=2))
    return 1 if any(result.error for result in everything) else 0


if __name__ == "__main__":
    sys.exit(main())
