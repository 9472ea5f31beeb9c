"""Every Python block of the README and the docs runs, one after the other as a reader would."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import gristmill

ROOT = Path(__file__).parents[2]
MADE = re.compile(r"docs/(_build|reference|command_line|contributing|security|changelog|code_of)")
"""Pages that `make docs` makes from docstrings, the command line and files at the root."""
PAGES = sorted(
    name
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("**/*.md")]
    if not MADE.match(name := str(page.relative_to(ROOT)))
    and "```python" in page.read_text(encoding="utf-8")
)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_there_are_pages_with_programs():
    assert "README.md" in PAGES
    assert "docs/columns.md" in PAGES


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    monkeypatch.chdir(tmp_path)  # some write files
    if page == "docs/how_to/s3.md":
        request.getfixturevalue("bucket")
    if page == "docs/coming_from/webdataset.md":
        request.getfixturevalue("files_left_open")
    names: dict[str, object] = {}
    try:
        for program in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")):
            exec(compile(program, page, "exec"), names)
    finally:
        names.clear()  # an iterator's thread holds its functions, and those all of these names


TEXT_PAGES = sorted(
    name
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("**/*.md")]
    if not MADE.match(name := str(page.relative_to(ROOT)))
)


@pytest.mark.parametrize("page", TEXT_PAGES)
def test_links_to_files_and_headings_lead_somewhere(page: str):
    source = ROOT / page
    text = re.sub(r"^```.*?^```", "", source.read_text(encoding="utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^) ]+)\)", text):
        path, _, anchor = target.partition("#")
        if target.startswith(("http:", "https:", "mailto:")) or MADE.match(f"docs/{path}"):
            continue
        linked = source.parent / path if path else source
        assert linked.exists(), target
        if anchor:
            assert anchor in _anchors(linked), target


def _anchors(page: Path) -> set[str]:
    """Return the anchors of the headings of a page, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, flags=re.M)
    words = [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", one).replace(" ", "-") for one in words}


CALLS_IN_TABLES = sorted(
    {
        (str(page.relative_to(ROOT)), code)
        for page in (ROOT / "docs" / "coming_from").glob("*.md")
        for line in page.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
        for code in re.findall(r"`(grain\.[\w.]+\([^`]*\))`", line)
        if "..." not in code
    }
)


@pytest.mark.parametrize(("page", "code"), CALLS_IN_TABLES)
def test_the_calls_in_tables_have_arguments_that_fit(page: str, code: str):
    calls = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    for call in calls:
        name = ast.unparse(call.func)
        if not re.fullmatch(r"grain(\.\w+)+", name):
            continue
        function = eval(name, {"grain": gristmill})
        keywords = {one.arg: None for one in call.keywords if one.arg is not None}
        inspect.signature(function).bind(*([None] * len(call.args)), **keywords)
