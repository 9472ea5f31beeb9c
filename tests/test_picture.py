"""Pictures in half blocks: what a terminal would show is the image."""

import io
import re
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._picture import can_show, picture
from gristmill.errors import PlanError

COLOUR = re.compile(r"\x1b\[(38|48);2;(\d+);(\d+);(\d+)m|\x1b\[(0|49)m|(▀)|(\n)")


def shown(text: str) -> list[list[tuple[int, ...] | None]]:
    """Give the pixels that a terminal shows, row by row; `None` where it shows none."""
    rows: list[list[Any]] = [[], []]
    colours: dict[str, tuple[int, ...] | None] = {"38": None, "48": None}
    end = 0
    for found in COLOUR.finditer(text):
        assert found.start() == end, "nothing else is in it"
        end = found.end()
        kind, *rgb, reset, block, line = found.groups()
        if kind:
            colours[kind] = tuple(map(int, rgb))
        elif reset:
            colours["48"] = None
            colours["38"] = None if reset == "0" else colours["38"]
        elif block:
            rows[-2].append(colours["38"])
            rows[-1].append(colours["48"])
        else:
            assert line
            assert colours == {"38": None, "48": None}, "no colour runs into the next line"
            rows += [[], []]
    assert end == len(text)
    assert colours == {"38": None, "48": None}
    return rows if any(rows[-1]) else rows[:-1]


def pixels_of(text: str) -> Any:
    return np.array(shown(text))


IMAGES = hnp.arrays(np.uint8, st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(3)))


@given(image=IMAGES, more=st.integers(0, 3))
def test_an_image_that_fits_is_shown_pixel_by_pixel(image: Any, more: int):
    np.testing.assert_array_equal(pixels_of(picture(image, width=image.shape[1] + more)), image)


@given(image=hnp.arrays(np.uint8, (3, 4)))
def test_shades_are_colours_of_equal_parts(image: Any):
    colours = np.stack([image] * 3, axis=2)
    assert picture(image, width=9) == picture(colours, width=9)
    assert picture(image[:, :, None], width=9) == picture(colours, width=9)


def test_what_is_not_opaque_is_darker():
    image = np.array([[[200, 100, 50, 255], [200, 100, 50, 51], [200, 100, 50, 0]]], np.uint8)
    assert shown(picture(image, width=3)) == [[(200, 100, 50), (40, 20, 10), (0, 0, 0)]]


@given(image=hnp.arrays(np.uint8, (6, 12, 3)))
def test_a_larger_image_is_averaged_over_the_area_of_each_pixel(image: Any):
    means = image.reshape(2, 3, 4, 3, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(pixels_of(picture(image, width=4)), means, atol=0.501)


def test_pixels_that_are_cut_count_by_their_parts():
    image = np.array([[0, 90, 240], [0, 90, 240], [0, 90, 240]], np.uint8)
    assert shown(picture(image, width=2)) == [[(30,) * 3, (190,) * 3]] * 2


@given(
    shade=st.integers(0, 255),
    height=st.integers(1, 60),
    full_width=st.integers(1, 60),
    width=st.integers(1, 40),
)
def test_proportions_are_kept_and_one_shade_stays_that_shade(
    shade: int, height: int, full_width: int, width: int
):
    image = np.full((height, full_width), shade, np.uint8)
    pixels = pixels_of(picture(image, width=width))
    columns = min(width, full_width)
    assert pixels.shape[1] == columns
    assert abs(pixels.shape[0] - height * columns / full_width) <= 0.5 or pixels.shape[0] == 1
    assert set(pixels.ravel().tolist()) == {shade}


def test_a_colour_is_said_once_where_it_does_not_change():
    text = picture(np.full((2, 50), 7, np.uint8), width=50)
    assert text == "\x1b[38;2;7;7;7m\x1b[48;2;7;7;7m" + "▀" * 50 + "\x1b[0m"


@pytest.mark.parametrize(
    ("array", "told"),
    [
        (np.zeros((2, 2)), r"float64\[2, 2\]"),
        (np.zeros(2, np.uint8), r"uint8\[2\]"),
        (np.zeros((2, 2, 2), np.uint8), r"uint8\[2, 2, 2\]"),
        (np.zeros((1, 2, 2, 3), np.uint8), r"uint8\[1, 2, 2, 3\]"),
        (np.zeros((0, 2), np.uint8), r"uint8\[0, 2\]"),
    ],
    ids=["type", "axis", "channels", "axes", "nothing"],
)
def test_what_is_no_image_is_refused(array: Any, told: str):
    with pytest.raises(PlanError, match=rf"^A picture must be of type uint8 .*, got {told}\.$"):
        picture(array, width=10)


def test_a_width_below_one_is_refused():
    with pytest.raises(PlanError, match=r"^`width` must be at least 1, got 0\.$"):
        picture(np.zeros((2, 2), np.uint8), width=0)


class Terminal(io.StringIO):
    def __init__(self, encoding: str | None = "utf-8") -> None:
        super().__init__()
        self.named = encoding

    @property
    def encoding(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.named

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
def test_a_terminal_with_many_colours_shows_pictures(environ: dict[str, str]):
    assert can_show(Terminal(), environ)
    assert not can_show(Terminal(), {**environ, "NO_COLOR": "1"})
    assert not can_show(Terminal("latin-1"), environ)
    assert not can_show(Terminal("nonsense"), environ)
    assert not can_show(Terminal(None), environ)
    assert not can_show(io.StringIO(), environ)


@pytest.mark.parametrize(
    "environ", [{}, {"TERM": "dumb"}, {"TERM": "xterm"}, {"COLORTERM": "16"}], ids=str
)
def test_a_terminal_with_few_colours_does_not(environ: dict[str, str]):
    assert not can_show(Terminal(), environ)
