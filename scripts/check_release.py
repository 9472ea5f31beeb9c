"""Fail unless a version is the package's, has a section in CHANGELOG.md, and is the cited one.

python scripts/check_release.py 0.2.0
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "src/gristmill/_base/version.py": r'^VERSION = "{}"$',
    "CHANGELOG.md": r"^## {}\b",
    "CITATION.cff": r"^version: {}$",
    "packaging/conda/recipe.yaml": r'^  version: "{}"$',
}


def missing_places(version: str) -> list[str]:
    """Return the files that do not have the version."""
    return [
        name
        for name, pattern in PLACES.items()
        if not re.search(
            pattern.format(re.escape(version)),
            (ROOT / name).read_text(encoding="utf-8"),
            re.MULTILINE,
        )
    ]


if __name__ == "__main__":
    if missing := missing_places(sys.argv[1]):
        sys.exit(f"Version {sys.argv[1]} is not in: {', '.join(missing)}.")
    sys.stdout.write(f"Version {sys.argv[1]} is consistent.\n")
