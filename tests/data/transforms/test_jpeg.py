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
from gristmill._data.transforms.jpeg import decode_jpeg, scale_factor, with_height
from gristmill.errors import CorruptFileError, GristmillError


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


@st.composite
def crops(draw: st.DrawFn) -> tuple[int, int, tuple[int, int, int, int]]:
    """Return the height and width of an image, and a crop of it."""
    height, width = draw(st.integers(1, 150)), draw(st.integers(1, 70))
    top, left = draw(st.integers(0, height - 1)), draw(st.integers(0, width - 1))
    rows, columns = draw(st.integers(1, height - top)), draw(st.integers(1, width - left))
    return height, width, (top, left, rows, columns)


@settings(max_examples=150, deadline=None)
@given(
    mode=st.sampled_from(["L", "RGB"]),
    drawn=crops(),
    seed=st.integers(0, 1000),
    quality=st.integers(1, 100),
    subsampling=st.sampled_from(["4:4:4", "4:2:2", "4:2:0"]),
    progressive=st.booleans(),
    restart=st.sampled_from([0, 1, 3]),
)
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_a_crop_has_the_pixels_of_the_whole_image(
    mode: str,
    drawn: tuple[int, int, tuple[int, int, int, int]],
    seed: int,
    quality: int,
    subsampling: str,
    progressive: bool,
    restart: int,
):
    height, width, box = drawn
    options: dict[str, Any] = {} if mode == "L" else {"subsampling": subsampling}
    data = make_jpeg(
        mode,
        height,
        width,
        seed,
        quality=quality,
        progressive=progressive,
        restart_marker_blocks=restart,
        **options,
    )
    whole = with_pillow(data, "RGB")
    top, left, rows, columns = box

    cropped = decode_jpeg(data, "RGB", crop=lambda *_: box)

    np.testing.assert_array_equal(cropped, whole[top : top + rows, left : left + columns])


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_a_sequential_file_is_cut_below_the_crop():
    data = make_jpeg("RGB", 400, 50)

    cut = with_height(data, bottom=100)

    assert cut is not None
    with PIL.Image.open(io.BytesIO(cut)) as image:
        assert 101 <= image.height <= 132
    np.testing.assert_array_equal(
        decode_jpeg(data, "RGB", crop=lambda *_: (0, 0, 100, 50)), with_pillow(data, "RGB")[:100]
    )


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_files_that_cannot_be_cut_are_decoded_whole():
    sequential = make_jpeg("RGB", 400, 50)
    assert with_height(make_jpeg("RGB", 400, 50, progressive=True), bottom=100) is None
    assert with_height(sequential, bottom=390) is None
    assert with_height(sequential[:-1], bottom=100) is None
    assert with_height(sequential[:10] + b"\xff\xd9", bottom=100) is None


@settings(max_examples=100, deadline=None)
@given(
    flips=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), max_size=3),
    length=st.integers(0, 10_000),
)
@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
@pytest.mark.filterwarnings("ignore:.*:UserWarning")
def test_a_crop_of_a_damaged_file_is_that_of_pillow_or_an_error(
    flips: list[tuple[int, int]], length: int
):
    damaged = bytearray(make_jpeg("RGB", 120, 40))
    for position, bit in flips:
        damaged[position % len(damaged)] ^= 1 << bit
    data = bytes(damaged[:length]) + b"\xff\xd9"
    try:
        cropped = DecodeImage(key=None).decode(data, lambda *_: (5, 3, 30, 20))
    except GristmillError:
        return
    try:
        whole = with_pillow(data, "RGB")
    except Exception:
        return  # the damage is below the crop
    np.testing.assert_array_equal(cropped, whole[5:35, 3:23])


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_a_crop_of_a_truncated_file_is_refused():
    data = make_jpeg("RGB", 120, 40)
    with pytest.raises(CorruptFileError, match="cannot be decoded"):
        DecodeImage(key=None).decode(data[: len(data) // 4], lambda *_: (0, 0, 100, 20))


@pytest.mark.filterwarnings("ignore:'mode' parameter is deprecated")
def test_a_crop_is_taken_after_scaling():
    data = make_jpeg("RGB", 120, 80)
    decode = DecodeImage(key=None, min_size=(30, 20)).decode

    cropped = decode(data, lambda height, width: (height - 10, width - 5, 10, 5))

    np.testing.assert_array_equal(cropped, decode(data)[20:, 15:])
