"""Decode the leaves of LitData's items, and find the tree that they belong to."""

import json
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, pairwise
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

from gristmill.types import AnyArray, Element, Tree

Decode: TypeAlias = Callable[[bytes], Element]

_ARRAY_DTYPES: dict[int, str] = dict(
    enumerate("i1 i2 i4 i8 u1 u2 u4 u8 f2 f4 f8 c8 c16 b1".split())  # noqa: SIM905
)
_TENSOR_DTYPES = {
    0: "f4", 1: "f4", 2: "f8", 3: "f8", 4: "c8", 5: "c8", 6: "c16", 7: "c16", 8: "f2", 9: "f2",
    11: "u1", 12: "i1", 13: "i2", 14: "i2", 15: "i4", 16: "i4", 17: "i8", 18: "i8", 19: "b1",
    20: "u2",
}  # fmt: skip
_ENCODED = frozenset("audio bytes file image jpeg mesh nifti pdf tifffile video".split())  # noqa: SIM905
"""Kinds of leaves that stay as they are stored: bytes, or the contents of a media file."""

_PIL_CHANNELS = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,), "YCbCr": (3,), "HSV": (3,)}


def find_decoder(kind: str) -> Decode | None:
    """Return the function that decodes a leaf; `None` if it cannot be decoded safely.

    Args:
        kind: The name in the index of the dataset, such as "int" or "no_header_tensor:17".
    """
    name, _, number = kind.partition(":")
    if name in _ENCODED:
        return bytes
    if name in ("no_header_numpy", "no_header_tensor"):
        dtypes = _ARRAY_DTYPES if name.endswith("numpy") else _TENSOR_DTYPES
        dtype = {str(key): dtype for key, dtype in dtypes.items()}.get(number)
        return None if dtype is None else partial(_decode_vector, dtype=np.dtype(f"<{dtype}"))
    return _DECODERS.get(name)


class ItemTree(NamedTuple):
    """The tree of an item."""

    build: Callable[[Sequence[Element]], Tree]
    """Builds it from its leaves."""
    num_leaves: int


def find_tree(spec: str) -> ItemTree:
    """Return the tree of an item.

    >>> leaf = '{"type": null, "context": null, "children_spec": []}'
    >>> find_tree('[1, {"type": "builtins.tuple", "context": "null", "children_spec": ['
    ...           f'{leaf}, {leaf}]}}]').build([1, 2])
    (1, 2)

    Args:
        spec: The description of the tree in the index of the dataset, as PyTorch writes it.

    Raises:
        ValueError: The tree has nodes other than dicts, lists and tuples.
    """
    version, root = json.loads(spec)
    if version != 1:
        raise ValueError(f"its tree is in version {version!r}")
    build = _builder(root)
    counter = count()
    build(counter)  # its leaves are numbers

    def build_from(leaves: Sequence[Element]) -> Tree:
        return build(iter(leaves))

    return ItemTree(build_from, next(counter))


def _builder(spec: Any) -> Callable[[Iterator[Element]], Tree]:
    kind = spec["type"]
    if kind is None:
        return next
    children = [_builder(child) for child in spec["children_spec"]]
    if kind in ("builtins.dict", "collections.OrderedDict"):
        keys = json.loads(spec["context"])
        if len(dict.fromkeys(keys)) != len(children):
            raise ValueError("a dict of its tree has other keys than values")
        return lambda leaves: {
            key: child(leaves) for key, child in zip(keys, children, strict=True)
        }
    if kind == "builtins.list":
        return lambda leaves: [child(leaves) for child in children]
    if kind == "builtins.tuple":
        return lambda leaves: tuple(child(leaves) for child in children)
    raise ValueError(f"its tree has a node of type {kind!r:.100}")


def _decode_vector(data: bytes, *, dtype: np.dtype[Any]) -> AnyArray:
    return np.frombuffer(bytearray(data), dtype)


def _decode_array(data: bytes, *, dtypes: dict[int, str], order: str) -> AnyArray:
    """Decode an array of any shape: the number of its dtype, that of its axes, and their sizes."""
    number, num_axes = struct.unpack_from(f"{order}2I", data)
    shape = struct.unpack_from(f"{order}{num_axes}I", data, 8)
    values = bytearray(data[8 + 4 * num_axes :])
    return np.frombuffer(values, np.dtype(f"<{dtypes[number]}")).reshape(shape)


