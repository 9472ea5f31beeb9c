"""Print the table of docs/licenses.md: what each extra installs, and under which license."""

import re
import sys
from importlib.metadata import metadata

from extra_packages import PROJECT, USER_EXTRAS


def rows() -> list[str]:
    """Return a line for each package that gristmill or an extra for users names."""
    extras: dict[str, list[str]] = {}
    for requirement in PROJECT["dependencies"]:
        extras.setdefault(_name(requirement), []).append("always")
    for extra, requirements in USER_EXTRAS.items():
        for requirement in requirements:
            if _name(requirement) != "gristmill":
                extras.setdefault(_name(requirement), []).append(f"`{extra}`")
    return [
        f"| {name} | {license_of(name)} | {', '.join(extras[name])} |" for name in sorted(extras)
    ]


def license_of(package: str) -> str:
    """Return the license that an installed package declares.

    >>> license_of("numpy").split(" AND ")[0]
    'BSD-3-Clause'
    """
    declared = metadata(package)
    classifiers = [
        value.rpartition(" :: ")[2]
        for value in declared.get_all("Classifier") or []
        if value.startswith("License :: ") and value != "License :: OSI Approved"
    ]
    short = (declared["License-Expression"] or "").strip() or ", ".join(classifiers)
    return short or (declared["License"] or "not declared").strip().split("\n")[0]


def _name(requirement: str) -> str:
    return re.split(r"[\s<>=!;\[]", requirement)[0].replace("_", "-").lower()


if __name__ == "__main__":
    sys.stdout.write(
        "\n".join(["| package | license | installed by |", "|---|---|---|", *rows(), ""])
    )
