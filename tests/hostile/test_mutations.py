"""Mutated files of every format are read as the reference library reads them, or refused.

`make fuzz` runs the same with more inputs: `HOSTILE_INPUTS` is the number for each format, and
`HOSTILE_SEED` selects others.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile.parsers import PARSERS
from tests.hostile.run import judge

NUM_INPUTS = int(os.environ.get("HOSTILE_INPUTS", "150"))
SEED = os.environ.get("HOSTILE_SEED", "0")
MAX_GROWTH_KB = 300_000
"""Memory that reading inputs of a few kilobytes may take; JAX, for one oracle, takes half of it."""

CORPUS = Path(__file__).with_name("corpus")


@pytest.mark.parametrize("name", PARSERS)
def test_mutated_files_are_read_as_by_the_reference_library_or_refused(
    name: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.hostile.run", name, tmp_path, SEED, str(NUM_INPUTS)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stderr[-2000:]}\nThe input is in {tmp_path}."
    results = json.loads(ended.stdout)
    assert results["wrong"] == {}, f"The inputs are in {tmp_path}."
    assert results["equal"] + results["refused"] == NUM_INPUTS
    assert results["refused"], "The mutations damage nothing."
    assert results["grown_kb"] < MAX_GROWTH_KB


@pytest.mark.filterwarnings("ignore")  # of NumPy and Pillow about odd headers
@pytest.mark.parametrize(
    "path", sorted(CORPUS.rglob("*.*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_inputs_that_once_failed_are_read_as_by_the_reference_library_or_refused(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / path.name  # indexes are written beside it
    copy.write_bytes(path.read_bytes())
    assert judge(PARSERS[path.parent.name], copy) in ("equal", "refused")
