"""Labels in every form that a user may pass."""

from typing import Any

import numpy as np
import pytest

from gristmill import ArraySource
from gristmill._base.trees.columns import Columns
from gristmill._data.sampling.labels import as_classes, as_labels
from gristmill.errors import PlanError, PlanTypeError

RECORDS = [{"x": np.zeros(3), "y": label} for label in "abca"]


class Many:
    """A source that reads many records in one call."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def __len__(self) -> int:
        return 5000

    def __getitem__(self, index: int) -> Any:
        raise AssertionError("one by one")

    def __getitems__(self, indices: Any) -> list[Any]:
        self.calls.append(len(indices))
        return [(None, index % 3) for index in indices]


def test_labels_are_an_array_a_key_or_a_function():
    for labels in ("y", list("abca"), np.array(list("abca")), lambda record: record["y"]):
        assert as_labels("stratify", labels, RECORDS).tolist() == ["a", "b", "c", "a"]


def test_a_key_can_be_the_number_of_an_item():
    assert as_labels("stratify", 1, [("x", 5), ("y", 6)]).tolist() == [5, 6]


def test_many_records_are_read_in_one_call():
    source = Many()
    assert as_labels("stratify", 1, source).tolist() == [index % 3 for index in range(5000)]
    assert sum(source.calls) == 5000
    assert len(source.calls) == 2


def test_of_columns_only_the_one_with_labels_is_read():
    class Unreadable:
        dtype = np.dtype(float)
        shape = (4,)
        is_list = False
        has_own_items = False

        def gather(self, *_: Any) -> Any:
            raise AssertionError("read")

    class Table:
        is_columnar = True

        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            raise AssertionError("one by one")

        def read_columns(self, indices: Any) -> Columns:
            columns: list[Any] = [Unreadable(), np.arange(4) * 2]
            return Columns(columns, lambda leaves: dict(zip("xy", leaves, strict=True)), indices)

    assert as_labels("stratify", "y", Table()).tolist() == [0, 2, 4, 6]
    with pytest.raises(AssertionError, match="read"):
        as_labels("stratify", "x", Table())


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ("z", "`stratify` is 'z', but a record has no such item: {'x'"),
        (0, "`stratify` is 0, but a record has no such item"),
        ([1, 2], "must have a value for each of the 4 records, got 2"),
        ("x", "got values with a shape of their own"),
        (lambda record: None, "got `None` for one of them"),
        (lambda record: [1] * len(record["y"] * 2), "with a shape of their own"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: Any, message: str):
    with pytest.raises(PlanError, match=message):
        as_labels("stratify", labels, RECORDS)


def test_labels_of_another_type_are_refused():
    with pytest.raises(PlanTypeError, match="`stratify` must be one value for each record"):
        as_labels("stratify", 0.5, RECORDS)


def test_a_missing_column_is_reported_as_such():
    with pytest.raises(PlanError, match=r"no such item: \{'x': \.\.\.\}"):
        as_labels("stratify", "y", ArraySource({"x": np.zeros(3)}))


def test_labels_of_several_types_are_classes():
    numbers, counts = as_classes(np.array([1, "a", None, 1], dtype=object))
    assert numbers.tolist() == [0, 1, 2, 0]
    assert counts.tolist() == [2, 1, 1]
