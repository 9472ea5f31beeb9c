"""Features of Hugging Face with values for them, and what `datasets` says a row is."""

import datetime
import decimal
import warnings
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what importing it says is not about us
    import datasets
    from datasets import Array2D, Array3D, ClassLabel, Dataset, Features, LargeList, List, Value

from gristmill import from_huggingface

datasets.disable_progress_bars()

SMALL = st.integers(0, 100)
FLOATS = st.floats(-1000, 1000, width=16)
MOMENTS = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2100, 1, 1))
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


class Kind(NamedTuple):
    """A feature, and values that it can hold."""

    feature: Any
    values: st.SearchStrategy[Any]


def lists(values: st.SearchStrategy[Any], low: int, high: int) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, min_size=low, max_size=high)


def grids(values: st.SearchStrategy[Any], rows: int, columns: int) -> st.SearchStrategy[Any]:
    return lists(lists(values, columns, columns), rows, rows)


KINDS: dict[str, Kind] = {
    "int8": Kind(Value("int8"), SMALL),
    "uint16": Kind(Value("uint16"), SMALL),
    "int64": Kind(Value("int64"), st.integers(-(2**63), 2**63 - 1)),
    "float16": Kind(Value("float16"), FLOATS),
    "float32": Kind(Value("float32"), FLOATS),
    "float64": Kind(Value("float64"), FLOATS),
    "bool": Kind(Value("bool"), st.booleans()),
    "string": Kind(Value("string"), TEXTS),
    "large_string": Kind(Value("large_string"), TEXTS),
    "binary": Kind(Value("binary"), TEXTS.map(str.encode)),
    "timestamp": Kind(Value("timestamp[us]"), MOMENTS),
    "date": Kind(Value("date32"), MOMENTS.map(datetime.datetime.date)),
    "duration": Kind(
        Value("duration[us]"), st.timedeltas(-datetime.timedelta(9), datetime.timedelta(9))
    ),
    "time": Kind(Value("time64[us]"), st.times()),
    "decimal": Kind(Value("decimal128(10, 2)"), SMALL.map(decimal.Decimal)),
    "class": Kind(ClassLabel(names=["no", "yes"]), st.integers(0, 1)),
    "list": Kind(List(Value("uint8")), lists(SMALL, 0, 3)),
    "even list": Kind(List(Value("int32")), lists(SMALL, 2, 2)),
    "float list": Kind(List(Value("float64")), lists(FLOATS, 0, 3)),
    "bool list": Kind(List(Value("bool")), lists(st.booleans(), 1, 2)),
    "text list": Kind(List(Value("string")), lists(TEXTS, 0, 2)),
    "moments": Kind(List(Value("timestamp[us]")), lists(MOMENTS, 1, 2)),
    "large list": Kind(LargeList(Value("int8")), lists(SMALL, 0, 2)),
    "fixed": Kind(List(Value("uint8"), length=3), lists(SMALL, 3, 3)),
    "fixed floats": Kind(List(Value("float64"), length=2), lists(FLOATS, 2, 2)),
    "fixed grid": Kind(List(List(Value("int8"), length=2), length=2), grids(SMALL, 2, 2)),
    "list of lists": Kind(List(List(Value("int16"))), lists(lists(SMALL, 1, 2), 1, 2)),
    "list of fixed": Kind(List(List(Value("int16"), length=2)), lists(lists(SMALL, 2, 2), 1, 2)),
    "grid": Kind(Array2D((2, 3), "uint8"), grids(SMALL, 2, 3)),
    "float grid": Kind(Array2D((1, 2), "float64"), grids(FLOATS, 1, 2)),
    "bool grid": Kind(Array2D((1, 2), "bool"), grids(st.booleans(), 1, 2)),
    "open grid": Kind(Array2D((None, 2), "int32"), lists(lists(SMALL, 2, 2), 1, 3)),
    "cube": Kind(Array3D((2, 1, 2), "float32"), lists(grids(FLOATS, 1, 2), 2, 2)),
    "struct": Kind(
        {"p": Value("int8"), "q": Value("string")}, st.fixed_dictionaries({"p": SMALL, "q": TEXTS})
    ),
    "structs": Kind(List({"p": Value("int8")}), lists(st.fixed_dictionaries({"p": SMALL}), 1, 2)),
}
"""Every type that a column may have, but for those that are decoded."""


def make(columns: dict[str, list[Any]]) -> Dataset:
    """Give a dataset of columns named by their kinds."""
    features = Features({name: KINDS[name].feature for name in columns})
    return Dataset.from_dict(columns, features=features)


def ours(dataset: Any, **options: Any) -> Any:
    """Give a dataset of ours; whether with all its rows or streaming, the test knows."""
    return from_huggingface(dataset, **options)


def is_same(ours: Any, theirs: Any) -> bool:
    """Tell whether an element is what HF gives, but that it has no array without axes."""
    if isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(is_same(ours[key], theirs[key]) for key in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(is_same, ours, theirs))
    if theirs is None or isinstance(theirs, str | bytes):
        return ours == theirs and type(ours) in (str, bytes, type(None))
    if isinstance(ours, np.ndarray) and not ours.ndim:
        return False
    mine, other = np.asarray(ours), np.asarray(theirs)
    if mine.dtype != other.dtype or mine.shape != other.shape:
        return False
    if mine.dtype == object:
        return all(map(is_same, mine.ravel(), other.ravel())) if mine.ndim else ours == other[()]
    return mine.tobytes() == other.tobytes()


def as_python(value: Any) -> Any:
    """Give an element of a dataset without a format as Python's own values, as HF gives them."""
    if isinstance(value, dict):
        return {key: as_python(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_python(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def since_midnight(value: Any) -> Any:
    """Give a time of the day as we do."""
    if not isinstance(value, datetime.time):
        return value
    return datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min
