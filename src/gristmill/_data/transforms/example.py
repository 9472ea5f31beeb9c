"""Parsing of records that are `tf.train.Example` messages."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import cast, final

import numpy as np
from numpy.typing import DTypeLike

from gristmill._base.checks import as_int
from gristmill._data.example_proto.parse import Values, parse_example
from gristmill._data.transforms.base import Map
from gristmill.errors import FormatError, MissingFileError, PlanError, PlanTypeError
from gristmill.types import AnyArray, Element, Leaf


@final
@dataclass(frozen=True)
class Feature:
    """Shape and type of one feature of an Example.

    With `shape=None` the feature can have any number of values and becomes an array of one axis;
    with `shape=()` it is a single value, not an array. A feature without values counts as missing
    if `shape` requires some.

    >>> Feature((28, 28), np.uint8)
    Feature(shape=(28, 28), dtype=dtype('uint8'), default=None)

    Args:
        shape: Shape of the values, in C order.
        dtype: `bytes`; `str` for UTF-8 strings; an integer type or `bool`, for features of
            integers that fit; a float type, for features of floats.
        default: Value if the feature is missing: one for all items, or one for each.
        is_raw: Whether the feature is one value of bytes that contains all numbers, in C order and
            little-endian, as `gristmill convert` stores arrays.

    Raises:
        PlanError: If a size is negative, or `default` does not fit the shape and type.
        PlanTypeError: If `shape` or `dtype` is not a possible one.
    """

    shape: tuple[int, ...] | None = ()
    dtype: DTypeLike = bytes
    default: Leaf = None
    is_raw: bool = field(default=False, repr=False)  # not in states, which name the shape

    def __post_init__(self) -> None:
        shape = cast(object, self.shape)
        if shape is not None:
            if not isinstance(shape, tuple | list):
                raise PlanTypeError(
                    "`shape` must be a tuple of sizes, or None for any number of values, "
                    f"got {shape!r}."
                )
            sizes = cast("Sequence[object]", shape)
            object.__setattr__(self, "shape", tuple(as_int("shape", size) for size in sizes))
        object.__setattr__(self, "dtype", _as_dtype(self.dtype))
        default = self.default
        if isinstance(default, np.ndarray):  # arrays have no single truth value for equality
            object.__setattr__(self, "default", cast("AnyArray", default).tolist())
        if default is not None:
            _default(self)


@final
@dataclass(frozen=True)
class ParseExample(Map):
    r"""Parses a serialised `tf.train.Example` into a dict.

    Args:
        features: The features to return, with their shapes and types, which are checked. Without
            it the dict has all features: bytes as lists, numbers as arrays of one axis.

    >>> record = b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07"
    >>> ParseExample().map(record)
    {'label': array([7])}
    >>> ParseExample({"label": Feature((), np.int32)}).map(record)
    {'label': np.int32(7)}

    Raises:
        PlanTypeError: If `features` is not a dict of `Feature`s; or, when a record is parsed, if it
            is not bytes.
    """

    features: Mapping[str, Feature] | None = None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "ParseExample":
        """Load the features that `gristmill convert` writes to `features.json`, next to its shards.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        ...     _ = file.write('{"label": {"dtype": "int32", "shape": []}}'), file.flush()
        ...     ParseExample.read(file.name).features
        {'label': Feature(shape=(), dtype=dtype('int32'), default=None)}

        Args:
            path: The path of `features.json`.

        Raises:
            MissingFileError: If the file does not exist.
            FormatError: If it does not contain features.
        """
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            features = {
                name: Feature(one["shape"], one["dtype"], is_raw=one.get("is_raw") is True)
                for name, one in content.items()
            }
        except FileNotFoundError:
            raise MissingFileError(
                "The file does not exist. Check the path.", path=os.fspath(path)
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                "The file does not contain features, each with a shape and a dtype.",
                path=os.fspath(path),
            ) from error
        return ParseExample(features)

    def __post_init__(self) -> None:
        if self.features is not None:
            object.__setattr__(self, "features", _as_features(self.features))

    def map(self, element: Element) -> dict[str, Leaf]:
        if not isinstance(element, bytes | bytearray | memoryview):
            raise PlanTypeError(
                f"`ParseExample` needs the bytes of a record, got {type(element).__name__}. "
                "Make it the first step after the source."
            )
        found = parse_example(cast(bytes, element))
        if self.features is None:
            return dict(found)
        return {name: _convert(name, feature, found) for name, feature in self.features.items()}


def _as_features(given: object) -> dict[str, Feature]:
    if not isinstance(given, Mapping) or not given:
        raise PlanTypeError(
            f"`features` must be a dict of `Feature`s, or None for all features, got {given!r}."
        )
    for name, feature in cast("Mapping[object, object]", given).items():
        if not isinstance(name, str) or not isinstance(feature, Feature):
            raise PlanTypeError(
                "`features` must have a `Feature(shape, dtype)` for each name, "
                f"got {name!r}: {feature!r}."
            )
    return dict(cast("Mapping[str, Feature]", given))


def _as_dtype(given: DTypeLike) -> DTypeLike:
    try:
        dtype = np.dtype(given)
    except TypeError:
        dtype = np.dtype(np.void)
    if dtype.kind in "SO":
        return bytes
    if dtype.kind == "U":
        return str
    if dtype.kind not in "biu" and "float" not in dtype.name:  # bfloat16 is not of NumPy's kind "f"
        raise PlanTypeError(
            f"`dtype` must be bytes, str, bool, or a type of integers or floats, got {given!r}."
        )
    return dtype


def _convert(name: str, feature: Feature, found: Mapping[str, Values]) -> Leaf:
    """Return one feature in the requested shape and type."""
    values = found.get(name)
    is_missing = values is None or (feature.shape is not None and not len(values))
    if is_missing and feature.default is not None:
        return _default(feature)
    if values is None:
        raise FormatError(
            f"The Example has no feature {name!r}; it has {sorted(found)}. Remove it from "
            "`features`, or set its `default`."
        )
    if feature.is_raw:
        values = _from_bytes(name, feature, values)
    elif feature.shape is not None and len(values) != prod(feature.shape):
        raise FormatError(
            f"Feature {name!r} has {len(values)} values, but a `shape` of {feature.shape} needs "
            f"{prod(feature.shape)}. Use `shape=None` if their number varies."
        )
    if feature.is_raw:
        return _arrange(feature, np.asarray(values))
    if len(values):
        _check_kind(name, feature, values)
    if _kind_of(feature) == "bytes":
        return _arrange(feature, _objects(name, feature, cast("list[bytes]", values)))
    return _arrange(feature, _numbers(name, feature, np.asarray(values)))


def _from_bytes(name: str, feature: Feature, values: Values) -> AnyArray:
    """Return the numbers of an array that is stored as its bytes."""
    dtype = np.dtype(feature.dtype).newbyteorder("<")
    count = None if feature.shape is None else prod(feature.shape)
    data = values[0] if isinstance(values, list) and len(values) == 1 else None
    if (
        data is None
        or len(data) != (len(data) // dtype.itemsize if count is None else count) * dtype.itemsize
    ):
        raise FormatError(
            f"Feature {name!r} does not hold the bytes of one array of type {dtype.name} and shape "
            f"{feature.shape}. Correct its `shape` and `dtype`, or remove `is_raw`."
        )
    # In the order of this machine, and writable.
    return np.frombuffer(data, dtype).astype(dtype.newbyteorder("="))


def _check_kind(name: str, feature: Feature, values: Values) -> None:
    if isinstance(values, list):
        kind, usual = "bytes", "bytes"
    elif values.dtype == np.int64:
        kind, usual = "integers", "np.int64"
    else:
        kind, usual = "floats", "np.float32"
    if kind != _kind_of(feature):
        raise FormatError(
            f"Feature {name!r} holds {kind}, but a `dtype` of {np.dtype(feature.dtype).name} is "
            f"for {_kind_of(feature)}. Use `dtype={usual}`."
        )


def _kind_of(feature: Feature) -> str:
    if feature.dtype in (bytes, str):
        return "bytes"
    return "integers" if np.dtype(feature.dtype).kind in "biu" else "floats"


def _objects(name: str, feature: Feature, values: list[bytes]) -> AnyArray:
    made = np.empty(len(values), object)
    try:
        made[:] = [value.decode() for value in values] if feature.dtype is str else values
    except UnicodeDecodeError:
        raise FormatError(
            f"Feature {name!r} holds bytes that are not valid UTF-8. Use `dtype=bytes`."
        ) from None
    return made


def _numbers(name: str, feature: Feature, values: AnyArray) -> AnyArray:
    with np.errstate(over="ignore"):  # reported below
        made = values.astype(np.dtype(feature.dtype))
    if _kind_of(feature) == "integers":
        is_lost = made != values
    else:  # narrow floats may be rounded, but not to infinity
        is_lost = np.isinf(made) & np.isfinite(values)
    if is_lost.any():
        raise FormatError(
            f"Feature {name!r} holds {values[is_lost.argmax()]}, which {made.dtype} cannot hold. "
            "Use a wider `dtype`."
        )
    return made


def _arrange(feature: Feature, values: AnyArray) -> Leaf:
    if feature.shape is None:
        return values
    return values.reshape(feature.shape) if feature.shape else values[0]


def _default(feature: Feature) -> Leaf:
    """Return a new copy of the default, in the shape and type of the feature."""
    given = feature.default
    if _kind_of(feature) == "bytes":
        is_list = isinstance(given, list | tuple)
        items = list(cast("Sequence[object]", given)) if is_list else [given]
        is_right = all(type(item) is feature.dtype for item in items)
        values = np.empty(len(items), object)
        values[:] = items
    else:
        values, is_right = _as_numbers(feature, given)
    count = len(values) if feature.shape is None else prod(feature.shape)
    if is_right and len(values) == 1:
        values = values.repeat(count)
    if not is_right or len(values) != count:
        raise PlanError(
            f"`default` must be one value of type {np.dtype(feature.dtype).name}, or as many as "
            f"`shape` needs, got {given!r}."
        )
    return _arrange(feature, values)


def _as_numbers(feature: Feature, given: Leaf) -> tuple[AnyArray, bool]:
    """Return numbers in the type of a feature, and whether they kept their values."""
    dtype = np.dtype(feature.dtype)
    try:
        values = np.ravel(given)
        with np.errstate(over="ignore", invalid="ignore"):
            made = values.astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return np.empty(0, dtype), False
    if values.dtype.kind not in "biuf" and values.dtype != dtype:
        return made, not values.size
    if dtype.kind in "biu":
        return made, bool((made == values).all())
    return made, not (np.isinf(made) & np.isfinite(values)).any()
