"""Assemble CHANGELOG.md from the news fragments in changes/.

    python scripts/changelog.py                    print the section of the next release
    python scripts/changelog.py --release 0.2.0    add it to CHANGELOG.md, and delete the fragments

A fragment is a file `changes/ISSUE.KIND.md`; KIND is feature, fix or removal. A line is an entry,
a sentence to the user. One file per issue, so that parallel work rarely edits the same lines.
"""

import argparse
import datetime
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
KINDS = {"feature": "Added", "fix": "Fixed", "removal": "Removed"}
NAME = re.compile(rf"(\d+)\.({'|'.join(KINDS)})\.md")


def main(arguments: list[str]) -> int:
    """Print or write the section; return 1 if a fragment has a wrong name."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--release", metavar="VERSION", help="write the section to CHANGELOG.md")
    given = parser.parse_args(arguments)
    files = sorted((ROOT / "changes").glob("*.md"), key=lambda file: (len(file.name), file.name))
    wrong = [file.name for file in files if not NAME.fullmatch(file.name)]
    if wrong:
        sys.stderr.write(f"Not ISSUE.KIND.md with KIND in {', '.join(KINDS)}: {wrong}\n")
        return 1
    if given.release is None:
        sys.stdout.write(section("Unreleased", files))
        return 0
    changelog = ROOT / "CHANGELOG.md"
    title, _, older = changelog.read_text(encoding="utf-8").partition("\n## ")
    date = datetime.datetime.now(tz=datetime.UTC).date()
    newest = section(f"{given.release} ({date})", files)
    older = f"\n## {older}" if older else ""
    changelog.write_text(f"{title.rstrip()}\n\n{newest}{older}", encoding="utf-8")
    for file in files:
        file.unlink()
    return 0


def section(heading: str, files: list[Path]) -> str:
    """Return the Markdown of one release."""
    lines = [f"## {heading}"]
    for kind, title in KINDS.items():
        entries = [
            entry.strip()
            for file in files
            if file.name.endswith(f".{kind}.md")
            for entry in file.read_text(encoding="utf-8").splitlines()
            if entry.strip()
        ]
        if entries:
            lines += ["", f"### {title}", "", *(f"- {entry}" for entry in entries)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
