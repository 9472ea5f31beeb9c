"""Encode images for pages, without another library."""

import base64
import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from gristmill._views.pixels import as_rgb, scale_down

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_SMALL = 64
"""Images up to this width are enlarged, with pixels as squares."""


def image_tag(pixels: NDArray[np.uint8], *, width: int) -> str:
    """Return an `<img>` with its pixels in it, of at most some width."""
    rgb = scale_down(as_rgb(pixels), width=width)
    data = base64.b64encode(encode_png(rgb)).decode("ascii")
    size = f"{pixels.shape[1]} x {pixels.shape[0]} pixels"
    kind = 'class="small" ' if pixels.shape[1] <= _SMALL else ""
    return f'<img {kind}alt="{size}" title="{size}" src="data:image/png;base64,{data}">'


def encode_png(rgb: NDArray[np.uint8]) -> bytes:
    r"""Return an image of shape (height, width, 3) as a PNG file.

    >>> encode_png(np.zeros((2, 3, 3), np.uint8))[:4]
    b'\x89PNG'
    """
    height, width = rgb.shape[:2]
    rows = np.zeros((height, 1 + 3 * width), np.uint8)  # each after its filter, which is none
    rows[:, 1:] = rgb.reshape(height, 3 * width)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"".join(
        [
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(rows.tobytes(), 6)),
            _chunk(b"IEND", b""),
        ]
    )


def _chunk(name: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(name + data)
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", checksum)
