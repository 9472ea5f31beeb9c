"""Many small PNG images are decoded together to the pixels that Pillow decodes."""

import io
import struct
import zlib
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gristmill._api.adapters.tfds import png as _png
from gristmill._api.adapters.tfds.png import decode_pngs

ALWAYS, NEVER = 10**9, 0
"""How many steps NumPy may take for an image before Pillow decodes it."""


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def as_png(stored: bytes, shape: tuple[int, ...], *others: bytes, **header: int) -> bytes:
    """Encode rows, each of which starts with the number of its filter, as a PNG file."""
    height, width, channels = shape
    depth, interlace = header.get("depth", 8), header.get("interlace", 0)
    color = header.get("color", {1: 0, 3: 2}[channels])
    ihdr = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    chunks = [chunk(b"IHDR", ihdr), *others, chunk(b"IDAT", zlib.compress(stored))]
    return b"".join([b"\x89PNG\r\n\x1a\n", *chunks, chunk(b"IEND", b"")])


def by_pillow(png: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    with PIL.Image.open(io.BytesIO(png)) as image:
        return np.asarray(image, np.uint8).reshape(shape)


@st.composite
def rows_of_images(draw: st.DrawFn) -> tuple[tuple[int, int, int], list[bytes]]:
    """Draw a shape and the stored rows of some images: any bytes are an image."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.sampled_from([1, 3])))
    num_bytes = (draw(st.integers(1, 7)), shape[0], 1 + shape[1] * shape[2])
    rows = draw(hnp.arrays(np.uint8, num_bytes))
    rows[:, :, 0] = draw(hnp.arrays(np.uint8, num_bytes[:2], elements=st.integers(0, 4)))
    return shape, [row.tobytes() for row in rows]


@pytest.mark.parametrize("steps", [ALWAYS, NEVER])
@given(drawn=rows_of_images())
def test_images_with_all_filters_are_those_of_pillow(
    steps: int, drawn: tuple[tuple[int, int, int], list[bytes]]
):
    shape, rows = drawn
    pngs = [as_png(stored, shape) for stored in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_png, "_MAX_STEPS_PER_IMAGE", steps)
        images, is_decoded = decode_pngs(pngs, shape)

    assert is_decoded.all()
    assert images.tobytes() == np.stack([by_pillow(png, shape) for png in pngs]).tobytes()


@pytest.mark.parametrize("channels", [1, 3])
def test_ties_of_the_paeth_filter_are_broken_as_by_pillow(
    channels: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_png, "_MAX_STEPS_PER_IMAGE", ALWAYS)
    rng = np.random.default_rng(0)
    shape = (9, 8, channels)
    rows = rng.integers(-2, 3, (200, 9, 1 + 8 * channels)).astype(np.uint8)  # few and small: ties
    rows[:, :, 0] = rng.integers(0, 5, (200, 9))
    pngs = [as_png(row.tobytes(), shape) for row in rows]

    images, is_decoded = decode_pngs(pngs, shape)

    assert is_decoded.all()
    assert (images == np.stack([by_pillow(png, shape) for png in pngs])).all()


SHAPE = (2, 3, 1)
ROWS = bytes([0, 1, 2, 3, 2, 4, 5, 6])
PLAIN = as_png(ROWS, SHAPE)
UNSUPPORTED: dict[str, bytes] = {
    "nothing": b"",
    "another format": b"GIF89a",
    "another width": as_png(bytes([0, 1, 2]), (1, 2, 1)),
    "colors": as_png(bytes(20), (2, 3, 3)),
    "a palette": as_png(ROWS, SHAPE, chunk(b"PLTE", bytes(range(30))), color=3),
    "16 bits": as_png(bytes(14), SHAPE, depth=16),
    "interlaced": as_png(ROWS, SHAPE, interlace=1),
    "transparent": as_png(ROWS, SHAPE, chunk(b"tRNS", b"\0\1")),
    "with a comment": as_png(ROWS, SHAPE, chunk(b"tEXt", b"a\0b")),
    "two data chunks": as_png(ROWS, SHAPE, chunk(b"IDAT", b"")),
    "cut short": PLAIN[:-1],
    "with trailing bytes": PLAIN + b"\0",
    "too few rows": as_png(ROWS[:4], SHAPE),
    "too many rows": as_png(ROWS + ROWS, SHAPE),
    "an unknown filter": as_png(b"\5" + ROWS[1:], SHAPE),
    "damaged data": PLAIN[:45] + bytes([PLAIN[45] ^ 255]) + PLAIN[46:],
    "another end": PLAIN[:-8] + b"iEND" + PLAIN[-4:],
    "without data": PLAIN[:33] + chunk(b"IEND", b""),
}


@pytest.mark.parametrize("steps", [ALWAYS, NEVER])
@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_unsupported_files_are_not_decoded(kind: str, steps: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_png, "_MAX_STEPS_PER_IMAGE", steps)

    images, is_decoded = decode_pngs([PLAIN, UNSUPPORTED[kind], PLAIN], SHAPE)

    assert is_decoded.tolist() == [True, False, True]
    assert (images[[0, 2]] == by_pillow(PLAIN, SHAPE)).all()


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2), (0, 3, 1)])
def test_images_of_unsupported_shapes_are_not_decoded(shape: Any):
    images, is_decoded = decode_pngs([PLAIN], shape)

    assert images.shape == (1, *shape)
    assert not is_decoded.any()


def test_no_images_are_decoded_to_an_empty_array():
    images, is_decoded = decode_pngs([], SHAPE)

    assert images.shape == (0, *SHAPE)
    assert not len(is_decoded)


def test_few_images_are_decoded_by_pillow_and_many_by_numpy(monkeypatch: pytest.MonkeyPatch):
    calls: list[int] = []
    decode = _png._decode_with_pillow
    monkeypatch.setattr(
        _png, "_decode_with_pillow", lambda data, shape: calls.append(1) or decode(data, shape)
    )
    hard = as_png(bytes([4, 1, 2, 3, 3, 4, 5, 6]), SHAPE)

    decode_pngs([hard], SHAPE)
    assert len(calls) == 1
    decode_pngs([hard] * 100, SHAPE)
    assert len(calls) == 1
