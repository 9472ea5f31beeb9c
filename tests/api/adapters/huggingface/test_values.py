"""Images of Hugging Face datasets are decoded to the arrays that `datasets` decodes."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest

from tests.api.adapters.huggingface.hf_samples import convert, images, png, source_of

from datasets import Dataset, Features, Image, List  # isort: skip


@pytest.mark.parametrize("kind", [None, "numpy"])
@pytest.mark.parametrize("orientation", [None, 1, 6])
@pytest.mark.parametrize("mode", [None, "L"])
def test_an_image_is_the_array_that_datasets_decodes(
    kind: str | None, orientation: int | None, mode: str | None
):
    stored = [{"bytes": png(9, orientation=orientation), "path": None}, None]
    features = Features({"image": Image(mode=mode)})
    dataset = Dataset.from_dict({"image": stored}, features=features).with_format(kind)

    image = convert(dataset)[0]["image"]

    expected = np.asarray(dataset[0]["image"])
    assert image.dtype == expected.dtype == np.uint8
    assert image.tolist() == expected.tolist()
    assert convert(dataset)[1]["image"] is None


def test_an_image_can_be_in_a_file(tmp_path: Path):
    (tmp_path / "a.png").write_bytes(png(7, mode="L"))
    paths = [str(tmp_path / "a.png")]
    dataset = Dataset.from_dict({"image": paths}, features=Features({"image": Image()}))

    assert convert(dataset)[0]["image"].tolist() == [[7] * 3] * 2


def test_images_that_are_not_decoded_are_returned_as_stored():
    assert convert(images(decode=False))[2]["image"] == {"bytes": png(2), "path": None}


def test_images_in_a_list_are_decoded_by_datasets():
    stored = [[{"bytes": png(1), "path": None}] * 2]
    dataset = Dataset.from_dict({"images": stored}, features=Features({"images": List(Image())}))

    assert [one.shape for one in convert(dataset)[0]["images"]] == [(2, 3, 3)] * 2


def test_the_torch_format_puts_the_channels_of_an_image_first():
    dataset = images().with_format("torch")

    image = convert(dataset)[3]["image"]

    assert image.tolist() == dataset[3]["image"].tolist()


def encoded(image: Any, kind: str = "PNG") -> bytes:
    file = io.BytesIO()
    image.save(file, kind)
    return file.getvalue()


NOISE = np.random.default_rng(0).integers(0, 256, (9, 12, 11, 3), np.uint8)
GREY = [encoded(PIL.Image.fromarray(pixels[..., 0])) for pixels in NOISE]
COLORED = [encoded(PIL.Image.fromarray(pixels)) for pixels in NOISE]
COLLECTIONS = {
    "grey": GREY,
    "colored": COLORED,
    "grey, then colored": [*GREY[:5], *COLORED],
    "of several sizes": [*GREY, encoded(PIL.Image.fromarray(NOISE[0, :5, :, 0])), *GREY],
    "with a null": [GREY[0], None, *GREY],
    "a null first": [None, *GREY],
    "with a palette": [*COLORED, encoded(PIL.Image.fromarray(NOISE[0]).convert("P"))],
    "with transparency": [encoded(PIL.Image.fromarray(NOISE[0]).convert("RGBA")), *COLORED],
    "among JPEGs": [*GREY, encoded(PIL.Image.fromarray(NOISE[0]), "JPEG")],
    "of many pixels": [encoded(PIL.Image.fromarray(np.tile(NOISE[0], (40, 40, 1))))] * 2,
}


@pytest.mark.parametrize("mode", [None, "L", "RGB"])
@pytest.mark.parametrize("files", COLLECTIONS.values(), ids=list(COLLECTIONS))
def test_images_are_those_of_datasets_in_any_combination(
    files: list[bytes | None], mode: str | None
):
    stored = [None if file is None else {"bytes": file, "path": None} for file in files]
    dataset = Dataset.from_dict({"image": stored}, features=Features({"image": Image(mode=mode)}))

    elements = source_of(dataset).__getitems__(range(len(files)))

    for index, element in enumerate(elements):
        expected = dataset[index]["image"]
        if expected is None:
            assert element["image"] is None
        else:
            assert np.array_equal(element["image"], np.asarray(expected))
            assert element["image"].dtype == np.asarray(expected).dtype
