"""How each column of a dataset of Hugging Face is read, by its feature and the dataset's format.

numbers    by us: scalars, lists, arrays, as one array for many rows
texts      by us: Python's own
values     by us, one by one: what else Arrow holds, as sources of files give it
pictures   by us, one by one
theirs     by HF, one by one, and then made NumPy: what a format does to all other types
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from gristmill._arrow import is_text
from gristmill._extras import load_extra
from gristmill.adapters._arrow_table import dense_type
from gristmill.errors import PlanError

TABLES = ("arrow", "pandas", "polars")
"""Formats whose rows are tables, which no batch can be made of."""


class Reading(NamedTuple):
    """How one column is read."""

    name: str
    how: Literal["numbers", "texts", "values", "pictures", "theirs"]
    shape: tuple[int | None, ...] = ()
    """Of arrays that are stored as lists of lists."""
    dtype: np.dtype[Any] | None = None
    """What numbers are cast to, if to anything."""
    mode: str | None = None
    """Of pictures."""
    is_planar: bool = False
    """Whether the channels of a picture come first."""
    keeps_nulls: bool = True
    """Whether a null is None; else it is what HF makes of it, such as NaN."""


class Format(NamedTuple):
    """What `set_format` was told; `None` is the type of one that changes nothing."""

    type: str | None
    options: Mapping[str, Any]
    integers: np.dtype[Any] = np.dtype(np.int64)
    """What integers become in a format of tensors."""


def plan_readings(dataset: Any) -> list[Reading]:
    """Give the columns that the format of a dataset lets through, in HF's own order."""
    told = dataset.format
    form = Format(told["type"], dict(told["format_kwargs"]), _integers(told["type"]))
    chosen = [name for name in dataset.column_names if name in set(told["columns"])]
    readings = [_reading(dataset, name, form) for name in chosen]
    if told["output_all_columns"]:
        others = [name for name in dataset.column_names if name not in set(chosen)]
        readings += [_reading(dataset, name, Format(None, {})) for name in others]
    return readings


def check_format(kind: str | None) -> None:
    """Refuse a format whose rows are no dicts."""
    if kind in TABLES:
        raise PlanError(
            f"`dataset` has the format {kind!r}, in which a row is a table. Pass "
            "`dataset.with_format(None)`, or `dataset.with_format('numpy')`."
        )


def _integers(kind: str | None) -> np.dtype[Any]:
    jax: Any = sys.modules.get("jax") if kind == "jax" else None
    is_wide = kind != "jax" or (jax is not None and jax.config.jax_enable_x64)
    return np.dtype(np.int64 if is_wide else np.int32)


def _reading(dataset: Any, name: str, form: Format) -> Reading:
    features = load_extra(
        "datasets.features.features", extra="huggingface", wanted_by="`from_huggingface`"
    )
    feature = dataset.features[name]
    keeps_nulls = form.type is None
    if features.require_decoding(feature):
        is_image = type(feature).__name__ == "Image" and not form.options
        if not is_image:
            return Reading(name, "theirs")
        is_planar = form.type == "torch"
        return Reading(name, "pictures", mode=feature.mode, is_planar=is_planar)
    kind = dataset.data.schema.field(name).type
    is_array = type(feature).__name__ in ("Array2D", "Array3D", "Array4D", "Array5D")
    shape = tuple(feature.shape) if is_array else ()
    stored = kind.storage_type if is_array else kind
    if is_text(stored):
        return Reading(name, "texts")
    dense = dense_type(stored, shape)
    if form.type is None:
        return Reading(name, "values" if dense is None else "numbers", shape)
    if dense is None or not _is_simple(stored, shape):
        return Reading(name, "theirs")
    is_scalar = not (shape or dense.shape or stored.num_fields)
    dtype = _cast(dense.dtype, form, is_scalar=is_scalar)
    if dtype is None:
        return Reading(name, "theirs")
    return Reading(
        name, "numbers", shape, None if dtype == dense.dtype else dtype, keeps_nulls=keeps_nulls
    )


def _is_simple(stored: Any, shape: Sequence[int | None]) -> bool:
    """Tell types of which HF makes one array for a row, whatever the row holds."""
    types = load_extra("pyarrow.types", extra="huggingface", wanted_by="`from_huggingface`")
    leaf, depth = stored, 0
    is_fixed = types.is_fixed_size_list(stored)
    while leaf.num_fields:
        leaf, depth = leaf.value_type, depth + 1
    return not types.is_time(leaf) and (bool(shape) or is_fixed or depth <= 1)


def _cast(dtype: np.dtype[Any], form: Format, *, is_scalar: bool) -> np.dtype[Any] | None:
    """Give the dtype that a format makes of another, or None if HF shall do it itself."""
    if dtype.kind in "mM":
        return dtype if form.type == "numpy" and is_scalar and not form.options else None
    if form.type == "numpy":
        if form.options and set(form.options) != {"dtype"}:
            return None
        if is_scalar and dtype.kind != "b":  # a number is left alone, whatever was asked for
            return dtype
        if form.options:
            return np.dtype(form.options["dtype"])
        if is_scalar:
            return dtype
    elif form.options or (dtype == np.uint64 and form.type != "jax"):
        return None
    if dtype.kind in "iu":
        return form.integers
    return np.dtype(np.float32) if dtype.kind == "f" else dtype
