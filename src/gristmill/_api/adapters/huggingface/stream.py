"""Reads the rows of a streaming Hugging Face dataset, in its order."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, final

import numpy as np

from gristmill._api.adapters.huggingface.formats import (
    ARRAY_FEATURES,
    HfDataset,
    check_format,
    shorten_names,
)
from gristmill._api.adapters.huggingface.values import Value, load_pillow, to_numpy
from gristmill._api.adapters.iterable import IterableStream
from gristmill.types import AnyDType, Element

Row: TypeAlias = dict[str, Value]
"""A row as `datasets` returns it."""

Feature: TypeAlias = Any
"""A feature of `datasets`, such as `Value` or `List`."""

ExamplesIterable: TypeAlias = Any
"""An object of `datasets` that makes the rows of a streaming dataset. Its class is private."""


def make_stream(dataset: HfDataset) -> IterableStream[Row]:
    """Return a stream of the rows of a streaming dataset that can be resumed."""
    # The format of a streaming dataset is not public.
    formatting = dataset._formatting  # noqa: SLF001
    check_format(None if formatting is None else formatting.format_type)
    features: dict[str, Feature] = dict(dataset.features or {})
    if any(type(feature).__name__ == "Image" for feature in features.values()):
        load_pillow()  # fail now rather than at the first row
    iterable = _get_examples_iterable(dataset)
    return IterableStream(
        _ReplayedDataset(dataset) if _state_loses_rows(iterable) else _ResumableDataset(dataset),
        convert=_RowConverter(features),
        description=_describe(dataset),
    )


@final
class _ResumableDataset:
    """A dataset that resumes from its own state. Each copy has a state of its own."""

    def __init__(self, dataset: HfDataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Row]:
        return iter(self._dataset)

    def state_dict(self) -> dict[str, object]:
        return self._dataset.state_dict()

    def load_state_dict(self, state: dict[str, object]) -> None:
        self._dataset.load_state_dict(state)

    def __deepcopy__(self, memo: dict[int, object]) -> "_ResumableDataset":
        return _ResumableDataset(_copy_dataset(self._dataset))


@final
class _ReplayedDataset:
    """A dataset whose own state is incomplete: it does not hold the rows of a shuffle buffer.

    After `load_state_dict` the buffer is filled with new rows, and the rows that were in it are
    lost. So the state is not used, and the dataset is resumed by reading the rows before again.
    """

    def __init__(self, dataset: HfDataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Row]:
        return iter(_copy_dataset(self._dataset))


def _copy_dataset(dataset: HfDataset) -> HfDataset:
    """Copy only what holds the state: a dataset also refers to all file systems."""
    copied = copy.copy(dataset)
    copied.__dict__ = dict(copied.__dict__)  # `datasets` makes the copy share the original's
    copied._ex_iterable = copy.deepcopy(_get_examples_iterable(dataset))  # noqa: SLF001
    return copied


def _get_examples_iterable(dataset: HfDataset) -> ExamplesIterable:
    """Return the iterable that makes the rows of a streaming dataset, which is not public."""
    return dataset._ex_iterable  # noqa: SLF001


def _state_loses_rows(iterable: ExamplesIterable) -> bool:
    """Return whether a state omits rows: those in shuffle buffers and in batches of tables."""
    formatting = getattr(iterable, "formatting", None)
    if type(iterable).__name__ == "BufferShuffledExamplesIterable" or (
        formatting is not None and formatting.is_table
    ):
        return True
    inner: list[ExamplesIterable | None] = [getattr(iterable, "ex_iterable", None)]
    inner += list(getattr(iterable, "ex_iterables", None) or [])
    return any(_state_loses_rows(one) for one in inner if one is not None)


@final
class _RowConverter:
    """Converts the Python numbers of rows to the NumPy types that the features declare."""

    def __init__(self, features: Mapping[str, Feature]) -> None:
        self._converters = {
            name: _make_value_converter(feature) for name, feature in features.items()
        }

    def __call__(self, row: Row) -> Element:
        return {name: self._converters.get(name, to_numpy)(value) for name, value in row.items()}


def _make_value_converter(feature: Feature) -> Callable[[Value], Value]:
    """Return the function that converts a value of a feature to NumPy."""
    inner, shape = feature, None
    if type(feature).__name__ in ARRAY_FEATURES:
        shape = tuple(-1 if size is None else size for size in feature.shape)
    elif type(feature).__name__ in ("List", "LargeList"):
        inner, shape = feature.feature, (-1,)
    dtype = _get_number_dtype(getattr(inner, "dtype", None))
    if dtype is None:
        return to_numpy

    def convert(value: Value) -> Value:
        if shape is None and isinstance(value, bool | int | float):
            return dtype.type(value)
        if shape is not None and isinstance(value, list):
            try:
                return np.array(value, dtype).reshape(shape)
            except (TypeError, ValueError):  # it contains None
                return to_numpy(value)
        return to_numpy(value)

    return convert


def _get_number_dtype(name: object) -> AnyDType | None:
    """Return the dtype with a name of `datasets`, or None if it is not one of numbers."""
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except (TypeError, ValueError):  # a string, a time, a decimal
        return None
    return dtype if dtype is not None and dtype.kind in "biuf" else None


def _describe(dataset: HfDataset) -> str:
    names = shorten_names(list(dataset.features or ()))
    split = "" if dataset.split is None else f", split={str(dataset.split)!r}"
    return f"HuggingFaceStream(columns=[{names}]{split})"
