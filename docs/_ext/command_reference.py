"""Write the page of the command line from the help of each command."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gristmill._cli.main import COMMANDS


def write_page(path: Path) -> None:
    """Write what `gristmill --help` and `gristmill COMMAND --help` print."""
    parts = [
        "# The `gristmill` command",
        "",
        "`python -m gristmill` is the same as `gristmill`. This page is made from the help of the",
        "commands.",
        "",
        _help_block(),
    ]
    for name in COMMANDS:
        parts += ["", f"## `gristmill {name}`", "", _help_block(name)]
    content = "\n".join(parts) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != content:
        path.write_text(content, encoding="utf-8")


def _help_block(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "gristmill", *command, "--help"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "88", "NO_COLOR": "1"},
    )
    return f"```text\n{done.stdout.rstrip().replace('__main__.py', 'gristmill')}\n```"


def setup(app: Any) -> dict[str, bool]:
    """Write the page before Sphinx looks for it."""
    write_page(Path(app.srcdir) / "command_line.md")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
