import csv
import datetime
import io
import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import Batch, DataLoader, SequentialSampler, SkipErrors
from gristmill._data.sources.tables import csv as _csv
from gristmill._data.sources.tables.csv import CsvSource
from gristmill.errors import CorruptFileError, FormatError, MissingFileError, PlanError
from tests.data.sources.tables.small_tables import same, some_indices, to_python

FIELD = st.text(alphabet='ab" ,;\n\r\té', max_size=5)


def write(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def rows_of(source: CsvSource) -> list[Any]:
    return source.__getitems__(range(len(source)))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.tuples(FIELD, FIELD, FIELD), max_size=8),
    data=st.data(),
    delimiter=st.sampled_from(",;\t"),
    line_end=st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_strings_equal_those_that_python_reads(
    rows: list[tuple[str, ...]], data: st.DataObject, delimiter: str, line_end: str
):
    text = io.StringIO(newline="")
    # Python quotes only the line ends that it writes itself.
    quoting = csv.QUOTE_MINIMAL if line_end == "\r\n" else csv.QUOTE_ALL
    writer = csv.writer(text, delimiter=delimiter, lineterminator=line_end, quoting=quoting)
    writer.writerows([("x", "y", "z"), *rows])
    cut = len(line_end) if data.draw(st.booleans()) else 0
    content = text.getvalue()[: -cut or None]
    expected = list(csv.DictReader(io.StringIO(content, newline=""), delimiter=delimiter))
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "a.csv"), content)
        types = dict.fromkeys("xyz", "string")
        source = CsvSource(path, delimiter=delimiter, types=types)
        assert len(source) == len(rows)
        assert rows_of(source) == expected
        indices = some_indices(data.draw, len(rows))
        assert source.__getitems__(indices) == [expected[index] for index in indices]
        assert [source[index] for index in indices] == [expected[index] for index in indices]


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(-(2**40), 2**40) | st.none(),
            st.floats(allow_nan=False, allow_infinity=False),
            st.sampled_from(["true", "false"]),
            st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)),
        ),
        min_size=1,
        max_size=8,
    ),
    data=st.data(),
)
def test_values_equal_those_that_pyarrow_reads_from_the_whole_file(rows: Any, data: st.DataObject):
    text = io.StringIO(newline="")
    csv.writer(text).writerows([("i", "f", "b", "d"), *rows, (1, 0.5, "true", "2020-01-01")])
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "a.csv"), text.getvalue())
        expected = pyarrow.csv.read_csv(path).to_pylist()
        source = CsvSource(path)
        indices = some_indices(data.draw, len(expected))
        block = source.__getitems__(indices)
        assert to_python(block) == [expected[index] for index in indices]
        assert same(block, [source[index] for index in indices])


def test_types_are_inferred_once_for_all_blocks(tmp_path: Path):
    path = write(tmp_path / "a.csv", "n,f,t,b,d\n1,1,x,true,2020-01-01\n,2.5,,,\n3,,y,false,\n")
    source = CsvSource(path)
    assert [type(value) for value in source[0].values()] == [
        np.int64,
        np.float64,
        str,
        np.bool_,
        np.datetime64,
    ]
    assert source[1] == {"n": None, "f": 2.5, "t": "", "b": None, "d": None}
    assert source[2]["f"] is None


def test_a_column_without_values_is_a_column_of_strings(tmp_path: Path):
    assert rows_of(CsvSource(write(tmp_path / "a.csv", "a,b\n1,\n2,\n"))) == [
        {"a": 1, "b": ""},
        {"a": 2, "b": ""},
    ]


def test_nan_is_a_number_and_markers_of_missing_values_are_none_except_in_strings(tmp_path: Path):
    path = write(tmp_path / "a.csv", "f,t\nNaN,NA\nNA,NaN\n1,x\n")
    (nan, string), (none, other), _ = (row.values() for row in rows_of(CsvSource(path)))
    assert np.isnan(nan)
    assert (none, string, other) == (None, "NA", "NaN")


def test_types_may_be_names_or_types_of_pyarrow(tmp_path: Path):
    path = write(tmp_path / "a.csv", "a,b,c\n007,1,2\n")
    source = CsvSource(path, types={"a": "string", "b": pa.float32()})
    assert same(source[0], {"a": "007", "b": np.float32(1), "c": np.int64(2)})


def test_without_a_header_columns_are_numbered(tmp_path: Path):
    source = CsvSource(write(tmp_path / "a.csv", "1,x\n2,y\n"), has_header=False)
    assert rows_of(source) == [{"f0": 1, "f1": "x"}, {"f0": 2, "f1": "y"}]
    assert CsvSource(tmp_path / "a.csv", has_header=False, columns=["f1"])[1] == {"f1": "y"}


def test_the_same_file_may_be_read_with_and_without_a_header(tmp_path: Path):
    path = write(tmp_path / "a.csv", "1;2\n3;4\n")
    assert [len(CsvSource(path, has_header=has)) for has in (True, False, True)] == [1, 2, 1]
    assert list(CsvSource(path, delimiter=";")[0]) == ["1", "2"]
    assert list(CsvSource(path)[0]) == ["1;2"]


