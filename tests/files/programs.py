"""Run programs that a test needs a process of its own for."""

import os
import subprocess
import sys
from collections.abc import Mapping

from tests.files.servers import PATIENCE_S

AS_NOBODY = """
if os.getuid() == 0:  # root may read everything; nothing is imported from here on
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
"""
"""Give up the rights of whoever runs the tests. Goes after the imports, `os` among them."""


def run(
    script: str, *arguments: object, given: bytes = b"", environ: Mapping[str, str] | None = None
) -> bytes:
    """Run a program to its end; give what it writes. It must not complain, not even at its end."""
    done = subprocess.run(
        [*command(script), *map(str, arguments)],
        input=given,
        capture_output=True,
        timeout=3 * PATIENCE_S,
        env={**os.environ, **(environ or {})},
        check=False,
    )
    assert done.stderr == b"", done.stderr.decode()
    assert done.returncode == 0
    return done.stdout


def command(script: str) -> list[str]:
    """Give the command that runs a program in which each warning is an error."""
    return [sys.executable, "-W", "error", "-W", "always::ResourceWarning", "-c", script]
