"""Pages in a real browser: Chromium, driven by Playwright."""

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed: run make browser"
)

PHONE_WIDTH = 390


@contextmanager
def open_page(
    url: str, *, scheme: Literal["light", "dark"] = "light", width: int = 900
) -> Generator[Page]:
    """Open a page. Anything that it writes to the console, and any error, fails the test."""
    messages: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(
            color_scheme=scheme, viewport={"width": width, "height": 800}, device_scale_factor=1
        )
        page.on("console", lambda message: messages.append(message.text))
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(url)
        yield page
        browser.close()
    assert messages == []


def overflow_of(page: Page) -> int:
    """Return by how many pixels the page is wider than the window."""
    return page.evaluate("document.documentElement.scrollWidth - window.innerWidth")


def smallest_contrast(page: Page) -> float:
    """Return the smallest contrast of text and background, as WCAG 2 defines it."""
    pairs = page.evaluate(
        """() => [...document.querySelectorAll("h1, h2, p, b, td, th, span, div, svg text")]
        .filter(one => [...one.childNodes].some(node => node.nodeType == 3 && node.data.trim()))
        .map(one => {
            const style = getComputedStyle(one);
            let back = "rgba(0, 0, 0, 0)";
            for (let at = one; at && /, 0\\)$/.test(back); at = at.parentElement)
                back = getComputedStyle(at).backgroundColor;
            return [one instanceof SVGElement ? style.fill : style.color, back];
        })"""
    )
    assert pairs
    return min(_contrast(text, back) for text, back in pairs)


def _contrast(first: str, second: str) -> float:
    bright, dark = sorted([_luminance(first), _luminance(second)], reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(color: str) -> float:
    channels = np.array([float(one) for one in color[color.index("(") + 1 : -1].split(",")[:3]])
    share = channels / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
