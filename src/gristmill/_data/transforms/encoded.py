"""Find the bytes of an encoded file (an image, a sound, a video) in an element."""

from collections.abc import Callable, Mapping
from typing import cast

from gristmill._base.checks import as_kind
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element


def fields_at(element: Element, key: str, name: str) -> Mapping[str, Element]:
    """Return an element that is a dict with a key.

    Raises:
        PlanTypeError: The element is not a dict.
        PlanError: It has no such key.
    """
    if not isinstance(element, Mapping):
        raise PlanTypeError(
            f"`{name}` needs a dict with the key {key!r}, got {type(element).__name__}. "
            "Pass `key=None` if elements are the bytes themselves."
        )
    fields = cast("Mapping[str, Element]", element)
    if key not in fields:
        raise PlanError(
            f"`key` must be a key of the element, got {key!r}; it has "
            f"{', '.join(map(repr, fields))}."
        )
    return fields


def decode_at_key(
    element: Element, key: str | None, name: str, decode: Callable[[Element], Element]
) -> Element:
    """Decode the element, or its value at a key."""
    if key is None:
        return decode(element)
    fields = fields_at(element, key, name)
    return {**fields, key: decode(fields[key])}


def bytes_of(value: Element, kind: str, name: str) -> tuple[bytes, str | None]:
    """Return the bytes of a file, and its path if that is known.

    >>> bytes_of({"bytes": b"abc", "path": "a.jpg"}, "An image", "DecodeImage")
    (b'abc', 'a.jpg')

    Args:
        value: The bytes of the file, or a value of Hugging Face's columns of files.
        kind: What the file is, as the start of a sentence.
        name: The name of the transformation.

    Raises:
        PlanTypeError: If `value` is something else.
    """
    data, path = value, None
    if isinstance(value, Mapping) and "bytes" in value:
        struct = cast("Mapping[str, Element]", value)
        data, path = struct["bytes"], struct.get("path")
    if not isinstance(data, bytes | bytearray | memoryview):
        raise PlanTypeError(
            f"{kind} must be the bytes of a file, got {type(data).__name__}. Remove `{name}` if "
            "they are already decoded."
        )
    return bytes(cast(bytes, data)), path


def check_key(key: object) -> None:
    """Raise unless `key` is a string or `None`."""
    if key is not None:
        as_kind("key", key, str, remedy="Pass the name of a field, or None.")
