"""The format of a Hugging Face dataset decides which columns are read, and in which dtypes."""

import re
from typing import Any

import numpy as np
import pytest

from gristmill._api.adapters.huggingface.formats import make_column_specs
from gristmill.errors import PlanError
from tests.api.adapters.huggingface.hf_samples import (
    KINDS,
    convert,
    images,
    is_same,
    make,
    nested,
    rows,
)


def read(dataset: Any) -> list[Any]:
    """Return all rows, read in one call."""
    return list(convert(dataset).slice(list(range(len(dataset)))))


@pytest.mark.filterwarnings("ignore")  # the other libraries warn about each other
@pytest.mark.parametrize(
    ("kind", "has_nulls"),
    [("torch", False), ("torch", True), ("jax", False), ("jax", True), ("tensorflow", False)],
)
def test_tensor_formats_return_the_same_values_in_numpy(kind: str, has_nulls: bool):
    names = [
        name
        for name in sorted(KINDS)
        if name not in ("timestamp", "date", "duration", "time", "decimal", "moments")
    ]
    if kind == "tensorflow":  # which converts strings to bytes
        names = [name for name in names if "str" not in name]
        names.remove("binary")
    if kind == "jax":
        names.remove("int64")  # `datasets` and gristmill truncate it; "class" has smaller numbers
    values = {name: [example(name, seed) for seed in range(3)] for name in names}
    if has_nulls:
        values = {name: [None, *some] for name, some in values.items()}
    dataset = make(values).with_format(kind)

    for index, row in enumerate(read(dataset)):
        for name, theirs in dataset[index].items():
            assert is_same(row[name], to_arrays(theirs)), (name, row[name], theirs)


def example(name: str, seed: int) -> Any:
    """Return a value of a kind, the same for the same seed."""
    if name == "struct":
        return {"p": seed, "q": "q"}
    if name == "structs":
        return [{"p": seed}]
    feature = KINDS[name].feature
    shape = tuple(2 if size is None else size for size in getattr(feature, "shape", ()))
    if name in ("fixed grid", "list of lists", "list of fixed"):
        shape = (2, 2)
    elif "list" in name or "fixed" in name or name == "moments":
        shape = ({"fixed": 3}.get(name, 2),)
    leaf = feature
    while hasattr(leaf, "feature"):
        leaf = leaf.feature
    one: Any = {"string": "text", "large_string": "text", "binary": b"bytes"}.get(leaf.dtype)
    if one is None:
        one = seed % 2 == 0 if leaf.dtype == "bool" else seed % 2
    filled = np.empty(shape, object)
    filled.fill(one)
    return filled.tolist()


def to_arrays(value: Any) -> Any:
    """Convert the tensors in a value of `datasets` to arrays."""
    if isinstance(value, dict):
        return {key: to_arrays(one) for key, one in value.items()}
    if isinstance(value, list):
        return [to_arrays(one) for one in value]
    return value if value is None or isinstance(value, str | bytes) else np.asarray(value)


def test_options_of_the_numpy_format_are_respected():
    names = ("list", "bool", "int8", "float64", "grid")
    dataset = make({name: [example(name, seed) for seed in range(3)] for name in names})
    formatted = dataset.with_format("numpy", dtype=np.float16)

    found = read(formatted)

    assert all(is_same(row, formatted[index]) for index, row in enumerate(found))
    assert found[0]["list"].dtype == np.float16


VALUES = {"int8": 1, "list": [1, 2], "string": "a", "float64": 0.5}


@pytest.mark.parametrize("kind", [None, "numpy"])
def test_columns_are_those_that_the_format_selects(kind: str | None):
    dataset = make({name: [value] * 3 for name, value in VALUES.items()})
    some = dataset.with_format(kind, columns=["float64", "list"])
    all_of_them = dataset.with_format(kind, columns=["float64", "list"], output_all_columns=True)

    assert list(convert(some)[0]) == list(some[0]) == ["list", "float64"]
    assert list(convert(all_of_them)[0]) == list(all_of_them[0])
    assert convert(all_of_them)[0]["int8"].dtype == np.int8
    assert convert(all_of_them)[0]["list"].dtype == some[0]["list"].dtype if kind else True


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_formats_whose_rows_are_tables_are_an_error(kind: str):
    message = f"`dataset` has the format '{kind}', in which a row is a table. Pass `dataset.with"
    with pytest.raises(PlanError, match=re.escape(message)):
        convert(rows().with_format(kind))


@pytest.mark.parametrize(
    ("dataset", "kinds"),
    [
        (rows(), ["numbers", "numbers", "numbers", "strings"]),
        (images(), ["images", "numbers"]),
        (images(decode=False), ["values", "numbers"]),
        (nested(), ["values"]),
        (nested().with_format("numpy"), ["delegated"]),
        (rows().with_format("numpy", copy=True), ["delegated"] * 3 + ["strings"]),
    ],
    ids=["plain", "images", "encoded images", "nested", "nested in numpy", "unknown options"],
)
def test_only_columns_that_need_it_are_delegated_to_datasets(dataset: Any, kinds: list[str]):
    assert [spec.kind for spec in make_column_specs(dataset)] == kinds
