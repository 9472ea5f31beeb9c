"""Pages about data in a real browser: they render, fit a phone, and run nothing of the data."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

import gristmill as gm
from gristmill import experimental
from gristmill._cli.element_page import element_page
from gristmill._cli.main import main
from tests.metrics.browser import (
    PHONE_WIDTH,
    needs_browser,
    open_page,
    overflow_of,
    smallest_contrast,
)

pytestmark = needs_browser

SEGMENTS = (300, 200, 5, 7)
"""The lengths of two documents, of a short one, and of the padding of the first row."""

HOSTILE = '"><script>document.title="taken"</script><img src=x onerror=alert(1)>\x1b[2J'


def preview_page(folder: Path) -> Path:
    """Write a preview of packed rows, with decoded tokens that are hostile."""
    documents = [{"tokens": np.full(n, n)} for n in SEGMENTS[:3]]
    packed = experimental.FirstFitPackIterDataset(
        gm.MapDataset.source(documents).to_iter_dataset(),
        length_struct={"tokens": 512},
        num_packing_bins=1,
    )
    packed.batch(1).repeat(2).preview(decode=lambda _: HOSTILE).save(folder / "page.html")
    return folder / "page.html"


def images_page(folder: Path) -> Path:
    """Write a preview of images."""
    images = [{"image": np.full((40, 300, 3), 20 * n, np.uint8), "x": HOSTILE} for n in range(9)]
    gm.load(images, num_epochs=1).preview(9).save(folder / "page.html")
    return folder / "page.html"


def inspected_page(folder: Path) -> Path:
    """Write a page about columns with hostile names and values."""
    np.savez(folder / "a.npz", x=np.arange(50), image=np.zeros((50, 9, 9), np.uint8))
    (folder / "a.csv").write_text(
        "".join(f'{n},"{HOSTILE.replace(chr(34), chr(34) * 2)}"\n' for n in ("n", *range(40)))
    )
    main(["inspect", str(folder / "a.csv"), "--all", "--html", str(folder / "page.html")])
    return folder / "page.html"


def replayed_page(folder: Path) -> Path:
    """Write a page about a batch with images, long rows and hostile values."""
    records = [
        {"image": np.full((40, 300, 3), n, np.uint8), "tokens": np.arange(400)} for n in range(16)
    ]
    batches = iter(gm.load(records, num_epochs=1, batch_size=8))
    batch = {**next(batches), "note": [HOSTILE] * 8}
    (folder / "page.html").write_text(element_page(HOSTILE, batch, batches.provenance()))
    return folder / "page.html"


PAGES = pytest.mark.parametrize("make", [preview_page, images_page, inspected_page, replayed_page])


@PAGES
def test_a_page_renders_and_runs_nothing_of_the_data(make: Any, tmp_path: Path):
    with open_page(make(tmp_path).as_uri()) as page:
        assert page.title().startswith("gristmill")
        assert page.locator("script").count() == 0
        assert page.locator(".card, tr").count() >= 2
        assert "<script>" in page.inner_text("body")
        for image in page.locator("img").all():
            assert image.evaluate("one => one.naturalWidth") > 0  # it was decoded


@PAGES
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_in_light_and_dark(
    make: Any, scheme: Literal["light", "dark"], tmp_path: Path
):
    with open_page(make(tmp_path).as_uri(), scheme=scheme) as page:
        assert smallest_contrast(page) >= 4.5  # what WCAG 2 requires of text


@PAGES
def test_a_page_fits_the_width_of_a_phone(make: Any, tmp_path: Path):
    with open_page(make(tmp_path).as_uri(), width=PHONE_WIDTH) as page:
        assert overflow_of(page) <= 0


def test_segments_of_packed_rows_are_as_wide_as_their_documents(tmp_path: Path):
    with open_page(preview_page(tmp_path).as_uri()) as page:
        widths: list[float] = []
        for segment in page.locator(".row").first.locator("span").all():
            box = segment.bounding_box()
            assert box is not None
            widths.append(box["width"])

    tokens = np.array([int(number) for number in SEGMENTS])
    assert np.abs(np.array(widths) / sum(widths) - tokens / tokens.sum()).max() < 0.03
