"""Decodes many small PNG images of one size at a time.

For an image of 28 x 28 pixels, Pillow takes several times as long to open the file as to decode it.
Here only the decompression is done one by one. PNG filters store a row as its difference from the
pixel to the left, from the row above, or from both. They are undone for the rows of all images at
once: first for rows that need no row above, then for the rows below those, and so on.
"""

import zlib
from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gristmill._base.extras import load_extra
from gristmill.errors import MissingExtraError
from gristmill.types import AnyArray

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_END = b"\x00\x00\x00\x00IEND\xaeB`\x82"
_COLOR_TYPES = {1: 0, 3: 2}
"""PNG color types of greyscale and RGB images, by the number of channels."""
PNG_MODES = {1: "L", 3: "RGB"}
"""Pillow modes of images of 8 bits, by the number of channels."""

_NONE, _SUB, _UP, _AVERAGE, _PAETH = range(5)

_MAX_STEPS_PER_IMAGE = 4
"""Up to this many steps, each over one pixel of many rows, NumPy takes less time than Pillow."""


def png_shape(png: bytes) -> tuple[int, int, int] | None:
    """Return the height, width and channels of a PNG file, or None if it is of an unsupported kind.

    >>> sizes_and_kind = bytes([0, 0, 0, 2, 0, 0, 0, 1, 8, 0])
    >>> png_shape(_SIGNATURE + bytes([0, 0, 0, 13]) + b"IHDR" + sizes_and_kind)
    (1, 2, 1)
    """
    if not png.startswith(_SIGNATURE) or png[12:16] != b"IHDR" or png[24:25] != b"\x08":
        return None
    for channels, color_type in _COLOR_TYPES.items():
        if png[25:26] == bytes([color_type]):
            return int.from_bytes(png[20:24], "big"), int.from_bytes(png[16:20], "big"), channels
    return None


