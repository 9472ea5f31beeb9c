"""Small PNG pictures of one size, many at a time.

Of a picture of 28 x 28 pixels, opening the file takes Pillow several times as long as decoding it.
Here the decompression alone is done one by one. Then the filters of PNG, by which a row is stored
as its difference from the pixel to the left, from the row above or from both, are undone for the
rows of all pictures at once: first those that need no row above, then those below them, and so on.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill.errors import MissingExtraError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_COLOUR_TYPES = {1: 0, 3: 2}
"""What PNG calls shades, and red, green and blue."""
PNG_MODES = {1: "L", 3: "RGB"}
"""What Pillow calls pictures of 8 bits, by the number of their channels."""

_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)

_STEPS_PER_PICTURE = 4
"""Up to so many steps, each over one pixel of many rows, NumPy takes less time than Pillow."""


def png_shape(png: bytes) -> tuple[int, int, int] | None:
    """Give the height, the width and the channels that a file tells, if it is one of those here.

    >>> sizes_and_kind = bytes([0, 0, 0, 2, 0, 0, 0, 1, 8, 0])
    >>> png_shape(_SIGNATURE + bytes([0, 0, 0, 13]) + b"IHDR" + sizes_and_kind)
    (1, 2, 1)
    """
    if not png.startswith(_SIGNATURE) or png[12:16] != b"IHDR" or png[24:25] != b"\x08":
        return None
    for channels, colour_type in _COLOUR_TYPES.items():
        if png[25:26] == bytes([colour_type]):
            return int.from_bytes(png[20:24], "big"), int.from_bytes(png[16:20], "big"), channels
    return None


def decode_pngs(
    pngs: Sequence[bytes], shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Give pictures of 8 bits as one array, and which of them it holds.

    Left out are those of another size or kind, those in several pieces, and damaged ones.

    >>> import io
    >>> import PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("L", (2, 1), 7).save(file, "png")
    >>> pictures, is_done = decode_pngs([file.getvalue(), b"no picture"], (1, 2, 1))
    >>> pictures[0].tolist(), is_done.tolist()
    ([[[7], [7]]], [True, False])

    Args:
        pngs: The bytes of each file.
        shape: Height, width, and 1 channel or 3.
    """
    height, width, channels = shape
    made = np.empty((len(pngs), *shape), np.uint8)
    is_done = np.zeros(len(pngs), np.bool_)
    if channels not in PNG_MODES or not height * width:
        return made, is_done
    pieces = _find_data(pngs, shape)
    row_bytes = 1 + width * channels
    num_bytes = height * row_bytes
    stored: dict[int, bytes] = {}
    for place, piece in pieces.items():
        try:
            data = zlib.decompress(piece, bufsize=num_bytes)
        except zlib.error:
            continue
        if len(data) == num_bytes:
            stored[place] = data
    rows = np.frombuffer(b"".join(stored.values()), np.uint8).reshape(-1, height, row_bytes)
    places = np.fromiter(stored, np.int64)
    is_known = (rows[:, :, 0] <= _PAETH).all(axis=1)
    if not is_known.all():
        rows, places = rows[is_known], places[is_known]
    if not len(places):
        return made, is_done
    pixels = _unfilter(rows, channels)
    if pixels is None:
        one_by_one = _decode_each([pieces[place] for place in places.tolist()], shape)
        if one_by_one is None:
            return made, is_done
        pixels = one_by_one
    made[places] = pixels.reshape(-1, *shape)
    is_done[places] = True
    return made, is_done


def _find_data(pngs: Sequence[bytes], shape: tuple[int, int, int]) -> dict[int, bytes]:
    """Give the compressed rows of those files that are a header, one piece of data and an end."""
    height, width, channels = shape
    sizes = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    header = b"IHDR" + sizes + bytes([8, _COLOUR_TYPES[channels], 0, 0, 0])
    head = _SIGNATURE + b"\x00\x00\x00\x0d" + header + zlib.crc32(header).to_bytes(4, "big")
    begin = len(head) + 8  # after the length of the data and their name
    num_others = begin + 4 + len(_END)  # a checksum stands between the data and the end
    found: dict[int, bytes] = {}
    for place, png in enumerate(pngs):
        size = len(png) - num_others
        if (
            size > 0
            and png.startswith(head)
            and png[begin - 8 : begin] == size.to_bytes(4, "big") + b"IDAT"
            and png.endswith(_END)
        ):
            found[place] = png[begin : begin + size]
    return found


def _decode_each(pieces: Sequence[bytes], shape: tuple[int, int, int]) -> NDArray[np.uint8] | None:
    """Have Pillow decode the data of each file without opening it; None if it cannot."""
    height, width, channels = shape
    mode = PNG_MODES[channels]
    try:
        pillow = load_extra("PIL.Image", extra="image", wanted_by="A PNG picture")
        decoded = [
            pillow.frombytes(mode, (width, height), piece, "zip", (mode, 0)).tobytes()
            for piece in pieces
        ]
    except (MissingExtraError, ValueError):  # who asked may know better
        return None
    return np.frombuffer(b"".join(decoded), np.uint8).reshape(len(pieces), height, -1)