def test_columns_are_in_the_selected_order(tmp_path: Path):
    path = write(tmp_path / "a.csv", "a,b,c\n1,2,3\n")
    assert list(CsvSource(path, columns=["c", "a"])[0].items()) == [("c", 3), ("a", 1)]


def test_blank_lines_and_a_byte_order_mark_are_not_records(tmp_path: Path):
    path = write(tmp_path / "a.csv", b"\xef\xbb\xbfa,b\r\n\r\n1,2\r\n\r\n\r\n3,4\r\n\r\n")
    source = CsvSource(path)
    assert rows_of(source) == [{"a": 1, "b": 2}, {"a": 3, "b": 4}]
    assert source.__getitems__([1, 0]) == [{"a": 3, "b": 4}, {"a": 1, "b": 2}]


def test_quotes_inside_a_field_are_ordinary_characters(tmp_path: Path):
    path = write(tmp_path / "a.csv", 'a,b\n5" pipe,1\n"x\ny",2\nz",3\n')
    assert [row["a"] for row in rows_of(CsvSource(path))] == ['5" pipe', "x\ny", 'z"']
    assert (
        rows_of(CsvSource(path))
        == pyarrow.csv.read_csv(
            path, parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True)
        ).to_pylist()
    )


def test_several_files_are_concatenated(tmp_path: Path):
    for name, rows in (("a", ""), ("b", "1,x\n2,y\n"), ("c", "3,z")):
        write(tmp_path / f"{name}.csv", f"n,t\n{rows}")
    source = CsvSource(tmp_path / "*.csv")
    assert source.__getitems__(np.array([2, 0, 1, 0])) == [
        {"n": 3, "t": "z"},
        {"n": 1, "t": "x"},
        {"n": 2, "t": "y"},
        {"n": 1, "t": "x"},
    ]


def test_types_are_inferred_from_the_first_megabyte_and_later_values_must_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_csv, "_SAMPLE_BYTES", 4)
    path = write(tmp_path / "a.csv", "a,b\n1,2\n3,4.5\n")
    source = CsvSource(path)
    message = (
        "Column 'b' is int64, but '4.5' is not. Correct it, or set the type of the column to one "
        f"that fits all its values, such as `types={{'b': 'float64'}}`. ({path}, byte 8, record 1)"
    )
    for read in (lambda: source[1], lambda: source.__getitems__([0, 1])):
        with pytest.raises(FormatError, match=re.escape(message)):
            read()
    assert source[0] == {"a": 1, "b": 2}
    assert CsvSource(path, types={"b": "float64"})[1]["b"] == 4.5


@pytest.mark.parametrize(
    ("value", "wider"),
    [(b"x", "string"), (b"2020-01-01 00:00:00.5", "timestamp[ns]"), (b"\xff", "binary")],
)
def test_the_error_suggests_a_type_that_fits(tmp_path: Path, value: bytes, wider: str):
    path = write(tmp_path / "a.csv", b"a,b\n1,%s\n" % value)
    with pytest.raises(FormatError, match=re.escape(f"`types={{'b': '{wider}'}}`")):
        CsvSource(path, types={"b": "int64"})[0]
    assert CsvSource(path, types={"b": wider})[0]["b"] is not None


@pytest.mark.parametrize("record", ["3", "3,4,5", '"3,4"', "x" * 100])
def test_a_record_with_another_number_of_fields_is_an_error(tmp_path: Path, record: str):
    path = write(tmp_path / "a.csv", f"a,b\n1,2\n{record}\n5,6\n")
    source = CsvSource(path)
    shown = repr(record[:40]) + ("..." if len(record) > 40 else "")
    message = (
        f"The record does not have 2 fields: {shown}. Correct it, or skip such records with "
        f"`SkipErrors`. ({path}, byte 8, record 1)"
    )
    with pytest.raises(CorruptFileError, match=re.escape(message)):
        source.__getitems__([2, 1, 0])
    assert source.__getitems__([2, 0]) == [{"a": 5, "b": 6}, {"a": 1, "b": 2}]


def test_records_that_cannot_be_parsed_can_be_skipped(tmp_path: Path):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n3\n5,6\n")
    loader = DataLoader(
        data_source=CsvSource(path),
        sampler=SequentialSampler(3),
        operations=[Batch(2)],
        on_error=SkipErrors(budget=1),
    )
    assert [batch["a"].tolist() for batch in loader] == [[1, 5]]


PROGRAM = """
import pickle, sys
source = pickle.load(sys.stdin.buffer)
print(len(source), source[1], repr(source))
"""


@pytest.mark.parametrize("is_used", [False, True])
def test_a_pickled_source_reads_in_another_process(tmp_path: Path, is_used: bool):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n1,x\n2,y\n"), types={"a": "string"})
    if is_used:
        rows_of(source)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM],
        input=pickle.dumps(source),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == (b"2 {'a': '2', 'b': 'y'} CsvSource('a.csv')\n", b"")


