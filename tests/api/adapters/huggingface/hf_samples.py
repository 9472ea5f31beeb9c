"""Sample Hugging Face datasets, and comparison of elements with the rows of `datasets`."""

import datetime
import decimal
import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import PIL.Image
from hypothesis import strategies as st

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # importing it warns about other packages
    import datasets
    from datasets import (
        Array2D,
        Array3D,
        ClassLabel,
        Dataset,
        Features,
        Image,
        LargeList,
        List,
        Value,
        concatenate_datasets,
        load_from_disk,
    )

from gristmill import from_huggingface

datasets.disable_progress_bars()

SMALL = st.integers(0, 100)
FLOATS = st.floats(-1000, 1000, width=16)
MOMENTS = st.datetimes(datetime.datetime(1950, 1, 1), datetime.datetime(2100, 1, 1))
STRINGS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


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
    "string": Kind(Value("string"), STRINGS),
    "large_string": Kind(Value("large_string"), STRINGS),
    "binary": Kind(Value("binary"), STRINGS.map(str.encode)),
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
    "string list": Kind(List(Value("string")), lists(STRINGS, 0, 2)),
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
        {"p": Value("int8"), "q": Value("string")},
        st.fixed_dictionaries({"p": SMALL, "q": STRINGS}),
    ),
    "structs": Kind(List({"p": Value("int8")}), lists(st.fixed_dictionaries({"p": SMALL}), 1, 2)),
}
"""Every type that a column may have, except for those that are decoded."""


def make(columns: dict[str, list[Any]]) -> Dataset:
    """Return a dataset of columns that are named after their kinds."""
    features = Features({name: KINDS[name].feature for name in columns})
    return Dataset.from_dict(columns, features=features)


def convert(dataset: Any, **options: Any) -> Any:
    """Convert a dataset. The result is untyped, as it depends on whether it is streaming."""
    return from_huggingface(dataset, **options)


def is_same(actual: Any, expected: Any) -> bool:
    """Return whether an element equals that of `datasets`, with scalars for arrays without axes."""
    if isinstance(expected, dict):
        return list(actual) == list(expected) and all(
            is_same(actual[key], expected[key]) for key in expected
        )
    if isinstance(expected, list):
        return len(actual) == len(expected) and all(map(is_same, actual, expected))
    if expected is None or isinstance(expected, str | bytes):
        return actual == expected and type(actual) in (str, bytes, type(None))
    if isinstance(actual, np.ndarray) and not actual.ndim:
        return False
    one, other = np.asarray(actual), np.asarray(expected)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.dtype == object:
        return all(map(is_same, one.ravel(), other.ravel())) if one.ndim else actual == other[()]
    return one.tobytes() == other.tobytes()


def as_python(value: Any) -> Any:
    """Convert an element of a dataset without a format to Python values, as `datasets` returns."""
    if isinstance(value, dict):
        return {key: as_python(one) for key, one in value.items()}
    if isinstance(value, list):
        return [as_python(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def since_midnight(value: Any) -> Any:
    """Convert a time of the day to the time since midnight, as elements hold it."""
    if not isinstance(value, datetime.time):
        return value
    return datetime.datetime.combine(datetime.date.min, value) - datetime.datetime.min


COUNT = 40


def rows(count: int = COUNT, first: int = 0) -> Dataset:
    """Return a dataset with columns of scalars, lists, arrays and strings."""
    numbers = range(first, first + count)
    features = Features(
        {
            "id": Value("int32"),
            "x": List(Value("float32"), length=2),
            "pixels": Array2D((2, 3), "uint8"),
            "text": Value("string"),
        }
    )
    columns = {
        "id": list(numbers),
        "x": [[number / 2, 1.0] for number in numbers],
        "pixels": [np.full((2, 3), number, np.uint8).tolist() for number in numbers],
        "text": [f"row {number}" for number in numbers],
    }
    return Dataset.from_dict(columns, features=features)


def on_disk(dataset: Any, folder: Path, **options: Any) -> Any:
    dataset.save_to_disk(str(folder), **options)
    return load_from_disk(str(folder))


def ragged() -> Dataset:
    return Dataset.from_dict({"x": [[1, 2], [3], [], [4, 5, 6]] * 5, "y": list(range(20))})


def nested() -> Dataset:
    return Dataset.from_dict({"s": [{"a": number, "b": [str(number)]} for number in range(12)]})


def png(shade: int, *, mode: str = "RGB", orientation: int | None = None) -> bytes:
    image = PIL.Image.new(mode, (3, 2), shade if mode == "L" else (shade, 1, 2))
    file, exif = io.BytesIO(), PIL.Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    image.save(file, "PNG", exif=exif)
    return file.getvalue()


def images(count: int = 6, **options: Any) -> Dataset:
    stored = [{"bytes": png(number), "path": None} for number in range(count)]
    features = Features({"image": Image(**options), "label": Value("int64")})
    return Dataset.from_dict({"image": stored, "label": list(range(count))}, features=features)


def double(batch: Any) -> Any:
    return {"twice": [2 * number for number in batch["id"]], "text": batch["text"]}


MAKERS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda folder: rows(),
    "shuffled": lambda folder: rows().shuffle(seed=1),
    "files": lambda folder: on_disk(rows(), folder, num_shards=3),
    "shuffled files": lambda folder: on_disk(rows(), folder, num_shards=3).shuffle(seed=1),
    "slice of files": lambda folder: on_disk(rows(), folder, num_shards=3).select(range(5, 30)),
    "other columns of files": lambda folder: (
        on_disk(rows(), folder).remove_columns("x").rename_column("text", "words")
    ),
    "files and memory": lambda folder: concatenate_datasets(
        [on_disk(rows(), folder), rows(3, 100)]
    ),
    "added column": lambda folder: on_disk(rows(), folder, num_shards=2).add_column(
        "more", [[number] for number in range(COUNT)]
    ),
    "flattened files": lambda folder: on_disk(nested(), folder).flatten(),
    "numpy": lambda folder: on_disk(rows(), folder, num_shards=2).with_format("numpy"),
    "nulls in numpy": lambda folder: Dataset.from_dict({"x": [1, None, 3]}).with_format("numpy"),
    "numbers": lambda folder: rows().select_columns(["id", "pixels"]),
    "numbers in files": lambda folder: on_disk(
        rows().select_columns(["id", "pixels"]), folder, num_shards=4
    ),
    "ragged": lambda folder: ragged(),
    "images": lambda folder: images(),
    "no rows": lambda folder: rows().select([]),
    "transform": lambda folder: rows().with_transform(double),
}
"""Datasets that are stored, ordered and formatted in different ways."""


def source_of(dataset: Any) -> Any:
    return convert(dataset)._plan_node.source
