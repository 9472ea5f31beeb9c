"""The published page and charts show what the stored results contain, losses included."""

import re
import xml.etree.ElementTree as ET

import pytest

from benchmarks._model import RECORDS_PER_S, Role
from benchmarks._runner import Result
from benchmarks.publish import (
    RESULTS,
    ROOT,
    TABLE_ROWS,
    THEMES,
    best_of_families,
    draw,
    page,
    read_documents,
    read_results,
    readme_table,
    with_code,
    with_table,
)
from benchmarks.rows import ROWS

ROW = ROWS["mnist_in_order"]
RUN = {
    "machine": {
        "date": "2026-01-01 00:00 UTC", "python": "3.11", "platform": "Linux", "cpus": 2,
        "load_at_start": 0.1, "processor": "CPU", "memory_gb": 8, "commit": "abc1234",
    },
    "rounds": 1,
    "versions": {"numpy": "2"},
}  # fmt: skip


@pytest.fixture(params=[False, True], ids=["ahead", "behind"])
def is_behind(request: pytest.FixtureRequest) -> bool:
    return request.param


@pytest.fixture
def results(is_behind: bool) -> list[Result]:
    ours = 50.0 if is_behind else 1000.0
    return [
        Result(
            contender=contender,
            rounds=[{RECORDS_PER_S.metric: ours if contender.role is Role.OURS else 100.0}],
            complete=True,
            records=10,
        )
        for contender in ROW.contenders
    ]


def test_the_page_names_targets_that_are_missed(results: list[Result], is_behind: bool):
    text = page({ROW.name: results}, {ROW.name: RUN}, [])
    missed = text.split("## Targets that are not met")[1].split("## `")[0]
    assert ("NOT MET" in missed) == is_behind
    assert ("None." in missed) == (not is_behind)
    assert ("as fast as gristmill" in text) == is_behind
    assert "2026-01-01 00:00 UTC; 1 round; load at the start 0.1" in text


def test_a_chart_has_a_bar_for_each_family(results: list[Result], is_behind: bool):
    shares = best_of_families(ROW.name, results)
    assert shares["gristmill"] == 1.0
    assert shares["Grain"] == (2.0 if is_behind else 0.1)
    for theme in THEMES:
        root = ET.fromstring(draw({"MNIST <1>": shares}, theme))
        bars = root.findall("{http://www.w3.org/2000/svg}rect")
        assert len(bars) == len(shares)


def test_the_table_of_the_readme_shows_the_fastest_in_bold(results: list[Result], is_behind: bool):
    lines = readme_table({ROW.name: results}).splitlines()
    label = TABLE_ROWS[ROW.name]
    (line,) = [line for line in lines if line.startswith(f"| {label} |")]
    assert line.endswith("| 50 |" if is_behind else "| **1k** |")
    assert ("**100**" in line) == is_behind


def test_rows_that_are_not_compared_have_no_chart():
    row = next(row for row in ROWS.values() if row.score is None)
    result = Result(contender=row.contenders[0], rounds=[dict.fromkeys(row.metrics, 1.0)])
    assert best_of_families(row.name, [result]) == {}


def test_special_methods_are_code_in_names_of_contenders():
    assert with_code("PyTorch, __getitems__") == "PyTorch, `__getitems__`"
    rows, runs = read_results(RESULTS)
    assert not re.search(r"[^`]__\w+__", page(rows, runs, read_documents(RESULTS)))


def test_the_published_page_and_table_are_those_of_the_stored_results():
    rows, runs = read_results(RESULTS)
    assert set(TABLE_ROWS) <= set(rows)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert with_table(readme, readme_table(rows)) == readme
    shown = (ROOT / "docs" / "benchmarks_results.md").read_text(encoding="utf-8")
    assert page(rows, runs, read_documents(RESULTS)) == shown
