"""The rows of a streaming dataset of Hugging Face, in its order."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, cast, final

import numpy as np

from gristmill.adapters._hf_formats import check_format
from gristmill.adapters._hf_values import load_pillow, to_numpy
from gristmill.adapters._iterable import IterableStream
from gristmill.types import Element

_LONGEST = 120


def stream_of(dataset: Any) -> IterableStream:
    """Give a streaming dataset as a stream that knows its places."""
    # Nothing public tells the format of a streaming dataset.
    formatting: Any = dataset._formatting  # noqa: SLF001
    check_format(None if formatting is None else formatting.format_type)
    features: dict[str, Any] = dict(dataset.features or {})
    if any(type(feature).__name__ == "Image" for feature in features.values()):
        load_pillow()
    return IterableStream(
        _FromTheStart(dataset) if _loses_rows(_steps_of(dataset)) else _Resumable(dataset),
        convert=_Converter(features),
        told=_tell(dataset),
    )


@final
class _Resumable:
    """A dataset that goes on from its own state; its copies have each a state of its own."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(self._dataset)

    def state_dict(self) -> dict[str, Any]:
        return self._dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._dataset.load_state_dict(state)

    def __deepcopy__(self, memo: dict[int, Any]) -> "_Resumable":
        return _Resumable(_copy_of(self._dataset))


@final
class _FromTheStart:
    """A dataset whose state does not hold all: what is in a buffer that it shuffles in is lost.

    HF fills the buffer anew, and leaves out the rows that were in it. So the state is left alone,
    and going on means to go through the rows before.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[Any]:
        return iter(_copy_of(self._dataset))


def _copy_of(dataset: Any) -> Any:
    """Copy what keeps the state, and nothing else: a dataset also refers to all file systems."""
    copied = copy.copy(dataset)
    copied._ex_iterable = copy.deepcopy(_steps_of(dataset))  # noqa: SLF001
    return copied


def _steps_of(dataset: Any) -> Any:
    """Give the steps of a streaming dataset, of which nothing public tells."""
    return dataset._ex_iterable  # noqa: SLF001


def _loses_rows(steps: Any) -> bool:
    """Tell whether a state forgets rows: those of buffers, and of batches mapped as tables."""
    formatting = getattr(steps, "formatting", None)
    if type(steps).__name__ == "BufferShuffledExamplesIterable" or (
        formatting is not None and formatting.is_table
    ):
        return True
    inner: list[Any] = [getattr(steps, "ex_iterable", None)]
    inner += list(getattr(steps, "ex_iterables", None) or [])
    return any(_loses_rows(one) for one in inner if one is not None)


@final
class _Converter:
    """Makes elements of rows: Python's numbers become those of NumPy that the features say."""

    def __init__(self, features: dict[str, Any]) -> None:
        self._converters = {name: _converter(feature) for name, feature in features.items()}

    def __call__(self, row: Any) -> Element:
        return {
            name: self._converters.get(name, to_numpy)(value)
            for name, value in cast("dict[str, Any]", row).items()
        }


def _converter(feature: Any) -> Callable[[Any], Any]:
    """Give the function that makes a value of a feature NumPy."""
    kind, shape = feature, None
    if type(feature).__name__ in ("Array2D", "Array3D", "Array4D", "Array5D"):
        shape = tuple(-1 if size is None else size for size in feature.shape)
    elif type(feature).__name__ in ("List", "LargeList"):
        kind, shape = feature.feature, (-1,)
    dtype = _dtype(getattr(kind, "dtype", None))
    if dtype is None:
        return to_numpy

    def convert(value: Any) -> Any:
        if shape is None and isinstance(value, bool | int | float):
            return dtype.type(value)
        if shape is not None and isinstance(value, list):
            try:
                return np.array(value, dtype).reshape(shape)
            except (TypeError, ValueError):  # there is a None in it
                return to_numpy(value)
        return to_numpy(value)

    return convert


def _dtype(name: Any) -> np.dtype[Any] | None:
    """Give the dtype of a number by the name that HF gives it."""
    try:
        dtype = np.dtype(name) if isinstance(name, str) else None
    except (TypeError, ValueError):  # a text, a time, a decimal
        return None
    return dtype if dtype is not None and dtype.kind in "biuf" else None


def _tell(dataset: Any) -> str:
    names = list(dataset.features or ())
    told = ", ".join(names)
    if len(told) > _LONGEST:
        told = f"{len(names)} from {names[0][:40]!r} to {names[-1][:40]!r}"
    split = "" if dataset.split is None else f", split={str(dataset.split)!r}"
    return f"HuggingFaceStream(columns=[{told}]{split})"
