"""Run each pipeline on Grain and on gristmill, and print a table of what they deliver.

    python -m clients [NAME ...]

Each program of `clients/programs` runs in new processes: on Grain, and as
`python -m gristmill.as_grain PROGRAM`. Elements, their types and their order must be equal. The
times are the shortest of a few runs, from the creation of the iterator on, so they contain what a
short program pays once. They show whether something is slow: `make bench` measures.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
AS_GRAIN = ("-m", "gristmill.as_grain")
ROUNDS = 2
"""Runs of each program on each package, in turn."""


def run(program: Path, *interpreter: str) -> dict[str, Any]:
    """Return what a program reports, or its error."""
    variables = {
        "JAX_PLATFORMS": "cpu",
        "KERAS_BACKEND": "jax",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONPATH": os.pathsep.join([str(PROGRAMS.parents[1]), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, *interpreter, str(program)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def compare(name: str) -> tuple[str, bool]:
    """Return the line of a program in the table, and whether both deliver the same."""
    program = PROGRAMS / f"{name}.py"
    seconds = {"Grain": math.inf, "gristmill": math.inf}
    checksums: set[str] = set()
    for _ in range(ROUNDS):
        grains, ours = run(program), run(program, *AS_GRAIN)
        for found, package in ((grains, "Grain"), (ours, "gristmill")):
            if "error" in found:
                return f"| {name} | - | - | - | {package}: {found['error']} |", False
            seconds[package] = min(seconds[package], found["seconds"])
            checksums.add(found["checksum"])
    is_same = len(checksums) == 1 and ours["package"] == "gristmill"
    versions = ", ".join(f"{package} {number}" for package, number in ours["versions"].items())
    ratio = f"{seconds['Grain'] / seconds['gristmill']:.1f}x"
    result = "the same" if is_same else f"DIFFERENT ({grains['count']} and {ours['count']})"
    return f"| {name} | {versions} | {ours['count']} | {ratio} | {result} |", is_same


def main(names: list[str]) -> int:
    """Print the table; return 1 if a pipeline delivers something else than on Grain."""
    known = sorted(path.stem for path in PROGRAMS.glob("[a-z]*.py"))
    print("| pipeline | versions | elements | speed against Grain | elements and order |")
    print("|---|---|---|---|---|")
    failed = False
    for name in names or known:
        line, is_same = compare(name)
        print(line, flush=True)
        failed |= not is_same
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
