"""The page about a run: what it contains, and what it never contains."""

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill._metrics.history import Sample
from gristmill._metrics.pages.charts import rates, step_chart, waiting_shares
from tests.metrics.pages.made_pages import HOSTILE, hostile_report, page_of_a_run


class Elements(HTMLParser):
    """Collects the tags of a page, and checks that they are closed in order."""

    VOID = frozenset({"meta", "line", "polygon", "polyline", "br"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(page)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self._open.pop() == tag


def test_the_page_shows_the_verdict_the_steps_and_the_settings(tmp_path: Path):
    page = page_of_a_run(tmp_path)

    for shown in ("Verdict", "Map slow", "Elements per second", "worker_count", gm.__version__):
        assert shown in page


def test_the_page_is_complete_in_itself(tmp_path: Path):
    elements = Elements(page_of_a_run(tmp_path)).tags

    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in elements}
    for _, attributes in elements:
        assert not {"src", "href", "onload"} & set(attributes)


def test_strings_from_data_are_escaped():
    page = hostile_report().html()

    Elements(page)
    assert HOSTILE not in page
    assert "<script" not in page
    assert "\x1b" not in page
    assert page.count("&lt;script&gt;") >= 3


def test_skipped_records_are_listed(tmp_path: Path):
    def decode(number: int) -> int:
        if number == 3:
            raise ValueError("not <b>an image")
        return number

    loader = gm.DataLoader(
        data_source=range(6),
        sampler=gm.IndexSampler(6, num_epochs=1, seed=0),
        operations=[decode],
        on_error=gm.SkipErrors(2),
    )
    with iter(loader) as iterator:
        assert len(list(iterator)) == 5
        iterator.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()

    assert "Skipped records: 1" in page
    assert "ValueError: not &lt;b&gt;an image" in page


@pytest.mark.parametrize(
    "make",
    [
        lambda: gm.load(range(8), num_epochs=1, batch_size=2),
        lambda: iter(gm.MapDataset.range(8).batch(2)),
        lambda: gm.feed(gm.load(np.arange(8), num_epochs=1, batch_size=2)),
    ],
    ids=["loader", "dataset iterator", "feed"],
)
def test_loaders_iterators_and_feeds_have_reports(make: Any, tmp_path: Path):
    made = make()
    list(made)
    made.report(tmp_path / "report.html")

    assert "4 elements" in (tmp_path / "report.html").read_text()


def test_a_report_before_the_first_element(tmp_path: Path):
    gm.load(range(4), num_epochs=1).report(tmp_path / "report.html")

    assert "Nothing was measured yet" in (tmp_path / "report.html").read_text()


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("text")
    loader = gm.load(range(4), num_epochs=1)

    with pytest.raises(gm.errors.PlanError, match=r"The report '.*file/report.html' cannot be w"):
        loader.report(file / "report.html")
    with pytest.raises(gm.errors.PlanError, match="cannot be written: Is a directory"):
        loader.report(tmp_path)
    with pytest.raises(gm.errors.PlanError, match="cannot be written: Is a directory"):
        loader.report("/")
    assert os.listdir(tmp_path) == ["file"]


def test_a_chart_of_too_few_points_reports_that():
    assert "Too short to show" in step_chart("Rate", [(0.0, 1.0)], label=str)


def test_a_chart_of_zeros_is_drawn():
    assert "polyline" in step_chart("Rate", [(1.0, 0.0), (2.0, 0.0)], label=str)


def test_samples_of_the_same_moment_are_left_out():
    history = [Sample(1.0, 1, 0.5, 0), Sample(1.0, 2, 0.5, 0)]
    assert rates(history) == waiting_shares(history) == []