def _decode_pixels(data: bytes) -> AnyArray:
    width, height, mode_bytes = struct.unpack_from("<3I", data)
    mode = data[12 : 12 + mode_bytes].decode()
    if mode not in _PIL_CHANNELS:
        raise ValueError(f"images of mode {mode!r} are not read")
    pixels = np.frombuffer(bytearray(data[12 + mode_bytes :]), np.uint8)
    return pixels.reshape(height, width, *_PIL_CHANNELS[mode])


def _decode_images(data: bytes) -> list[bytes]:
    (count,) = struct.unpack_from("<I", data)
    ends = np.cumsum([4 + 4 * count, *struct.unpack_from(f"<{count}I", data, 4)]).tolist()
    if ends[-1] != len(data):
        raise ValueError("the sizes of the images do not add up")
    return [data[start:stop] for start, stop in pairwise(ends)]


def _decode_scalar(data: bytes, *, form: str) -> Element:
    return struct.unpack(form, data)[0]


def _decode_nested(data: bytes) -> Element:
    """Decode a list or a dict: JSON, or LitData's form of it, which begins with a tag."""
    if not data or data[0] > 0x20:
        return json.loads(data)
    reader = _NestedReader(data)
    value = reader.value()
    if reader.at != len(data):
        raise ValueError("something follows the end of a value")
    return value


class _NestedReader:
    """Reads values one after the other. Each begins with a tag of one byte."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def value(self) -> Element:
        tag = self._one("B")
        if tag in (0, 1, 2, 3, 4, 5, 6):
            return self._items(tag, self._one("I"))
        scalar = {7: self._text, 8: lambda: self._one("q"), 9: lambda: self._one("d"),
                  10: lambda: bool(self._one("B")), 11: lambda: None}  # fmt: skip
        return cast("Callable[[], Element]", scalar[tag])()

    def _items(self, tag: int, count: int) -> Element:
        """Read what follows the tag of a container and its size."""
        match tag:
            case 0:
                return json.loads(self._take(count))
            case 1:
                return [self._text() for _ in self._upto(count, 4)]
            case 2 | 3:
                return np.frombuffer(self._take(8 * count), "<i8" if tag == 2 else "<f8").tolist()
            case 4:
                return [bool(byte) for byte in self._take(count)]
            case 5:
                return {self._text(): self.value() for _ in self._upto(count, 5)}
            case _:
                keys = [self._text() for _ in self._upto(self._one("I"), 4)]
                return [{key: self._field() for key in keys} for _ in self._upto(count, len(keys))]

    def _field(self) -> Element:
        """Read a value in a list of dicts, which has tags of its own."""
        tag = self._one("B")
        field = {0x10: lambda: None, 0x11: self._text, 0x12: lambda: self._one("q"),
                 0x13: lambda: self._one("d"), 0x14: lambda: bool(self._one("B"))}  # fmt: skip
        return cast("Callable[[], Element]", field[tag])()

    def _upto(self, count: int, min_bytes: int) -> range:
        """Return a range of `count`, after a check that as many items may follow."""
        if count * max(min_bytes, 1) > len(self._data) - self.at:
            raise ValueError("the data end before the last item")
        return range(count)

    def _text(self) -> str:
        return self._take(self._one("I")).decode()

    def _one(self, form: str) -> Any:
        (value,) = struct.unpack_from(f"<{form}", self._data, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def _take(self, num_bytes: int) -> bytes:
        taken = self._data[self.at : self.at + num_bytes]
        if len(taken) < num_bytes:
            raise ValueError("the data end inside a value")
        self.at += num_bytes
        return taken


_DECODERS: dict[str, Decode] = {
    "str": lambda data: data.decode(),
    "text": lambda data: data.decode(),
    "int": partial(_decode_scalar, form="<q"),
    "float": partial(_decode_scalar, form="<d"),
    "bool": partial(_decode_scalar, form="<?"),
    "json": _decode_nested,
    "pil": _decode_pixels,
    "jpeg_array": _decode_images,
    "numpy": partial(_decode_array, dtypes=_ARRAY_DTYPES, order="<"),
    "tensor": partial(_decode_array, dtypes=_TENSOR_DTYPES, order=">"),
}
