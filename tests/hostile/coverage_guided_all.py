"""Run `coverage_guided` for each format, in a process of its own: `make fuzz`.

python -m tests.hostile.coverage_guided_all COUNT
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.hostile.parsers import PARSERS


def main() -> None:
    """Fuzz all formats; end with status 1 if an input of one is read wrongly."""
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write("There is no atheris for this Python: no search guided by coverage.\n")
        return
    root = Path(tempfile.mkdtemp(prefix="gristmill-fuzz-"))
    environment = {**os.environ, "XDG_CACHE_HOME": str(root / "cache")}
    failed: list[str] = []
    for name in PARSERS:
        command = [sys.executable, "-m", "tests.hostile.coverage_guided", name, str(root / name)]
        options = [f"-runs={sys.argv[1]}", "-verbosity=0", "-rss_limit_mb=0"]
        if subprocess.run([*command, *options], env=environment, check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"Wrong: {', '.join(failed)}. The inputs are in {root}.")


if __name__ == "__main__":
    main()
