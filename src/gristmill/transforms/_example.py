"""Records that are `tf.train.Example` messages, taken apart."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, cast, final

import numpy as np
from numpy.typing import DTypeLike, NDArray

from gristmill._check import as_int
from gristmill._example import Values, parse_example
from gristmill.errors import FormatError, MissingFileError, PlanError, PlanTypeError
from gristmill.transforms._base import Map


@final
@dataclass(frozen=True)
class Feature:
    """What one feature of an Example is to become.

    Without `shape` (None) it may have any number of values, and becomes an array of one axis; with
    `shape=()` it is one value and no array. A feature without any value counts as missing where
    `shape` asks for some.

    >>> Feature((28, 28), np.uint8)
    Feature(shape=(28, 28), dtype=dtype('uint8'), default=None)

    Args:
        shape: What the values are arranged in, the last axis fastest.
        dtype: `bytes`; `str` for text in UTF-8; an integer type or `bool`, for features of
            integers that fit; a float type, for features of floats.
        default: What to take where the feature is missing: one value for all, or all of them.
    """

    shape: tuple[int, ...] | None = ()
    dtype: DTypeLike = bytes
    default: Any = None

    def __post_init__(self) -> None:
        shape: Any = self.shape
        if shape is not None:
            if not isinstance(shape, tuple | list):
                raise PlanTypeError(
                    "`shape` must be a tuple of sizes, or None for any number of values, "
                    f"got {shape!r}."
                )
            sizes = cast("Sequence[Any]", shape)
            object.__setattr__(self, "shape", tuple(as_int("shape", size) for size in sizes))
        object.__setattr__(self, "dtype", _as_dtype(self.dtype))
        default: Any = self.default
        if isinstance(default, np.ndarray):  # arrays cannot be told to be equal
            object.__setattr__(self, "default", cast("NDArray[Any]", default).tolist())
        if default is not None:
            _default(self)


@final
@dataclass(frozen=True)
class ParseExample(Map):
    r"""Take a serialised `tf.train.Example` apart, into a dict.

    With `features`, these are what the dict has, checked and in the shapes and types they say.
    Without, it has all there are: features of bytes as lists, of numbers as arrays of one axis.

    >>> record = b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07"
    >>> ParseExample().map(record)
    {'label': array([7])}
    >>> ParseExample({"label": Feature((), np.int32)}).map(record)
    {'label': np.int32(7)}
    """

    features: Mapping[str, Feature] | None = None

    @staticmethod
    def read(path: str | os.PathLike[str]) -> "ParseExample":
        """Take the features that `gristmill convert` wrote to `features.json`, beside its shards.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        ...     _ = file.write('{"label": {"dtype": "int32", "shape": []}}'), file.flush()
        ...     ParseExample.read(file.name).features
        {'label': Feature(shape=(), dtype=dtype('int32'), default=None)}
        """
        try:
            with open(path, encoding="utf-8") as file:
                told = json.load(file)
            features = {name: Feature(one["shape"], one["dtype"]) for name, one in told.items()}
        except FileNotFoundError:
            raise MissingFileError(
                "There is no such file. Check the path.", path=os.fspath(path)
            ) from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise FormatError(
                "This is not a file of features: a shape and a dtype for each.",
                path=os.fspath(path),
            ) from error
        return ParseExample(features)

    def __post_init__(self) -> None:
        if self.features is not None:
            object.__setattr__(self, "features", _as_features(self.features))

    def map(self, element: Any) -> dict[str, Any]:
        if not isinstance(element, bytes | bytearray | memoryview):
            raise PlanTypeError(
                f"`ParseExample` takes the bytes of a record, got {type(element).__name__}. "
                "Let it be the first step after the source."
            )
        found = parse_example(cast(bytes, element))
        if self.features is None:
            return dict(found)
        return {name: _take(name, feature, found) for name, feature in self.features.items()}


def _as_features(given: Any) -> dict[str, Feature]:
    if not isinstance(given, Mapping) or not given:
        raise PlanTypeError(
            f"`features` must be a dict of the features to take, or None for all, got {given!r}."
        )
    features = dict(cast("Mapping[Any, Any]", given))
    for name, feature in features.items():
        if not isinstance(name, str) or not isinstance(feature, Feature):
            raise PlanTypeError(
                "`features` must have a `Feature(shape, dtype)` for each name, "
                f"got {name!r}: {feature!r}."
            )
    return features


def _as_dtype(given: DTypeLike) -> Any:
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


def _take(name: str, feature: Feature, found: Mapping[str, Values]) -> Any:
    """Give one feature as it was asked for."""
    values = found.get(name)
    is_missing = values is None or (feature.shape is not None and not len(values))
    if is_missing and feature.default is not None:
        return _default(feature)
    if values is None:
        raise FormatError(
            f"The Example has no feature {name!r}, but has {sorted(found)}. Take it out of "
            "`features`, or give it a `default`."
        )
    if feature.shape is not None and len(values) != prod(feature.shape):
        raise FormatError(
            f"Feature {name!r} has {len(values)} values, and a `shape` of {feature.shape} takes "
            f"{prod(feature.shape)}. Use `shape=None` where their number varies."
        )
    if len(values):
        _check_kind(name, feature, values)
    if _kind_of(feature) == "bytes":
        return _arrange(feature, _objects(name, feature, cast("list[bytes]", values)))
    return _arrange(feature, _numbers(name, feature, np.asarray(values)))


def _check_kind(name: str, feature: Feature, values: Values) -> None:
    if isinstance(values, list):
        kind, usual = "bytes", "bytes"
    elif values.dtype == np.int64:
        kind, usual = "integers", "np.int64"
    else:
        kind, usual = "floats", "np.float32"
    if kind != _kind_of(feature):
        raise FormatError(
            f"Feature {name!r} holds {kind}, and a `dtype` of {np.dtype(feature.dtype).name} is "
            f"for {_kind_of(feature)}. Use `dtype={usual}`."
        )


def _kind_of(feature: Feature) -> str:
    if feature.dtype in (bytes, str):
        return "bytes"
    return "integers" if np.dtype(feature.dtype).kind in "biu" else "floats"


def _objects(name: str, feature: Feature, values: list[bytes]) -> NDArray[Any]:
    made = np.empty(len(values), object)
    try:
        made[:] = [value.decode() for value in values] if feature.dtype is str else values
    except UnicodeDecodeError:
        raise FormatError(
            f"Feature {name!r} holds bytes that are not text in UTF-8. Use `dtype=bytes`."
        ) from None
    return made


def _numbers(name: str, feature: Feature, values: NDArray[Any]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # told below
        made = values.astype(np.dtype(feature.dtype))
    if _kind_of(feature) == "integers":
        is_lost = made != values
    else:  # who asks for short floats has them rounded, but not to infinity
        is_lost = np.isinf(made) & np.isfinite(values)
    if is_lost.any():
        raise FormatError(
            f"Feature {name!r} holds {values[is_lost.argmax()]}, which {made.dtype} cannot hold. "
            "Use a wider `dtype`."
        )
    return made


def _arrange(feature: Feature, values: NDArray[Any]) -> Any:
    if feature.shape is None:
        return values
    return values.reshape(feature.shape) if feature.shape else values[0]


def _default(feature: Feature) -> Any:
    """Give the default in the shape and type of the feature, anew for each who asks."""
    given = feature.default
    if _kind_of(feature) == "bytes":
        items = list(cast("Sequence[Any]", given)) if isinstance(given, list | tuple) else [given]
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
            f"`shape` takes, got {given!r}."
        )
    return _arrange(feature, values)


def _as_numbers(feature: Feature, given: Any) -> tuple[NDArray[Any], bool]:
    """Give numbers in the type of a feature, and whether they mean the same there."""
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
