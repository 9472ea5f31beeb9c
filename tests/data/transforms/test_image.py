import io
import pickle
import sys
from typing import Any

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import DataLoader, SequentialSampler
from gristmill._data.transforms.image import DecodeImage, DecodeRandomCrop
from gristmill.errors import (
    CorruptFileError,
    FormatError,
    MissingExtraError,
    PlanError,
    PlanTypeError,
)

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def encode(pixels: Any, form: str = "png", mode: str | None = None, **options: Any) -> bytes:
    file = io.BytesIO()
    image = PIL.Image.fromarray(pixels)
    (image if mode is None else image.convert(mode)).save(file, form, **options)
    return file.getvalue()


def by_pillow(data: bytes, mode: str) -> Any:
    with PIL.Image.open(io.BytesIO(data)) as image:
        return np.asarray(image.convert(mode))


def test_the_pixels_take_the_place_of_the_bytes():
    element = {"image": encode(PIXELS), "label": 3}
    decoded = DecodeImage().map(element)
    assert list(decoded) == ["image", "label"]
    assert decoded["image"].dtype == np.uint8
    np.testing.assert_array_equal(decoded["image"], PIXELS)
    assert decoded["label"] == 3
    assert isinstance(element["image"], bytes), "the element itself is as it was"


def test_pixels_may_be_written_to():
    decoded = DecodeImage(None).map(encode(PIXELS))
    decoded[:] = 0
    assert decoded.sum() == 0


def test_the_bytes_may_be_at_another_key_or_the_element_itself():
    data = encode(PIXELS)
    np.testing.assert_array_equal(DecodeImage("jpg").map({"jpg": data})["jpg"], PIXELS)
    for element in (data, bytearray(data), memoryview(data)):
        np.testing.assert_array_equal(DecodeImage(None).map(element), PIXELS)


def test_the_columns_of_hugging_face_are_taken():
    struct = {"bytes": encode(PIXELS), "path": "a.png"}
    np.testing.assert_array_equal(DecodeImage().map({"image": struct})["image"], PIXELS)
    np.testing.assert_array_equal(DecodeImage(None).map(struct), PIXELS)


@pytest.mark.parametrize(
    ("mode", "shape"), [("RGB", (5, 7, 3)), ("RGBA", (5, 7, 4)), ("L", (5, 7))]
)
@pytest.mark.parametrize("stored", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_images_of_any_mode_become_those_of_the_wanted_one(
    stored: str, mode: str, shape: tuple[int, ...]
):
    data = encode(PIXELS, mode=stored)
    decoded = DecodeImage(None, mode=mode).map(data)
    assert (decoded.shape, decoded.dtype) == (shape, np.uint8)
    np.testing.assert_array_equal(decoded, by_pillow(data, mode))


@pytest.mark.parametrize("form", ["jpeg", "webp", "bmp", "tiff", "gif"])
def test_images_of_any_format_are_what_pillow_makes_of_them(form: str):
    data = encode(PIXELS, form)
    np.testing.assert_array_equal(DecodeImage(None).map(data), by_pillow(data, "RGB"))


def test_a_palette_with_transparency_is_decoded_without_a_warning():
    data = encode(PIXELS, mode="P", transparency=bytes(range(256)))
    opaque = encode(PIXELS, mode="P")
    np.testing.assert_array_equal(DecodeImage(None).map(data), by_pillow(opaque, "RGB"))


def test_it_is_a_step_of_a_pipeline():
    loader = DataLoader(
        data_source=[{"image": encode(PIXELS)}] * 3,
        sampler=SequentialSampler(3),
        operations=[DecodeImage()],
    )
    assert [element["image"].shape for element in loader] == [(5, 7, 3)] * 3


def test_it_is_a_value():
    assert DecodeImage() == DecodeImage("image", mode="RGB")
    assert pickle.loads(pickle.dumps(DecodeImage("jpg", mode="L"))) == DecodeImage("jpg", mode="L")
    assert repr(DecodeImage()) == "DecodeImage(key='image', mode='RGB', min_size=None)"


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    message = (
        r"^`DecodeImage` needs the package 'PIL\.Image'\. .*`pip install .gristmill\[image\].`\.$"
    )
    with pytest.raises(MissingExtraError, match=message):
        DecodeImage(None).map(b"")


def test_a_mode_that_is_not_offered_is_refused():
    with pytest.raises(PlanError, match=r'^`mode` must be "L", "RGB" or "RGBA", got \'CMYK\'\.$'):
        DecodeImage(mode="CMYK")


def test_a_key_that_is_no_text_is_refused():
    wrong: Any = 3
    message = r"^`key` must be str, got 3\. Pass the name of a field, or None\.$"
    with pytest.raises(PlanTypeError, match=message):
        DecodeImage(wrong)


def test_a_key_that_is_not_there_is_reported_with_those_that_are():
    message = r"^`key` must be a key of the element, got 'image'; it has 'jpg', 'cls'\.$"
    with pytest.raises(PlanError, match=message):
        DecodeImage().map({"jpg": b"", "cls": b""})


def test_an_element_that_is_no_dict_is_reported():
    message = (
        r"^`DecodeImage` needs a dict with the key 'image', got bytes\. Pass `key=None` if "
        r"elements are the bytes themselves\.$"
    )
    with pytest.raises(PlanTypeError, match=message):
        DecodeImage().map(b"")


@pytest.mark.parametrize("value", [PIXELS, "a.png", None, {"bytes": None, "path": "a.png"}])
def test_what_is_not_bytes_is_reported(value: Any):
    message = (
        r"^An image must be the bytes of a file, got (ndarray|str|NoneType)\. Remove `DecodeImage` "
        r"if they are already decoded\.$"
    )
    with pytest.raises(PlanTypeError, match=message):
        DecodeImage().map({"image": value})


def test_bytes_that_are_no_image_are_reported():
    message = (
        r"^Pillow knows no image format that begins with b'not an image'\. Filter out other "
        r"files, or skip such records with `SkipErrors`\. \(a\.png\)$"
    )
    with pytest.raises(FormatError, match=message):
        DecodeImage(None).map({"bytes": b"not an image", "path": "a.png"})


@pytest.mark.parametrize("form", ["png", "jpeg", "bmp"])
def test_an_image_cut_short_is_reported(form: str):
    data = encode(np.tile(PIXELS, (20, 20, 1)), form)
    message = r"^The image cannot be decoded: .*\. Replace the file, or skip such records "
    with pytest.raises(CorruptFileError, match=message) as caught:
        DecodeImage(None).map({"bytes": data[: len(data) // 2], "path": "a.png"})
    assert caught.value.path == "a.png"


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32])
def test_images_with_more_than_8_bits_are_refused(dtype: Any):
    data = encode(np.full((2, 2), 1000, dtype), "tiff")
    message = (
        r"^The image has more than 8 bits per value \(Pillow's mode '(I;16|I|F)'\), which "
        r"`DecodeImage` would lose\. Decode it with your own map\.$"
    )
    with pytest.raises(FormatError, match=message):
        DecodeImage(None).map(data)


def test_an_image_that_is_too_large_for_pillow_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(PIL.Image, "MAX_IMAGE_PIXELS", 10)
    with pytest.raises(FormatError, match=r"^The image has too many pixels: .*MAX_IMAGE_PIXELS"):
        DecodeImage(None).map(encode(PIXELS))


@pytest.mark.filterwarnings("ignore")  # Pillow's, about what it finds
@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["png", "jpeg", "gif", "bmp", "tiff", "webp"]),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4),
    st.integers(0, 10_000),
)
def test_any_damage_is_reported_or_does_no_harm(
    form: str, flips: list[tuple[int, int]], length: int
):
    data = bytearray(encode(PIXELS, form))
    for place, byte in flips:
        data[place % len(data)] = byte
    try:
        decoded = DecodeImage(None).map(bytes(data[:length]))
    except (FormatError, CorruptFileError):
        return
    assert decoded.dtype == np.uint8
    assert decoded.ndim == 3


