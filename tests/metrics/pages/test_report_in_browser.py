"""Reports in a real browser: they render, fit a phone, follow the color scheme, run no script."""

from pathlib import Path
from typing import Literal

import pytest

import gristmill as gm
from gristmill._metrics.explanation import explain_stats
from gristmill._metrics.pages.report import Report
from gristmill._metrics.stats import Stats
from gristmill._metrics.timeline import StepSpan, Track
from tests.metrics.browser import (
    PHONE_WIDTH,
    needs_browser,
    open_page,
    overflow_of,
    smallest_contrast,
)
from tests.metrics.pages.made_pages import hostile_report, page_of_a_run

pytestmark = needs_browser


@pytest.fixture
def report(tmp_path: Path) -> str:
    page_of_a_run(tmp_path)
    return (tmp_path / "report.html").as_uri()


def test_a_report_renders_without_console_messages(report: str):
    with open_page(report) as page:
        assert page.locator("polyline").count() >= 3  # one more while loaders have workers
        assert page.locator(".tracks rect").count() >= 1
        assert page.locator("h2").all_inner_texts() == [
            "Verdict",
            "Steps",
            "Over time",
            "Threads and workers",
            "Settings and versions",
        ]
        for chart in page.locator(".plot svg").all():
            box = chart.bounding_box()
            assert box is not None
            assert box["width"] > 200
            assert box["height"] > 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(report: str, scheme: Literal["light", "dark"]):
    with open_page(report, scheme=scheme) as page:
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        contrast = smallest_contrast(page)

    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[scheme]
    assert contrast >= 4.5  # what WCAG 2 requires of text


def test_the_page_fits_the_width_of_a_phone(report: str):
    with open_page(report, width=PHONE_WIDTH) as page:
        assert page.evaluate("window.innerWidth") == PHONE_WIDTH
        assert overflow_of(page) <= 0
        # Names of steps are not broken after each letter.
        cell = page.locator("td").first.bounding_box()
        assert cell is not None
        assert cell["width"] > 100
        # The labels of charts are not scaled down with them.
        for label in page.locator(".plot span, .tracks span").all():
            assert label.evaluate("e => parseFloat(getComputedStyle(e).fontSize)") >= 12


def test_a_hostile_string_is_shown_and_not_run(tmp_path: Path):
    path = tmp_path / "hostile.html"
    path.write_text(hostile_report().html(), encoding="utf-8")

    with open_page(path.as_uri()) as page:
        assert page.title() != "taken"
        assert page.locator("script").count() == 0
        assert "<script>" in page.inner_text("body")


def test_a_loader_in_a_notebook_opens_its_report(tmp_path: Path):
    loader = gm.load(range(40), num_epochs=1, batch_size=4, transformations=[abs])
    assert "<iframe" not in loader._repr_html_()  # it has done nothing
    list(loader)
    path = tmp_path / "cell.html"
    path.write_text(f"<!doctype html><body>{loader._repr_html_()}", encoding="utf-8")

    with open_page(path.as_uri()) as page:
        frame = page.frame_locator("iframe")
        assert not frame.locator("h2").first.is_visible()
        page.locator("summary", has_text="Report").click()
        frame.locator("text=Verdict").wait_for()
        assert "Map abs" in frame.locator("ol.steps").inner_text()


def test_threads_can_be_told_apart_on_a_phone(tmp_path: Path):
    names = [f"gristmill-reading-thread-{number}" for number in range(3)]
    spans = [StepSpan(Track("worker 0", one, 1), "Map f", 0.0, 1.0, 1.0, 0.0) for one in names]
    report = Report(title="", explanation=explain_stats(Stats()), spans=spans)
    (tmp_path / "page.html").write_text(report.html(), encoding="utf-8")
    with open_page(f"file://{tmp_path}/page.html", width=PHONE_WIDTH) as page:
        labels = page.locator(".tracks > span")
        assert labels.count() == 3
        assert page.evaluate(
            """[...document.querySelectorAll(".tracks > span")]
            .every(one => one.scrollWidth <= one.clientWidth)"""
        )
        assert overflow_of(page) <= 0
