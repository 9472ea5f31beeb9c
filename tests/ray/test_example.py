"""The example prints the same losses on a cluster as without one."""

import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_on_ray.py"


def losses(*arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLE), "--steps", "100", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=110)
    return [line for line in ended.stdout.splitlines() if line.startswith("step")]


def test_the_example_prints_the_same_losses_on_a_cluster(cluster: Any):
    on_cluster = losses("--address", cluster.address)

    assert len(on_cluster) == 2
    assert on_cluster == losses("--workers", "0")
