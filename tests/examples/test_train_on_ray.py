"""The example on Ray prints the losses that it prints without it."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_on_ray.py"


def test_the_example_trains_without_ray():
    command = [sys.executable, str(EXAMPLE), "--workers", "0", "--steps", "50"]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)

    assert ended.stdout.startswith("step   50  loss ")
