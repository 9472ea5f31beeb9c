"""JPEG files are decoded to the pixels that Pillow returns, or left to it."""

import io
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._data.transforms import image, jpeg
from gristmill._data.transforms.image import DecodeImage
from gristmill._data.transforms.jpeg import decode_jpeg, scale_factor


def make_jpeg(mode: str, height: int, width: int, seed: int = 0, **options: Any) -> bytes:
    channels = {"L": 1, "RGB": 3, "CMYK": 4}[mode]
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (-(-height // 4), -(-width // 4), channels), np.uint8)
    pixels = coarse.repeat(4, axis=0).repeat(4, axis=1)[:height, :width]
    image = PIL.Image.fromarray(pixels[:, :, 0] if channels == 1 else pixels, mode)
    file = io.BytesIO()
    image.save(file, "jpeg", **options)
    return file.getvalue()


def with_pillow(data: bytes, mode: str) -> Any:
    with PIL.Image.open(io.BytesIO(data)) as image:
        return np.array(image.convert(mode))


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["L", "RGB"]),
    size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    seed=st.integers(0, 1000),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
)
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_pixels_are_those_of_pillow(
    mode: str,
    size: tuple[int, int],
    seed: int,
    quality: int,
    subsampling: str,
    progressive: bool,
):
    options: dict[str, Any] = {} if mode == "L" else {"subsampling": subsampling}
    data = make_jpeg(mode, *size, seed, quality=quality, progressive=progressive, **options)

    decoded = decode_jpeg(data, "RGB")

    assert decoded is not None
    np.testing.assert_array_equal(decoded, with_pillow(data, "RGB"))


def test_a_grey_image_has_no_axis_for_channels():
    data = make_jpeg("L", 5, 7)
    decoded = decode_jpeg(data, "L")
    assert decoded is not None
    assert decoded.shape == (5, 7)
    np.testing.assert_array_equal(decoded, with_pillow(data, "L"))


@pytest.mark.parametrize(("source", "mode"), [("RGB", "L"), ("RGB", "RGBA"), ("CMYK", "RGB")])
def test_other_conversions_are_left_to_pillow(source: str, mode: str):
    data = make_jpeg(source, 6, 8)
    assert decode_jpeg(data, mode) is None
    np.testing.assert_array_equal(
        DecodeImage(key=None, mode=mode).map(data), with_pillow(data, mode)
    )


def test_a_large_image_is_left_to_pillow(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(jpeg, "MAX_PIXELS", 47)
    assert decode_jpeg(make_jpeg("RGB", 6, 8), "RGB") is None


def test_a_damaged_file_is_left_to_pillow():
    data = make_jpeg("RGB", 40, 40)
    assert decode_jpeg(data[: len(data) // 2], "RGB") is None
    assert decode_jpeg(data[:3], "RGB") is None


def test_pixels_can_be_written_to():
    pixels = DecodeImage(key=None).map(make_jpeg("RGB", 4, 4))
    pixels[0, 0, 0] = 1


@settings(max_examples=60, deadline=None)
@given(
    mode=st.sampled_from(["L", "RGB"]),
    size=st.tuples(st.integers(1, 130), st.integers(1, 130)),
    min_size=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    seed=st.integers(0, 1000),
)
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_an_image_is_scaled_while_it_is_decoded_but_never_below_the_minimum(
    mode: str, size: tuple[int, int], min_size: tuple[int, int], seed: int
):
    data = make_jpeg(mode, *size, seed)

    decoded = decode_jpeg(data, "RGB", min_size)

    factor = scale_factor(*size, min_size)
    assert decoded is not None
    assert decoded.shape[:2] == tuple(-(-side // factor) for side in size)
    if factor > 1:
        assert all(got >= least for got, least in zip(decoded.shape, min_size, strict=False))


@pytest.mark.parametrize("factor", [1, 2, 4, 8])
@pytest.mark.parametrize("mode", ["RGB", "RGBA"])
def test_pillow_scales_to_the_same_size_and_almost_the_same_pixels(
    mode: str, factor: int, monkeypatch: pytest.MonkeyPatch
):
    data = make_jpeg("RGB", 160, 240)
    decode = DecodeImage(None, mode=mode, min_size=(160 // factor, 240 // factor))
    with_turbo = decode.map(data)
    monkeypatch.setattr(image, "decode_jpeg", lambda *_: None)
    with_pillow = decode.map(data)

    assert with_turbo.shape[:2] == with_pillow.shape[:2] == (160 // factor, 240 // factor)
    np.testing.assert_allclose(with_turbo.astype(int), with_pillow.astype(int), atol=2)
