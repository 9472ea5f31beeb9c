"""Images, values and columns as they are shown."""

import io
import tracemalloc
import zlib

import numpy as np
import pytest
from PIL import Image

from gristmill._data.statistics.histogram import histogram_of
from gristmill._views.columns import join_bins, spark_line
from gristmill._views.columns_html import histogram_svg
from gristmill._views.elements import ElementView
from gristmill._views.pixels import image_of, scale_down
from gristmill._views.png import encode_png, image_tag


def test_a_png_has_the_pixels():
    rgb = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)

    with Image.open(io.BytesIO(encode_png(rgb))) as opened:
        assert np.array_equal(np.asarray(opened), rgb)


@pytest.mark.parametrize("shape", [(9, 8), (9, 8, 1), (9, 8, 3), (9, 8, 4)])
def test_arrays_of_pixels_are_images(shape: tuple[int, ...]):
    image = image_of(np.zeros(shape, np.uint8))
    assert image is not None
    assert image.pixels.shape == shape


@pytest.mark.parametrize("shape", [(9,), (7, 20), (9, 8, 2), (3, 9, 9, 3), (9, 0)])
def test_other_arrays_are_not(shape: tuple[int, ...]):
    assert image_of(np.zeros(shape, np.uint8)) is None
    assert image_of(np.zeros(shape, np.float32)) is None


def test_floats_between_0_and_1_are_shown_as_they_are():
    image = image_of(np.full((8, 8), 0.5))
    assert image is not None
    assert set(image.pixels.ravel().tolist()) == {128}
    assert image.note == ""


def test_other_floats_are_scaled_and_it_is_reported():
    array = np.linspace(-2, 3, 64).reshape(8, 8)
    array[0, 1] = np.nan

    image = image_of(array)

    assert image is not None
    assert (image.pixels.min(), image.pixels.max()) == (0, 255)
    assert image.note == "shown with -2 as black and 3 as white"


def test_an_array_without_finite_numbers_is_no_image():
    assert image_of(np.full((8, 8), np.nan)) is None


def test_a_damaged_file_is_no_image():
    stream = io.BytesIO()
    Image.new("RGB", (20, 20)).save(stream, "PNG")
    assert image_of(stream.getvalue()[:44]) is None
    assert image_of(b"\x89PNG\r\n\x1a\n") is None


def test_a_small_file_that_claims_a_huge_image_is_not_decoded():
    header = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"
    data = b"\x89PNG\r\n\x1a\n" + (13).to_bytes(4, "big") + header
    assert image_of(data + zlib.crc32(header).to_bytes(4, "big")) is None


def test_images_are_scaled_in_proportion():
    assert scale_down(np.zeros((30, 60, 3), np.uint8), width=20).shape == (10, 20, 3)
    assert scale_down(np.zeros((3, 2, 3), np.uint8), width=20).shape == (3, 2, 3)


def test_a_large_image_is_scaled_down_in_little_memory():
    large = np.broadcast_to(np.array([10, 20, 30], np.uint8), (6000, 8000, 3))

    tracemalloc.start()
    scaled = scale_down(large, width=40)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert scaled.shape == (30, 40, 3)
    assert scaled.reshape(-1, 3).min(axis=0).tolist() == [10, 20, 30]
    assert peak < 10 * 10**6  # of the 576 MB that a copy in 32 bits takes


def test_a_tag_names_the_size():
    assert 'alt="60 x 30 pixels"' in image_tag(np.zeros((30, 60), np.uint8), width=20)


def test_a_card_escapes_names_and_values():
    card = ElementView(title="<i>", element={"<b>\x1b": "<script>\x1b[2J"}, decode=None).html()
    assert "<script" not in card
    assert "\x1b" not in card


def test_bars_are_joined_and_none_is_lost():
    histogram = histogram_of(np.arange(31.0))

    joined = join_bins(histogram, max_bins=4, is_whole=True)

    assert joined.counts.tolist() == [8, 8, 8, 7]
    assert join_bins(histogram_of(np.arange(4.0)), max_bins=32, is_whole=True).counts.sum() == 4
    assert len(spark_line(histogram, width=8)) == 8


def test_a_chart_has_no_bar_for_an_empty_bin():
    assert histogram_svg(histogram_of(np.array([0.0, 31.0]))).count("<rect") == 2
