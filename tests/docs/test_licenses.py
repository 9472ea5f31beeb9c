"""The page of licenses lists what the extras install."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_has_the_table_of_the_installed_packages():
    script = [sys.executable, str(ROOT / "scripts" / "licenses.py")]
    table = subprocess.run(script, capture_output=True, text=True, check=True).stdout
    page = (ROOT / "docs" / "licenses.md").read_text(encoding="utf-8")
    assert table in page, "update docs/licenses.md with the output of scripts/licenses.py"
