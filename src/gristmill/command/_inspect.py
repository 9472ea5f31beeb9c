"""Tell what is in a file, and show the first records as people can read them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._extras import load_extra
from gristmill._picture import can_show, picture
from gristmill._tree import leaves_with_paths
from gristmill.command._records import (
    are_examples,
    columns_reader,
    read_records,
    some_indices,
    weigh,
)
from gristmill.command._sizes import size_text
from gristmill.errors import MissingExtraError, PlanError
from gristmill.files import FileRef
from gristmill.sources import detect_format, files_of, open_source
from gristmill.types import Element

_SAMPLE = 256
_TEXT = 72
_NUMBERS = 8
_PICTURE_WIDTH = 32
_LARGEST_PICTURE = 64 * 10**6
_IMAGES = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"RIFF", b"II*\x00", b"MM\x00*")


def inspect(path: str, *, count: int, output: TextIO, **options: Any) -> None:
    """Write the format, the files, the records and their sizes, and the first `count` of them."""
    if count < 0:
        raise PlanError(f"`--records` must be at least 0, got {count}.")
    name = options.get("format") or detect_format(path)
    source = open_source(path, **dict[str, Any]({**options, "format": name}))
    lines = dict(_summary(name, source, files_of(path)))
    width = max(map(len, lines))
    for label, told in lines.items():
        output.write(f"{label:{width}}  {told}\n")
    length = min(count, len(source))
    records = read_records(source, range(length)) if length else []
    shows_pictures = can_show(output, os.environ)
    for number, record in enumerate(records):
        output.write(f"\n[{number}]\n")
        for line in _lines(record, shows_pictures):
            output.write(f"  {line}\n")


def _summary(name: str, source: Any, refs: Sequence[FileRef]) -> Iterator[tuple[str, str]]:
    yield "format", name
    total = sum(ref.size for ref in refs)
    first = f"{refs[0].name}{', ...' if len(refs) > 1 else ''}"
    yield "files", f"{len(refs):,} ({size_text(total)}): {first}"
    yield "records", f"{len(source):,}"
    if not len(source):
        return
    sample = read_records(source, some_indices(len(source), _SAMPLE))
    weights = [weigh(record) for record in sample]
    about = "" if len(sample) == len(source) else f", of {len(sample)} records"
    mean = size_text(sum(weights) / len(weights))
    yield "sizes", f"{size_text(min(weights))} to {size_text(max(weights))}, mean {mean}{about}"
    is_example = are_examples(sample)
    read = columns_reader(sample)
    kinds = _kinds([read(record) for record in sample])
    yield (
        ("features" if is_example else "holds"),
        ", ".join(f"{key}: {kind}" for key, kind in kinds.items()),
    )


def _kinds(rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Say what each column holds."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, {})[_kind(value)] = None
    return {name: " or ".join(_merge_shapes(list(kinds))) for name, kinds in found.items()}


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if isinstance(value, np.generic):
        return str(cast(Any, value).dtype)
    return "null" if value is None else type(value).__name__


def _merge_shapes(kinds: list[str]) -> list[str]:
    """Write many shapes of one type as one with gaps.

    >>> _merge_shapes(["uint8[3, 7]", "uint8[3, 9]", "null"])
    ['uint8[3, ?]', 'null']
    """
    shapes: dict[tuple[str, int], list[list[str]]] = {}
    merged: list[str] = []
    for kind in kinds:
        name, bracket, rest = kind.partition("[")
        sizes = rest.removesuffix("]").split(", ")
        shapes.setdefault((name, len(sizes) if bracket else -1), []).append(sizes)
    for (name, rank), several in shapes.items():
        if rank < 0:
            merged.append(name)
            continue
        axes = zip(*several, strict=True)
        told = [sizes[0] if len(set(sizes)) == 1 else "?" for sizes in axes]
        merged.append(f"{name}[{', '.join(told)}]")
    return merged


def _lines(record: Element, shows_pictures: bool) -> Iterator[str]:
    """Show a record: a line for each value, and pictures where there are some."""
    read = columns_reader([record])
    for name, value in read(record).items():
        for path, leaf in leaves_with_paths(value, name):
            yield f"{path}: {_value(leaf)}"
            if shows_pictures:
                yield from _picture_lines(leaf)


def _value(value: Any) -> str:
    if isinstance(value, bytes):
        kind = _image_kind(value)
        told = kind or _shorten(repr(value[:_TEXT]))
        return f"{size_text(len(value))}, {told}"
    if isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        told = ""
        if array.size and array.dtype.kind in "biuf":
            told = f", {array.min()} to {array.max()}"
        if array.ndim == 1 and array.size <= _NUMBERS:
            told = f" {array.tolist()}"
        return f"{_kind(array)}{told}"
    if isinstance(value, np.generic):
        scalar = cast(Any, value)
        return f"{scalar.item()!r} ({scalar.dtype})"
    return _shorten(repr(value))


def _shorten(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 4]} ..."


def _image_kind(data: bytes) -> str | None:
    """Tell the size and format of an encoded image, if that is what it is."""
    image = _open_image(data)
    return None if image is None else f"{image.format} image of {image.width} x {image.height}"


def _open_image(data: bytes) -> Any:
    if not data.startswith(_IMAGES):
        return None
    try:
        pillow = load_extra("PIL.Image", extra="image", wanted_by="Showing images")
        return pillow.open(BytesIO(data))
    except (MissingExtraError, OSError, ValueError, SyntaxError):
        return None


def _picture_lines(value: Any) -> list[str]:
    pixels: Any = None
    if isinstance(value, bytes):
        image = _open_image(value)
        if image is not None and image.width * image.height <= _LARGEST_PICTURE:
            pixels = np.asarray(image.convert("RGB"))
    elif isinstance(value, np.ndarray):
        array = cast("NDArray[Any]", value)
        is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (1, 3, 4))
        if is_image and array.dtype == np.uint8 and min(array.shape[:2]) >= 8:
            pixels = array
    return [] if pixels is None else picture(pixels, width=_PICTURE_WIDTH).splitlines()
