"""Images rendered as half blocks: a terminal shows the pixels of the image."""

import io
import re
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._views.terminal_image import render_image, supports_images
from gristmill.errors import PlanError

COLOR_CODE = re.compile(r"\x1b\[(38|48);2;(\d+);(\d+);(\d+)m|\x1b\[(0|49)m|(▀)|(\n)")


def displayed(output: str) -> list[list[tuple[int, ...] | None]]:
    """Return the pixels that a terminal displays, row by row; `None` where there is none."""
    rows: list[list[Any]] = [[], []]
    colors: dict[str, tuple[int, ...] | None] = {"38": None, "48": None}
    end = 0
    for found in COLOR_CODE.finditer(output):
        assert found.start() == end, "unexpected characters"
        end = found.end()
        kind, *rgb, reset, block, line = found.groups()
        if kind:
            colors[kind] = tuple(map(int, rgb))
        elif reset:
            colors["48"] = None
            colors["38"] = None if reset == "0" else colors["38"]
        elif block:
            rows[-2].append(colors["38"])
            rows[-1].append(colors["48"])
        else:
            assert line
            assert colors == {"38": None, "48": None}, "a color continues on the next line"
            rows += [[], []]
    assert end == len(output)
    assert colors == {"38": None, "48": None}
    return rows if any(rows[-1]) else rows[:-1]


def pixels_of(output: str) -> Any:
    return np.array(displayed(output))


IMAGES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3)))


@given(image=IMAGES, more=st.integers(0, 3))
def test_an_image_that_fits_is_rendered_pixel_by_pixel(image: Any, more: int):
    pixels = pixels_of(render_image(image, width=image.shape[1] + more))
    np.testing.assert_array_equal(pixels, image)


@given(image=hnp.arrays(np.uint8, (3, 4)))
def test_grayscale_is_rgb_with_equal_channels(image: Any):
    colors = np.stack([image] * 3, axis=2)
    assert render_image(image, width=9) == render_image(colors, width=9)
    assert render_image(image[:, :, None], width=9) == render_image(colors, width=9)


def test_transparent_pixels_are_darker():
    image = np.array([[[200, 100, 50, 255], [200, 100, 50, 51], [200, 100, 50, 0]]], np.uint8)
    assert displayed(render_image(image, width=3)) == [[(200, 100, 50), (40, 20, 10), (0, 0, 0)]]


@given(image=hnp.arrays(np.uint8, (6, 12, 3)))
def test_a_larger_image_is_averaged_over_the_area_of_each_pixel(image: Any):
    means = image.reshape(2, 3, 4, 3, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(pixels_of(render_image(image, width=4)), means, atol=0.501)


def test_pixels_that_are_split_count_by_their_overlap():
    image = np.array([[0, 90, 240], [0, 90, 240], [0, 90, 240]], np.uint8)
    assert displayed(render_image(image, width=2)) == [[(30,) * 3, (190,) * 3]] * 2


@given(
    shade=st.integers(0, 255),
    height=st.integers(1, 60),
    full_width=st.integers(1, 60),
    width=st.integers(1, 40),
)
def test_proportions_are_kept_and_a_uniform_image_stays_uniform(
    shade: int, height: int, full_width: int, width: int
):
    image = np.full((height, full_width), shade, np.uint8)
    pixels = pixels_of(render_image(image, width=width))
    columns = min(width, full_width)
    assert pixels.shape[1] == columns
    assert abs(pixels.shape[0] - height * columns / full_width) <= 0.5 or pixels.shape[0] == 1
    assert set(pixels.ravel().tolist()) == {shade}


def test_a_color_code_is_written_only_where_the_color_changes():
    output = render_image(np.full((2, 50), 7, np.uint8), width=50)
    assert output == "\x1b[38;2;7;7;7m\x1b[48;2;7;7;7m" + "▀" * 50 + "\x1b[0m"


@pytest.mark.parametrize(
    ("array", "described"),
    [
        (np.zeros((2, 2)), r"float64\[2, 2\]"),
        (np.zeros(2, np.uint8), r"uint8\[2\]"),
        (np.zeros((2, 2, 2), np.uint8), r"uint8\[2, 2, 2\]"),
        (np.zeros((1, 2, 2, 3), np.uint8), r"uint8\[1, 2, 2, 3\]"),
        (np.zeros((0, 2), np.uint8), r"uint8\[0, 2\]"),
    ],
    ids=["dtype", "one axis", "channels", "four axes", "empty"],
)
def test_an_array_that_is_not_an_image_is_refused(array: Any, described: str):
    with pytest.raises(PlanError, match=rf"^An image must have dtype uint8 .*, got {described}\.$"):
        render_image(array, width=10)


def test_a_width_below_one_is_refused():
    with pytest.raises(PlanError, match=r"^`width` must be at least 1, got 0\.$"):
        render_image(np.zeros((2, 2), np.uint8), width=0)


class Terminal(io.StringIO):
    def __init__(self, encoding: str | None = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._encoding

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    "environ",
    [
        {"COLORTERM": "truecolor"},
        {"COLORTERM": "24bit", "TERM": "screen"},
        {"TERM": "xterm-256color"},
        {"TERM": "xterm-direct", "NO_COLOR": ""},
    ],
    ids=str,
)
def test_a_terminal_with_many_colors_shows_images(environ: dict[str, str]):
    assert supports_images(Terminal(), environ)
    assert not supports_images(Terminal(), {**environ, "NO_COLOR": "1"})
    assert not supports_images(Terminal("latin-1"), environ)
    assert not supports_images(Terminal("no-such-encoding"), environ)
    assert not supports_images(Terminal(None), environ)
    assert not supports_images(io.StringIO(), environ)


@pytest.mark.parametrize(
    "environ", [{}, {"TERM": "dumb"}, {"TERM": "xterm"}, {"COLORTERM": "16"}], ids=str
)
def test_a_terminal_with_few_colors_does_not_show_images(environ: dict[str, str]):
    assert not supports_images(Terminal(), environ)
