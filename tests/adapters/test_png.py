"""Many small PNG pictures at once are what Pillow makes of each."""

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

from gristmill.adapters import _png
from gristmill.adapters._png import decode_pngs

ALWAYS, NEVER = 10**9, 0
"""How many steps NumPy may take for a picture, before it is left to Pillow."""


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def as_png(stored: bytes, shape: tuple[int, ...], *others: bytes, **header: int) -> bytes:
    """Put rows, each with the number of its filter in front, into a file."""
    height, width, channels = shape
    depth, interlace = header.get("depth", 8), header.get("interlace", 0)
    colour = header.get("colour", {1: 0, 3: 2}[channels])
    ihdr = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlace)
    pieces = [chunk(b"IHDR", ihdr), *others, chunk(b"IDAT", zlib.compress(stored))]
    return b"".join([b"\x89PNG\r\n\x1a\n", *pieces, chunk(b"IEND", b"")])


def by_pillow(png: bytes, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    with PIL.Image.open(io.BytesIO(png)) as image:
        return np.asarray(image, np.uint8).reshape(shape)


@st.composite
def rows_of_pictures(draw: st.DrawFn) -> tuple[tuple[int, int, int], list[bytes]]:
    """Give a shape and the stored rows of some pictures: any bytes are a picture."""
    shape = (draw(st.integers(1, 6)), draw(st.integers(1, 5)), draw(st.sampled_from([1, 3])))
    num_bytes = (draw(st.integers(1, 7)), shape[0], 1 + shape[1] * shape[2])
    rows = draw(hnp.arrays(np.uint8, num_bytes))
    rows[:, :, 0] = draw(hnp.arrays(np.uint8, num_bytes[:2], elements=st.integers(0, 4)))
    return shape, [row.tobytes() for row in rows]


@pytest.mark.parametrize("steps", [ALWAYS, NEVER])
@given(made=rows_of_pictures())
def test_pictures_of_all_filters_are_those_of_pillow(
    steps: int, made: tuple[tuple[int, int, int], list[bytes]]
):
    shape, rows = made
    pngs = [as_png(stored, shape) for stored in rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_png, "_STEPS_PER_PICTURE", steps)
        pictures, is_done = decode_pngs(pngs, shape)

    assert is_done.all()
    assert pictures.tobytes() == np.stack([by_pillow(png, shape) for png in pngs]).tobytes()


@pytest.mark.parametrize("channels", [1, 3])
def test_pixels_that_are_equally_near_are_chosen_as_pillow_does(
    channels: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_png, "_STEPS_PER_PICTURE", ALWAYS)
    rng = np.random.default_rng(0)
    shape = (9, 8, channels)
    rows = rng.integers(-2, 3, (200, 9, 1 + 8 * channels)).astype(np.uint8)  # few and small: ties
    rows[:, :, 0] = rng.integers(0, 5, (200, 9))
    pngs = [as_png(row.tobytes(), shape) for row in rows]

    pictures, is_done = decode_pngs(pngs, shape)

    assert is_done.all()
    assert (pictures == np.stack([by_pillow(png, shape) for png in pngs])).all()


SHAPE = (2, 3, 1)
ROWS = bytes([0, 1, 2, 3, 2, 4, 5, 6])
PLAIN = as_png(ROWS, SHAPE)
UNUSUAL: dict[str, bytes] = {
    "nothing": b"",
    "something else": b"GIF89a",
    "another width": as_png(bytes([0, 1, 2]), (1, 2, 1)),
    "colours": as_png(bytes(20), (2, 3, 3)),
    "a palette": as_png(ROWS, SHAPE, chunk(b"PLTE", bytes(range(30))), colour=3),
    "16 bits": as_png(bytes(14), SHAPE, depth=16),
    "interlaced": as_png(ROWS, SHAPE, interlace=1),
    "transparent": as_png(ROWS, SHAPE, chunk(b"tRNS", b"\0\1")),
    "with a text": as_png(ROWS, SHAPE, chunk(b"tEXt", b"a\0b")),
    "in two pieces": as_png(ROWS, SHAPE, chunk(b"IDAT", b"")),
    "cut short": PLAIN[:-1],
    "with more behind": PLAIN + b"\0",
    "too few rows": as_png(ROWS[:4], SHAPE),
    "too many rows": as_png(ROWS + ROWS, SHAPE),
    "an unknown filter": as_png(b"\5" + ROWS[1:], SHAPE),
    "damaged data": PLAIN[:45] + bytes([PLAIN[45] ^ 255]) + PLAIN[46:],
    "another end": PLAIN[:-8] + b"iEND" + PLAIN[-4:],
    "without data": PLAIN[:33] + chunk(b"IEND", b""),
}


@pytest.mark.parametrize("steps", [ALWAYS, NEVER])
@pytest.mark.parametrize("kind", UNUSUAL)
def test_what_is_unusual_is_left_out(kind: str, steps: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(_png, "_STEPS_PER_PICTURE", steps)

    pictures, is_done = decode_pngs([PLAIN, UNUSUAL[kind], PLAIN], SHAPE)

    assert is_done.tolist() == [True, False, True]
    assert (pictures[[0, 2]] == by_pillow(PLAIN, SHAPE)).all()


@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 2), (0, 3, 1)])
def test_shapes_of_other_kinds_are_left_out(shape: Any):
    pictures, is_done = decode_pngs([PLAIN], shape)

    assert pictures.shape == (1, *shape)
    assert not is_done.any()


def test_of_no_pictures():
    pictures, is_done = decode_pngs([], SHAPE)

    assert pictures.shape == (0, *SHAPE)
    assert not len(is_done)


def test_a_few_are_decoded_by_pillow_and_many_by_numpy(monkeypatch: pytest.MonkeyPatch):
    asked: list[int] = []
    by_each = _png._decode_each
    monkeypatch.setattr(
        _png, "_decode_each", lambda pieces, shape: asked.append(1) or by_each(pieces, shape)
    )
    hard = as_png(bytes([4, 1, 2, 3, 3, 4, 5, 6]), SHAPE)

    decode_pngs([hard], SHAPE)
    assert len(asked) == 1
    decode_pngs([hard] * 100, SHAPE)
    assert len(asked) == 1