@pytest.mark.parametrize("wrong", [(0, 4), (4,), [4, 4], (4.0, 4), 4])
def test_a_minimum_size_that_is_no_height_and_width_is_refused(wrong: Any):
    message = r"^`min_size` must be a height and a width, two positive integers, got .*\.$"
    with pytest.raises(PlanError, match=message):
        DecodeImage(min_size=wrong)


@pytest.mark.parametrize("form", ["png", "bmp"])
def test_other_formats_are_not_scaled(form: str):
    decoded = DecodeImage(None, min_size=(1, 1)).map(encode(PIXELS, form))
    np.testing.assert_array_equal(decoded, PIXELS)


@pytest.mark.parametrize("form", ["png", "jpeg"])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_random_crop_is_a_crop_of_the_whole_image(form: str, mode: str):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, form)
    whole = DecodeImage(key=None, mode=mode).map(file.getvalue())
    transform = DecodeRandomCrop(size=(20, 10), mode=mode)
    rng = np.random.default_rng(7)
    top, left = int(rng.integers(21)), int(rng.integers(21))

    made = transform.random_map(
        {"image": file.getvalue(), "label": 3}, rng=np.random.default_rng(7)
    )

    np.testing.assert_array_equal(made["image"], whole[top : top + 20, left : left + 10])
    assert made["label"] == 3


def test_a_random_crop_larger_than_the_image_is_refused():
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 6)).save(file, "jpeg")
    transform = DecodeRandomCrop(size=(4, 9), key=None)
    with pytest.raises(
        PlanError, match=r"at least as large as the crop, \(4, 9\), got \(6, 8\)\. Use a smaller"
    ):
        transform.random_map(file.getvalue(), np.random.default_rng(0))


@pytest.mark.parametrize("wrong", [4, (4,), (0, 3), [4, 4]])
def test_a_size_of_a_crop_that_is_no_height_and_width_is_refused(wrong: Any):
    with pytest.raises(PlanError, match="`size` must be a height and a width"):
        DecodeRandomCrop(size=wrong)


@pytest.mark.parametrize("form", ["png", "jpeg"])
@pytest.mark.parametrize("box", [(0, 0, 7, 1), (-1, 0, 2, 2), (0, 7, 1, 2), (0, 0, 0, 1)])
def test_a_crop_beyond_the_image_is_refused(form: str, box: Any):
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 6)).save(file, form)
    with pytest.raises(PlanError, match=r"within the image, of size \(6, 8\), got"):
        DecodeImage(key=None).decode(file.getvalue(), lambda *_: box)