def _unfilter(stored: NDArray[np.uint8], channels: int) -> NDArray[np.uint8] | None:
    """Undo the filter that the first byte of each row names, if that does not take too long.

    The same row of all pictures is one piece of memory, so that one goes down the rows quickly.
    """
    count, height, num_bytes = stored.shape[0], stored.shape[1], stored.shape[2] - 1
    kinds = np.zeros((height + 1, count), np.uint8)  # above the first row is one of zeros
    kinds[1:] = stored[:, :, 0].T
    rows = np.zeros((height + 1, count, num_bytes), np.uint8)
    rows[1:] = stored[:, :, 1:].transpose(1, 0, 2)
    levels = _levels(kinds)
    passes = [
        [np.flatnonzero((levels == level) & (kinds == kind)) for kind in (_AVERAGE, _PAETH, _UP)]
        for level in range(int(levels.max()) + 1)
    ]
    num_slow = sum(bool(len(some)) for averages, paeths, _ in passes for some in (averages, paeths))
    if num_slow * (num_bytes // channels) > _STEPS_PER_PICTURE * count:
        return None
    flat = rows.reshape(-1, num_bytes)
    lefts = np.flatnonzero(kinds == _SUB)
    by_pixel = flat[lefts].reshape(len(lefts), num_bytes // channels, channels)
    flat[lefts] = np.add.accumulate(by_pixel, axis=1, dtype=np.uint8).reshape(-1, num_bytes)
    # A row after some that add to the one above is that one, its base, and the sum of them all.
    is_up = kinds == _UP
    sums = rows * is_up[:, :, None]
    bases = np.arange(kinds.size).reshape(kinds.shape)
    for row in range(1, height + 1):  # not by `accumulate`, which goes from picture to picture
        sums[row] += sums[row - 1]
        np.copyto(bases[row], bases[row - 1], where=is_up[row])
    flat_sums, flat_bases = sums.reshape(-1, num_bytes), bases.ravel()
    for averages, paeths, ups in passes:
        if len(averages):
            flat[averages] = _undo_average(flat[averages], flat[averages - count], channels)
        if len(paeths):
            flat[paeths] = _undo_paeth(flat[paeths], flat[paeths - count], channels)
        base = flat_bases[ups]
        flat[ups] = flat[base] + flat_sums[ups] - flat_sums[base]
    return rows[1:].transpose(1, 0, 2)


def _levels(kinds: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Count the rows to be gone through by the pixel that must be done before a row, and itself.

    Those of one level can be done together: what they need is of a lower one, or only sums.
    """
    levels = (kinds >= _AVERAGE).astype(np.int32)
    needs_above = (kinds >= _UP).astype(np.int32)
    for row in range(1, len(kinds)):
        levels[row] += levels[row - 1]
        levels[row] *= needs_above[row]
    return levels


def _undo_average(
    rows: NDArray[np.uint8], above: NDArray[np.uint8], channels: int
) -> NDArray[np.uint8]:
    """Add the mean of left and above, pixel by pixel, for many rows at once."""
    made, over = _by_pixel(rows, channels), _by_pixel(above, channels)
    left: NDArray[Any] = np.zeros_like(made[0])
    for pixel, up in zip(made, over, strict=True):
        pixel += (left + up) >> 1
        pixel &= 255
        left = pixel
    return _by_row(made)


def _undo_paeth(
    rows: NDArray[np.uint8], above: NDArray[np.uint8], channels: int
) -> NDArray[np.uint8]:
    """Add whichever of left, above and above left is nearest to left + above - above left."""
    made, over = _by_pixel(rows, channels), _by_pixel(above, channels)
    corners = np.zeros_like(over)
    corners[1:] = over[:-1]
    rises = over - corners
    distances = np.abs(rises)  # of the left one
    left: NDArray[Any] = np.zeros_like(made[0])
    together = zip(made, over, corners, rises, distances, strict=True)
    for pixel, up, corner, rise, distance in cast("Iterator[tuple[NDArray[Any], ...]]", together):
        step = left - corner
        from_up, from_corner = np.abs(step), np.abs(step + rise)
        others = np.where(from_up <= from_corner, up, corner)
        pixel += np.where(distance <= np.minimum(from_up, from_corner), left, others)
        pixel &= 255
        left = pixel
    return _by_row(made)


def _by_pixel(rows: NDArray[np.uint8], channels: int) -> NDArray[np.int16]:
    """Give the same pixel of all rows side by side, wide enough to add some of them."""
    return np.ascontiguousarray(rows.T, np.int16).reshape(-1, channels, len(rows))


def _by_row(pixels: NDArray[np.int16]) -> NDArray[np.uint8]:
    return pixels.reshape(-1, pixels.shape[2]).T.astype(np.uint8)
