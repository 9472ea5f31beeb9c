import re
from typing import Any

import pyarrow as pa
import pytest

from gristmill._data.sources.tables.columns import as_names, check_names, check_selected, select
from gristmill._io.file import FileRef
from gristmill.errors import FormatError, PlanError, PlanTypeError
from gristmill.options import StorageOptions

SCHEMA = pa.schema([("id", pa.int64()), ("x", pa.float32())])
REFS = [
    FileRef(path=f"folder/{name}", size=1, version="", is_local=True, storage=StorageOptions())
    for name in ("a.parquet", "b.parquet")
]
REMEDY = "All files of a source must have the same columns. Select common ones with `columns`."


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        ([], PlanError, "`columns` must name at least one column. Leave it out to read all."),
        (["a", "a"], PlanError, "`columns` must name each column once, got ['a', 'a']."),
        ([1], PlanTypeError, "`columns` must hold names, got 1."),
        ("id", PlanTypeError, "`columns` must be a list, got 'id'. Put it in brackets."),
    ],
)
def test_columns_must_be_distinct_names(columns: Any, kind: type[Exception], message: str):
    with pytest.raises(kind, match=re.escape(message)):
        as_names(columns)


def test_the_schema_has_the_selected_columns_in_their_order():
    assert select([SCHEMA, SCHEMA], None, REFS) == SCHEMA
    assert select([SCHEMA, SCHEMA], ["x", "id"], REFS).names == ["x", "id"]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (SCHEMA.remove(1), "There is no column 'x', which 'a.parquet' has."),
        (
            SCHEMA.append(pa.field("y", pa.int64())),
            "There is a column 'y', which 'a.parquet' does not have.",
        ),
        (
            SCHEMA.set(0, pa.field("id", pa.float64())),
            "Column 'id' is double, but in 'a.parquet' it is int64.",
        ),
    ],
)
def test_files_must_have_the_same_columns(other: Any, message: str):
    with pytest.raises(FormatError, match=re.escape(f"{message} {REMEDY}")) as caught:
        select([SCHEMA, other], None, REFS)
    assert caught.value.path == REFS[1].path


def test_columns_that_are_not_selected_may_differ():
    other = pa.schema([("y", pa.string()), ("id", pa.int64())])
    assert select([SCHEMA, other], ["id"], REFS).names == ["id"]


def test_selecting_a_missing_column_is_an_error_that_lists_the_columns():
    message = "`types` names 'y', 'z', but the columns of 'a.csv' are 'id', 'x'."
    with pytest.raises(PlanError, match=re.escape(message)):
        check_selected("types", ["id", "y", "z"], ["id", "x"], "folder/a.csv")


def test_two_columns_of_one_name_are_an_error():
    message = (
        "There are several columns named 'b', but a record can have only one. Rename the others."
    )
    with pytest.raises(FormatError, match=re.escape(message)):
        check_names(["a", "b", "c", "b"], "a.csv")


def test_a_table_without_columns_is_an_error():
    with pytest.raises(FormatError, match=r"^The table has no columns\."):
        check_names([], "a.csv")
