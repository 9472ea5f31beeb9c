"""`gristmill inspect`: print the format of some files, their columns, and the first records."""

import argparse
import contextlib
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from io import BytesIO
from typing import TextIO, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from gristmill._base.extras import load_extra
from gristmill._base.printable import printable
from gristmill._base.tree import leaves_with_paths
from gristmill._cli.records import (
    are_examples,
    column_parser,
    estimate_bytes,
    read_records,
    sample_indices,
)
from gristmill._cli.sizes import format_size
from gristmill._cli.source_flags import PATH_HELP, SourceOptions, add_source_flags, source_options
from gristmill._cli.terminal_image import render_image, supports_images
from gristmill._data.sources.detect import detect_format, files_of, open_source
from gristmill._data.transforms.image import PillowImage
from gristmill._io.file import FileRef
from gristmill.errors import PlanError
from gristmill.types import AnyArray, Element, RandomAccessDataSource

_SAMPLE_SIZE = 256
_MAX_VALUE_LENGTH = 72
_MAX_LISTED_NUMBERS = 8
_IMAGE_WIDTH = 32
_MIN_IMAGE_SIDE = 8
_MAX_IMAGE_PIXELS = 64 * 10**6
_IMAGE_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n", b"GIF8", b"BM", b"RIFF", b"II*\x00", b"MM\x00*")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `inspect` to its parser."""
    parser.description = (
        "Show the format of some files, the number and sizes of their records, and the first "
        "records."
    )
    parser.add_argument("path", metavar="PATH", help=PATH_HELP)
    parser.add_argument(
        "-n",
        "--records",
        type=int,
        default=3,
        metavar="N",
        help="the number of records to show (default: 3)",
    )
    add_source_flags(parser, path_metavar="PATH")
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> None:
    inspect(parsed.path, count=parsed.records, output=sys.stdout, **source_options(parsed))


def inspect(path: str, *, count: int, output: TextIO, **options: Unpack[SourceOptions]) -> None:
    """Print a summary of some files, and their first records.

    Args:
        path: A file, a folder or a pattern.
        count: The number of records to print.
        output: The stream to print to. Images are shown if it is a terminal with colors.
        **options: Arguments for `open_source`.
    """
    if count < 0:
        raise PlanError(f"`--records` must be at least 0, got {count}.")
    name = options["format"] = options.get("format") or detect_format(path)
    source = open_source(path, **options)
    summary = dict(_summarize(name, source, files_of(path)))
    width = max(map(len, summary))
    for label, value in summary.items():
        output.write(f"{label:{width}}  {printable(value)}\n")
    num_records = min(count, len(source))
    records = read_records(source, range(num_records)) if num_records else []
    shows_images = supports_images(output, os.environ)
    for index, record in enumerate(records):
        output.write(f"\n[{index}]\n")
        for line in _format_record(record, shows_images):
            output.write(f"  {line}\n")


def _summarize(
    name: str, source: RandomAccessDataSource[Element], refs: Sequence[FileRef]
) -> Iterator[tuple[str, str]]:
    yield "format", name
    total_bytes = sum(ref.size for ref in refs)
    first = f"{refs[0].name}{', ...' if len(refs) > 1 else ''}"
    yield "files", f"{len(refs):,} ({format_size(total_bytes)}): {first}"
    yield "records", f"{len(source):,}"
    if not len(source):
        return
    sample = read_records(source, sample_indices(len(source), _SAMPLE_SIZE))
    sizes = [estimate_bytes(record) for record in sample]
    of_sample = "" if len(sample) == len(source) else f" (sample of {len(sample)} records)"
    mean = format_size(sum(sizes) / len(sizes))
    yield "sizes", f"{format_size(min(sizes))} to {format_size(max(sizes))}, mean {mean}{of_sample}"
    parse = column_parser(sample)
    types = _column_types([parse(record) for record in sample])
    yield (
        ("features" if are_examples(sample) else "columns"),
        ", ".join(f"{column}: {types_of_column}" for column, types_of_column in types.items()),
    )


