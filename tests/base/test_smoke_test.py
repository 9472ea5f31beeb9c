"""`scripts/smoke_test.py`, which `make wheel` runs on the installed wheel, knows every extra."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_every_extra_for_users_has_a_check():
    script = (
        "import extra_packages, smoke_test\n"
        "print(*smoke_test.CHECKS)\n"
        "print(*{name.replace('_', '-') for name in extra_packages.USER_EXTRAS})"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, cwd=ROOT / "scripts", capture_output=True, text=True, check=True
    ).stdout
    checks, extras = (set(line.split()) for line in done.splitlines())
    assert checks == extras


def test_an_extra_may_be_written_with_an_underscore():
    pytest.importorskip("array_record")
    command = [sys.executable, str(ROOT / "scripts" / "smoke_test.py")]
    done = subprocess.run(
        [*command, "array_record"], capture_output=True, text=True, check=True
    ).stdout
    assert done.splitlines()[-1].startswith("ok: array_record: ")
