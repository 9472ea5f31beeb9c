"""Run a program of a client of Grain in an interpreter of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
AS_GRAIN = ("-m", "gristmill.as_grain")


def run(name: str, *arguments: str, interpreter: tuple[str, ...] = (), **variables: str) -> Any:
    """Return what a program prints last, as JSON.

    Args:
        name: The program, in `tests/clients/programs`, or its absolute path.
        *arguments: Its arguments.
        interpreter: Arguments of Python before the program, such as `AS_GRAIN`.
        **variables: Environment variables.
    """
    done = subprocess.run(
        [sys.executable, *interpreter, str(PROGRAMS / name), *arguments],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3", **variables},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
