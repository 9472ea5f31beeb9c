"""Decides how each column of a Hugging Face dataset is read, by its feature and the format.

numbers     scalars, lists and arrays of numbers, read for many rows as one array
strings     strings and bytes, read as Python objects
values      other Arrow values, read one by one as sources of Arrow files read them
images      decoded one by one
delegated   read one by one by `datasets` and then converted to NumPy: all other types
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from gristmill._api.adapters.huggingface.arrow_table import ArrowType, dense_type
from gristmill._base.extras import load_extra
from gristmill._data.sources.tables.arrow_values import is_string_or_binary
from gristmill.errors import PlanError
from gristmill.types import AnyDType

HfDataset: TypeAlias = Any
"""A `datasets.Dataset` or `datasets.IterableDataset`, whose types cannot be imported here."""

ColumnKind: TypeAlias = Literal["numbers", "strings", "values", "images", "delegated"]

TABLE_FORMATS = ("arrow", "pandas", "polars")
"""Formats whose rows are tables, which cannot be batched."""

ARRAY_FEATURES = ("Array2D", "Array3D", "Array4D", "Array5D")
"""Names of the features that are arrays with a declared shape."""

_MAX_NAMES_CHARS = 120
"""Length of the column names in a `repr`, which goes into checkpoints."""


class ColumnSpec(NamedTuple):
    """How one column is read."""

    name: str
    kind: ColumnKind
    shape: tuple[int | None, ...] = ()
    """Shape of arrays that are stored as lists of lists."""
    dtype: AnyDType | None = None
    """Dtype that numbers are cast to, if not the stored one."""
    mode: str | None = None
    """Pillow mode that images are converted to, if not their own."""
    is_channels_first: bool = False
    """Whether the channels of an image are its first axis."""
    nulls_are_none: bool = True
    """Whether a null is read as None. If not, `datasets` reads it, for example as NaN."""


class DatasetFormat(NamedTuple):
    """The arguments of `set_format`. The type None changes nothing."""

    type: str | None
    options: Mapping[str, Any]
    integer_dtype: AnyDType = np.dtype(np.int64)
    """Dtype of integers in a tensor format."""


def make_column_specs(dataset: HfDataset) -> list[ColumnSpec]:
    """Return how to read each column that the dataset's format selects, in the dataset's order."""
    arguments = dataset.format
    kind = arguments["type"]
    form = DatasetFormat(kind, dict(arguments["format_kwargs"]), _get_integer_dtype(kind))
    selected = [name for name in dataset.column_names if name in set(arguments["columns"])]
    specs = [_make_column_spec(dataset, name, form) for name in selected]
    if arguments["output_all_columns"]:
        others = [name for name in dataset.column_names if name not in set(selected)]
        specs += [_make_column_spec(dataset, name, DatasetFormat(None, {})) for name in others]
    return specs


def check_format(kind: str | None) -> None:
    """Raise an error for a format whose rows are not dicts."""
    if kind in TABLE_FORMATS:
        raise PlanError(
            f"`dataset` has the format {kind!r}, in which a row is a table. Pass "
            "`dataset.with_format(None)`, or `dataset.with_format('numpy')`."
        )


def shorten_names(names: Sequence[str]) -> str:
    """Join column names for a `repr`, without most of them if they are long.

    >>> shorten_names(["x", "y"])
    'x, y'
    """
    joined = ", ".join(names)
    if len(joined) <= _MAX_NAMES_CHARS:
        return joined
    return f"{len(names)} from {names[0][:40]!r} to {names[-1][:40]!r}"


def _get_integer_dtype(kind: str | None) -> AnyDType:
    jax = sys.modules.get("jax") if kind == "jax" else None
    is_64_bit = kind != "jax" or (jax is not None and jax.config.jax_enable_x64)
    return np.dtype(np.int64 if is_64_bit else np.int32)


def _make_column_spec(dataset: HfDataset, name: str, form: DatasetFormat) -> ColumnSpec:
    features = load_extra(
        "datasets.features.features", extra="huggingface", wanted_by="`from_huggingface`"
    )
    feature = dataset.features[name]
    if features.require_decoding(feature):
        is_image = type(feature).__name__ == "Image" and not form.options
        if not is_image:
            return ColumnSpec(name, "delegated")
        is_channels_first = form.type == "torch"
        return ColumnSpec(name, "images", mode=feature.mode, is_channels_first=is_channels_first)
    kind = dataset.data.schema.field(name).type
    is_array = type(feature).__name__ in ARRAY_FEATURES
    shape = tuple(feature.shape) if is_array else ()
    stored = kind.storage_type if is_array else kind
    if is_string_or_binary(stored):
        return ColumnSpec(name, "strings")
    dense = dense_type(stored, shape)
    if form.type is None:
        return ColumnSpec(name, "values" if dense is None else "numbers", shape)
    if dense is None or not _is_one_array_per_row(stored, shape):
        return ColumnSpec(name, "delegated")
    is_scalar = not (shape or dense.shape or stored.num_fields)
    dtype = _get_formatted_dtype(dense.dtype, form, is_scalar=is_scalar)
    if dtype is None:
        return ColumnSpec(name, "delegated")
    return ColumnSpec(
        name, "numbers", shape, None if dtype == dense.dtype else dtype, nulls_are_none=False
    )


def _is_one_array_per_row(stored: ArrowType, shape: Sequence[int | None]) -> bool:
    """Return whether `datasets` makes one array of each row of this type, whatever its values."""
    types = load_extra("pyarrow.types", extra="huggingface", wanted_by="`from_huggingface`")
    leaf, depth = stored, 0
    is_fixed = types.is_fixed_size_list(stored)
    while leaf.num_fields:
        leaf, depth = leaf.value_type, depth + 1
    return not types.is_time(leaf) and (bool(shape) or is_fixed or depth <= 1)


def _get_formatted_dtype(
    dtype: AnyDType, form: DatasetFormat, *, is_scalar: bool
) -> AnyDType | None:
    """Return the dtype that a format casts `dtype` to, or None if `datasets` must do it."""
    if dtype.kind in "mM":
        return dtype if form.type == "numpy" and is_scalar and not form.options else None
    if form.type == "numpy":
        if form.options and set(form.options) != {"dtype"}:
            return None
        if is_scalar and dtype.kind != "b":  # scalars are not cast, whatever the options are
            return dtype
        if form.options:
            return np.dtype(form.options["dtype"])
        if is_scalar:
            return dtype
    elif form.options or (dtype == np.uint64 and form.type != "jax"):
        return None
    if dtype.kind in "iu":
        return form.integer_dtype
    return np.dtype(np.float32) if dtype.kind == "f" else dtype
