"""Print what an extra of gristmill installs: `python scripts/extra_packages.py demo`."""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
PROJECT = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
NOT_FOR_USERS = {"examples", "test", "docs", "fuzz", "release", "bench"}
USER_EXTRAS = {
    name: requirements
    for name, requirements in PROJECT["optional-dependencies"].items()
    if name not in NOT_FOR_USERS
}


def packages_of(extra: str) -> list[str]:
    """Return the names of the packages of an extra, and of the extras that it refers to.

    >>> packages_of("demo")
    ['cloudpickle', 'jax', 'numpy', 'rich']
    """
    names, extras = set[str](), [extra]
    requirements = list(PROJECT["dependencies"])
    while extras:
        requirements += PROJECT["optional-dependencies"].get(extras.pop(), [])
        for requirement in requirements:
            if match := re.match(r"gristmill\[([\w,-]+)\]", requirement):
                extras += match[1].split(",")
            else:
                names.add(re.split(r"[\s<>=!~;\[]", requirement)[0])
        requirements = []
    return sorted(names, key=str.lower)


if __name__ == "__main__":
    sys.stdout.write(", ".join(packages_of(sys.argv[1])) + "\n")