def decode_pngs(
    pngs: Sequence[bytes], shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    """Decode images of 8 bits into one array.

    Images of another size or kind, with several data chunks, or damaged are not decoded.

    >>> import io
    >>> import PIL.Image
    >>> file = io.BytesIO()
    >>> PIL.Image.new("L", (2, 1), 7).save(file, "png")
    >>> images, is_decoded = decode_pngs([file.getvalue(), b"no image"], (1, 2, 1))
    >>> images[0].tolist(), is_decoded.tolist()
    ([[[7], [7]]], [True, False])

    Args:
        pngs: The bytes of each file.
        shape: Height, width, and number of channels, 1 or 3.

    Returns:
        The images, and which of them are decoded.
    """
    height, width, channels = shape
    images = np.empty((len(pngs), *shape), np.uint8)
    is_decoded = np.zeros(len(pngs), np.bool_)
    if channels not in PNG_MODES or not height * width:
        return images, is_decoded
    compressed = _find_compressed_rows(pngs, shape)
    row_bytes = 1 + width * channels
    num_bytes = height * row_bytes
    decompressed: dict[int, bytes] = {}
    for index, data in compressed.items():
        try:
            stream = zlib.decompressobj()
            rows = stream.decompress(data, num_bytes + 1)  # no more, whatever the data contain
        except zlib.error:
            continue
        if len(rows) == num_bytes and stream.eof:
            decompressed[index] = rows
    stored = np.frombuffer(b"".join(decompressed.values()), np.uint8)
    stored = stored.reshape(-1, height, row_bytes)
    indices = np.fromiter(decompressed, np.int64)
    has_known_filters = (stored[:, :, 0] <= _PAETH).all(axis=1)
    if not has_known_filters.all():
        stored, indices = stored[has_known_filters], indices[has_known_filters]
    if not len(indices):
        return images, is_decoded
    pixels = _unfilter(stored, channels)
    if pixels is None:
        pixels = _decode_with_pillow([compressed[index] for index in indices.tolist()], shape)
        if pixels is None:
            return images, is_decoded
    images[indices] = pixels.reshape(-1, *shape)
    is_decoded[indices] = True
    return images, is_decoded


def _find_compressed_rows(pngs: Sequence[bytes], shape: tuple[int, int, int]) -> dict[int, bytes]:
    """Return the compressed rows of files that consist of a header, one data chunk and an end.

    The keys are the indices of the files.
    """
    height, width, channels = shape
    sizes = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    header = b"IHDR" + sizes + bytes([8, _COLOR_TYPES[channels], 0, 0, 0])
    head = _SIGNATURE + b"\x00\x00\x00\x0d" + header + zlib.crc32(header).to_bytes(4, "big")
    begin = len(head) + 8  # after the length and the name of the data chunk
    num_others = begin + 4 + len(_END)  # a checksum is between the data and the end
    found: dict[int, bytes] = {}
    for index, png in enumerate(pngs):
        size = len(png) - num_others
        if (
            size > 0
            and png.startswith(head)
            and png[begin - 8 : begin] == size.to_bytes(4, "big") + b"IDAT"
            and png.endswith(_END)
        ):
            found[index] = png[begin : begin + size]
    return found


def _decode_with_pillow(
    compressed: Sequence[bytes], shape: tuple[int, int, int]
) -> NDArray[np.uint8] | None:
    """Decode compressed rows with Pillow without opening files, or return None if it cannot."""
    height, width, channels = shape
    mode = PNG_MODES[channels]
    try:
        pillow = load_extra("PIL.Image", extra="image", wanted_by="A PNG image")
        decoded = [
            pillow.frombytes(mode, (width, height), data, "zip", (mode, 0)).tobytes()
            for data in compressed
        ]
    except (MissingExtraError, ValueError):  # the caller may have another decoder
        return None
    return np.frombuffer(b"".join(decoded), np.uint8).reshape(len(compressed), height, -1)


def _unfilter(stored: NDArray[np.uint8], channels: int) -> NDArray[np.uint8] | None:
    """Undo the filter that the first byte of each row names, or return None if that is too slow.

    The same row of all images is contiguous in memory, so that iterating over rows is fast.
    """
    count, height, num_bytes = stored.shape[0], stored.shape[1], stored.shape[2] - 1
    kinds = np.zeros((height + 1, count), np.uint8)  # a row of zeros is above the first
    kinds[1:] = stored[:, :, 0].T
    rows = np.zeros((height + 1, count, num_bytes), np.uint8)
    rows[1:] = stored[:, :, 1:].transpose(1, 0, 2)
    levels = _get_levels(kinds)
    passes = [
        [np.flatnonzero((levels == level) & (kinds == kind)) for kind in (_AVERAGE, _PAETH, _UP)]
        for level in range(int(levels.max()) + 1)
    ]
    num_slow = sum(bool(len(chosen)) for *slow, _ in passes for chosen in slow)
    if num_slow * (num_bytes // channels) > _MAX_STEPS_PER_IMAGE * count:
        return None
    flat = rows.reshape(-1, num_bytes)
    lefts = np.flatnonzero(kinds == _SUB)
    by_pixel = flat[lefts].reshape(len(lefts), num_bytes // channels, channels)
    flat[lefts] = np.add.accumulate(by_pixel, axis=1, dtype=np.uint8).reshape(-1, num_bytes)
    # A row at the end of consecutive "up" rows is the row above them, its base, plus their sum.
    is_up = kinds == _UP
    sums = rows * is_up[:, :, None]
    bases = np.arange(kinds.size).reshape(kinds.shape)
    for row in range(1, height + 1):  # `accumulate` would iterate over the images instead
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


def _get_levels(kinds: NDArray[np.uint8]) -> NDArray[np.int32]:
    """Return for each row how many rows, up to itself, must be unfiltered pixel by pixel for it.

    Rows of one level can be unfiltered together: they need only rows of lower levels, or sums.
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
    pixels, ups = _group_by_pixel(rows, channels), _group_by_pixel(above, channels)
    left: AnyArray = np.zeros_like(pixels[0])
    for pixel, up in zip(pixels, ups, strict=True):
        pixel += (left + up) >> 1
        pixel &= 255
        left = pixel
    return _group_by_row(pixels)


def _undo_paeth(
    rows: NDArray[np.uint8], above: NDArray[np.uint8], channels: int
) -> NDArray[np.uint8]:
    """Add the one of left, above and above left that is nearest to left + above - above left."""
    pixels, ups = _group_by_pixel(rows, channels), _group_by_pixel(above, channels)
    corners = np.zeros_like(ups)
    corners[1:] = ups[:-1]
    rises = ups - corners
    distances = np.abs(rises)  # from the estimate to the left pixel
    left: AnyArray = np.zeros_like(pixels[0])
    together = zip(pixels, ups, corners, rises, distances, strict=True)
    for pixel, up, corner, rise, distance in cast("Iterator[tuple[AnyArray, ...]]", together):
        step = left - corner
        from_up, from_corner = np.abs(step), np.abs(step + rise)
        others = np.where(from_up <= from_corner, up, corner)
        pixel += np.where(distance <= np.minimum(from_up, from_corner), left, others)
        pixel &= 255
        left = pixel
    return _group_by_row(pixels)


def _group_by_pixel(rows: NDArray[np.uint8], channels: int) -> NDArray[np.int16]:
    """Return the same pixel of all rows next to each other, in a dtype that sums fit into."""
    return np.ascontiguousarray(rows.T, np.int16).reshape(-1, channels, len(rows))


def _group_by_row(pixels: NDArray[np.int16]) -> NDArray[np.uint8]:
    return pixels.reshape(-1, pixels.shape[2]).T.astype(np.uint8)
