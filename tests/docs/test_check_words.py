"""The word check finds the words that the glossary replaces, in code and in the prose of pages."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "check_words.py"


def run(path: Path) -> tuple[int, str]:
    command = [sys.executable, str(SCRIPT), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("name", "line"),
    [("a.py", '"""Gives the batch."""'), ("a.py", "blame = 1"), ("a.md", "Start anew.")],
)
def test_a_word_that_the_glossary_replaces_is_found_with_its_line(
    tmp_path: Path, name: str, line: str
):
    path = tmp_path / name
    path.write_text(f"\n{line}\n")

    code, shown = run(path)

    assert code == 1
    assert f"{path}:2: " in shown


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.py", "texts = 1  # words: the name in that library\n"),
        ("a.md", "Call `encode(texts)`.\n\n```python\ntexts = 1\n```\n"),
    ],
)
def test_waivers_and_code_on_pages_are_accepted(tmp_path: Path, name: str, content: str):
    path = tmp_path / name
    path.write_text(content)

    assert run(path) == (0, "")
