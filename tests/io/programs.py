"""Run programs in separate processes."""

import os
import subprocess
import sys
from collections.abc import Mapping

from tests.time_limits import PATIENCE_S

DROP_PRIVILEGES = """
if os.getuid() == 0:  # root may read everything; nothing can be imported after this
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
"""Code that drops the privileges of root. Insert it after all imports, including `os`."""


def run(
    script: str, *arguments: object, stdin: bytes = b"", environ: Mapping[str, str] | None = None
) -> bytes:
    """Run a program and return its output. It must write nothing to stderr, even at exit."""
    done = subprocess.run(
        [*command(script), *map(str, arguments)],
        input=stdin,
        capture_output=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(environ or {})},
        check=False,
    )
    assert done.stderr == b"", done.stderr.decode()
    assert done.returncode == 0
    return done.stdout


def command(script: str) -> list[str]:
    """Return the command that runs a program with warnings as errors."""
    return [sys.executable, "-W", "error", "-W", "always::ResourceWarning", "-c", script]