def _column_types(rows: Sequence[Mapping[str, Element]]) -> dict[str, str]:
    """Return a description of the types of each column."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        for name, value in row.items():
            found.setdefault(name, {})[_describe_type(value)] = None
    return {name: " or ".join(_merge_shapes(list(types))) for name, types in found.items()}


def _describe_type(value: object) -> str:
    if isinstance(value, np.ndarray):
        array = cast("AnyArray", value)
        return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if isinstance(value, np.generic):
        return str(cast(np.generic, value).dtype)
    return "null" if value is None else type(value).__name__


def _merge_shapes(types: list[str]) -> list[str]:
    """Merge several shapes of one dtype into one, with `?` for the axes that differ.

    >>> _merge_shapes(["uint8[3, 7]", "uint8[3, 9]", "null"])
    ['uint8[3, ?]', 'null']
    """
    shapes: dict[tuple[str, int], list[list[str]]] = {}
    merged: list[str] = []
    for described in types:
        name, bracket, rest = described.partition("[")
        sizes = rest.removesuffix("]").split(", ")
        shapes.setdefault((name, len(sizes) if bracket else -1), []).append(sizes)
    for (name, num_axes), several in shapes.items():
        if num_axes < 0:
            merged.append(name)
            continue
        axes = zip(*several, strict=True)
        sizes = [axis[0] if len(set(axis)) == 1 else "?" for axis in axes]
        merged.append(f"{name}[{', '.join(sizes)}]")
    return merged


def _format_record(record: Element, shows_images: bool) -> Iterator[str]:
    """Yield a line for each value of a record, and the lines of its images."""
    parse = column_parser([record])
    for name, value in parse(record).items():
        for path, leaf in leaves_with_paths(value, name):
            yield printable(f"{path}: {_format_value(leaf)}")
            if shows_images:
                yield from _image_lines(leaf)


def _format_value(value: object) -> str:
    if isinstance(value, bytes):
        content = _describe_image(value) or _shorten(repr(value[:_MAX_VALUE_LENGTH]))
        return f"{format_size(len(value))}, {content}"
    if isinstance(value, np.ndarray):
        array = cast("AnyArray", value)
        content = ""
        if array.size and array.dtype.kind in "biuf":
            content = f", {array.min()} to {array.max()}"
        if array.ndim == 1 and array.size <= _MAX_LISTED_NUMBERS:
            content = f" {array.tolist()}"
        return f"{_describe_type(array)}{content}"
    if isinstance(value, np.generic):
        scalar = cast(np.generic, value)
        return f"{scalar.item()!r} ({scalar.dtype})"
    return _shorten(repr(value))


def _shorten(string: str) -> str:
    if len(string) <= _MAX_VALUE_LENGTH:
        return string
    return f"{string[: _MAX_VALUE_LENGTH - 4]} ..."


def _describe_image(data: bytes) -> str | None:
    """Return the format and size of an encoded image, or `None` for other bytes."""
    image = _open_image(data)
    return None if image is None else f"{image.format} image of {image.width} x {image.height}"


def _open_image(data: bytes) -> PillowImage | None:
    if not data.startswith(_IMAGE_MAGIC):
        return None
    try:
        pillow = load_extra("PIL.Image", extra="image", wanted_by="Showing images")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Pillow, about large images
            return pillow.open(BytesIO(data))
    except Exception:  # damaged files make Pillow raise anything
        return None


def _image_lines(value: object) -> list[str]:
    pixels: NDArray[np.uint8] | None = None
    if isinstance(value, bytes):
        image = _open_image(value)
        if image is not None and image.width * image.height <= _MAX_IMAGE_PIXELS:
            with contextlib.suppress(Exception):  # as above
                pixels = np.asarray(image.convert("RGB"))
    elif isinstance(value, np.ndarray):
        array = cast("AnyArray", value)
        is_image = array.ndim == 2 or (array.ndim == 3 and array.shape[-1] in (1, 3, 4))
        if is_image and array.dtype == np.uint8 and min(array.shape[:2]) >= _MIN_IMAGE_SIDE:
            pixels = array
    return [] if pixels is None else render_image(pixels, width=_IMAGE_WIDTH).splitlines()
