"""The troubleshooting page quotes messages that gristmill has."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
BY_MESSAGE = PAGE.split("## By message")[1].split("## By what you see")[0]
PHRASES = [
    phrase.strip()
    for line in re.findall(r"(?m)^(`.+)\n: ", BY_MESSAGE)
    for phrase in re.findall(r"``(.+?) ``|`([^`]+)`", line)
    for phrase in phrase
    if phrase
]


def _strings() -> list[str]:
    """Return the constant parts of all strings of the package but the docstrings."""
    found: list[str] = []
    for path in (ROOT / "src" / "gristmill").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        found += [
            node.value
            for node in nodes
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ]
    return found


STRINGS = _strings()


def test_the_page_quotes_messages():
    assert len(PHRASES) > 20


@pytest.mark.parametrize("phrase", PHRASES)
def test_a_quoted_message_exists(phrase: str):
    assert any(phrase in string for string in STRINGS)
