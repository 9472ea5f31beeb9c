import numpy as np
import pyarrow as pa
import pytest

from gristmill._data.sources.tables.arrow_values import to_rows
from gristmill._data.sources.tables.csv_parser import CsvParser, infer_types
from gristmill.errors import CorruptFileError, FormatError

PARSER = CsvParser(delimiter=",", names=["id", "name", "x"], types={"x": "float32", "id": "int8"})


def test_records_have_the_selected_columns_in_their_order_and_of_their_types():
    records = to_rows(PARSER.parse_table(b"1,a,0.5\n\n2,b,\n", 2))
    assert records == [{"x": 0.5, "id": 1}, {"x": None, "id": 2}]
    assert type(records[0]["x"]) is np.float32
    assert list(records[0]) == ["x", "id"]


@pytest.mark.parametrize("data", [b"1,a,2", b"1,a,2\n3,b,4\n5,c,6", b"1,a\n2,b", b"1,a,b\n2,c,d"])
def test_data_that_do_not_contain_the_expected_records_are_an_error(data: bytes):
    with pytest.raises(ValueError):  # noqa: PT011 (the message of pyarrow)
        PARSER.parse_table(data, 2)


@pytest.mark.parametrize(
    ("line", "kind", "message"),
    [
        (
            b"1,a",
            CorruptFileError,
            "The record does not have 3 fields: '1,a'. Correct it, or skip such records with "
            "`SkipErrors`.",
        ),
        (
            b"1,a,b",
            FormatError,
            "Column 'x' is float32, but 'b' is not. Correct it, or set the type of the column to "
            "one that fits all its values, such as `types={'x': 'string'}`.",
        ),
        (
            b"1000,a,1",
            FormatError,
            "Column 'id' is int8, but '1000' is not. Correct it, or set the type of the column to "
            "one that fits all its values, such as `types={'id': 'float64'}`.",
        ),
    ],
)
def test_an_error_names_the_field_that_does_not_fit_and_a_type_that_does(
    line: bytes, kind: type[Exception], message: str
):
    error = PARSER.explain_error(line, ValueError("of pyarrow"))
    assert type(error) is kind
    assert str(error) == message


def test_types_are_inferred_and_columns_without_values_are_strings():
    sample = b"1,a,,2020-01-01\n2,b,,2020-01-02\n"
    types = infer_types(sample, ",", ["i", "s", "n", "d"])
    assert list(types.values()) == [pa.int64(), pa.string(), pa.string(), pa.date32()]
    assert infer_types(b"", ",", ["i"]) == {"i": pa.string()}


def test_records_with_another_number_of_fields_do_not_matter_for_the_types():
    assert infer_types(b"1,2\n3\n4,5\n", ",", ["a", "b"]) == {"a": pa.int64(), "b": pa.int64()}