def test_threads_may_share_a_source(tmp_path: Path):
    path = write(tmp_path / "a.csv", "n,t\n" + "".join(f"{n},{n}\n" for n in range(1000)))
    source = CsvSource(path)
    orders = [np.random.default_rng(seed).permutation(1000) for seed in range(4)]
    with ThreadPoolExecutor(4) as threads:
        for order, rows in zip(orders, threads.map(source.__getitems__, orders), strict=True):
            assert [row["n"] for row in rows] == order.tolist()


def test_files_in_a_store_are_read():
    with fsspec.open("memory://tables/a.csv", "wb") as file:
        file.write(b"a,b\n1,x\n2,y\n")  # pyright: ignore
    assert CsvSource("memory://tables/a.csv").__getitems__([1, 0])[0] == {"a": 2, "b": "y"}


def test_a_file_may_have_no_records(tmp_path: Path):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n"))
    assert (len(source), source.__getitems__([])) == (0, [])
    assert len(CsvSource(write(tmp_path / "b.csv", ""), has_header=False)) == 0
    with pytest.raises(IndexError, match=re.escape("`index` must be in [0, 0), got 0.")):
        source[0]


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_out_of_bounds_is_an_error(tmp_path: Path, index: int):
    source = CsvSource(write(tmp_path / "a.csv", "a\n1\n2\n"))
    message = re.escape(f"`index` must be in [0, 2), got {index}.")
    for read in (lambda: source[index], lambda: source.__getitems__([0, index])):
        with pytest.raises(IndexError, match=message):
            read()


def test_an_empty_file_has_no_header(tmp_path: Path):
    path = write(tmp_path / "a.csv", "\n\n")
    message = f"The file has no header. Add one, or pass `has_header=False`. ({path})"
    with pytest.raises(FormatError, match=re.escape(message)):
        len(CsvSource(path))


def test_files_must_have_the_same_header(tmp_path: Path):
    paths = [write(tmp_path / "a.csv", "a,b\n1,2\n"), write(tmp_path / "b.csv", "b,a\n1,2\n")]
    message = (
        "The columns are ['b', 'a'], but those of the first file are ['a', 'b']. All files of a "
        f"source must have the same columns in the same order. ({paths[1]})"
    )
    with pytest.raises(FormatError, match=re.escape(message)):
        len(CsvSource(paths))


def test_two_columns_of_one_name_are_an_error(tmp_path: Path):
    path = write(tmp_path / "a.csv", "a,a\n1,2\n")
    with pytest.raises(FormatError, match=r"There are several columns named 'a'"):
        len(CsvSource(path))


def test_a_column_name_that_is_not_utf_8_is_an_error(tmp_path: Path):
    path = write(tmp_path / "a.csv", b"a,\xff\n1,2\n")
    with pytest.raises(CorruptFileError, match=r"The CSV file is damaged or truncated: "):
        len(CsvSource(path))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["c"]}, "`columns` names 'c', but the columns of 'a.csv' are 'a', 'b'."),
        ({"types": {"c": "int8"}}, "`types` names 'c', but the columns of 'a.csv' are 'a', 'b'."),
    ],
)
def test_selecting_a_missing_column_is_an_error_that_lists_the_columns(
    tmp_path: Path, options: Any, message: str
):
    source = CsvSource(write(tmp_path / "a.csv", "a,b\n1,2\n"), **options)
    with pytest.raises(PlanError, match=re.escape(message)):
        len(source)


NAMES = "Use a name of pyarrow, such as 'int64', 'float32', 'string', 'timestamp[ms]'."


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"types": "int64"}, "`types` must be a dict of names and types, got 'int64'."),
        ({"types": {"a": "text"}}, f"`types` sets 'a' to the type 'text'. {NAMES}"),
        ({"types": {"a": int}}, f"`types` must hold types, got <class 'int'> for 'a'. {NAMES}"),
        (
            {"types": {"a": pa.list_(pa.int8())}},
            "`types` sets 'a' to the type list<item: int8>, which cannot be read from CSV.",
        ),
        ({"delimiter": "::"}, "`delimiter` must be one character, and not a quote, got '::'."),
        ({"delimiter": '"'}, "`delimiter` must be one character, and not a quote, got '\"'."),
        ({"delimiter": "é"}, "`delimiter` must be an ASCII character, got 'é'."),
        ({"has_header": "no"}, "`has_header` must be True or False, got 'no'."),
    ],
)
def test_arguments_are_checked_when_the_source_is_created(
    tmp_path: Path, options: Any, message: str
):
    path = write(tmp_path / "a.csv", "a,b\n1,2\n")
    with pytest.raises(PlanError, match=re.escape(message)):
        CsvSource(path, **options)


def test_a_missing_file_is_an_error_when_the_source_is_created(tmp_path: Path):
    with pytest.raises(MissingFileError):
        CsvSource(tmp_path / "a.csv")


def test_its_repr_contains_files_and_columns_but_no_folder(tmp_path: Path):
    for name in "ab":
        write(tmp_path / f"{name}.csv", "a,b\n1,2\n")
    source = CsvSource(tmp_path / "*.csv", columns=["b"])
    assert repr(source) == "CsvSource(<2 files>, 'a.csv', ..., columns=['b'])"
