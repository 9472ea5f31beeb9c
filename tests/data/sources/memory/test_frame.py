from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gristmill import DataLoader, IndexSampler, MapDataset
from gristmill._data.sources.memory.frame import FrameSource
from gristmill.errors import PlanError, PlanTypeError
from gristmill.testing import SourceSuite

COLUMNS: dict[str, list[Any]] = {
    "number": list(range(50)),
    "text": [f"text {i}" if i % 7 else None for i in range(50)],
    "maybe": [i if i % 5 else None for i in range(50)],
    "list": [[1] * (i % 3) for i in range(50)],
    "day": [date(2020, 1, 1 + i % 28) for i in range(50)],
}


def frame_of(library: Any, columns: dict[str, Any]) -> Any:
    return pa.table(columns) if library is pa else library.DataFrame(columns)


def numbers(library: Any) -> Any:
    columns = {"x": np.arange(40, dtype=np.float32), "y": np.arange(40) % 3 == 0}
    return frame_of(library, columns)


class TestPandas(SourceSuite):
    @pytest.fixture
    def source(self) -> FrameSource:
        frame = pd.DataFrame(COLUMNS, index=[f"row {i}" for i in range(50)])
        frame["maybe"] = frame["maybe"].astype("Int64")
        frame["category"] = pd.Categorical(frame["text"])
        return FrameSource(frame)


class TestPolars(SourceSuite):
    @pytest.fixture
    def source(self) -> FrameSource:
        return FrameSource(pl.DataFrame(COLUMNS))


class TestNumbers(SourceSuite):
    @pytest.fixture(params=[pd, pl, pa], ids=["pandas", "polars", "pyarrow"])
    def source(self, request: pytest.FixtureRequest) -> FrameSource:
        return FrameSource(numbers(request.param))


class TestArrow(SourceSuite):
    @pytest.fixture
    def source(self) -> FrameSource:
        table = pa.table(COLUMNS)
        return FrameSource(pa.concat_tables([table[:20], table[20:]]))


class TestSeries(SourceSuite):
    @pytest.fixture(params=[pd, pl], ids=["pandas", "polars"])
    def source(self, request: pytest.FixtureRequest) -> FrameSource:
        return FrameSource(request.param.Series(["a", None, "c"]))


@pytest.mark.parametrize("library", [pd, pl, pa])
def test_records_are_rows_and_nulls_are_none(library: Any):
    frame = frame_of(library, COLUMNS)
    if library is pd:
        frame["maybe"] = frame["maybe"].astype("Int64")
    source = FrameSource(frame)
    for index in (0, 7, 10, 49):
        record = dict(source[index])
        record["list"] = list(record["list"])
        assert record == {name: values[index] for name, values in COLUMNS.items()}
    assert type(source[1]["number"]) is np.int64


@pytest.mark.parametrize("library", [pd, pl])
def test_columns_of_numbers_are_not_copied(library: Any):
    values = np.arange(1000.0)
    frame = library.DataFrame({"x": values})
    source = FrameSource(frame)
    assert source.is_columnar
    held = source.read_columns(range(0))._arrays[0]
    assert isinstance(held, np.ndarray)
    assert np.shares_memory(held, frame["x"].to_numpy())


@pytest.mark.parametrize("library", [pd, pl, pa])
def test_a_frame_is_a_source_in_both_apis(library: Any):
    frame = numbers(library)
    batch: Any = MapDataset.source(frame).batch(4)[1]
    assert batch["x"].tolist() == [4, 5, 6, 7]
    assert batch["x"].dtype == np.float32
    sampler = IndexSampler(40, shuffle=True, seed=1, num_epochs=1)
    seen = [float(row["x"]) for row in DataLoader(data_source=frame, sampler=sampler)]
    assert sorted(seen) == list(range(40))


def test_a_pandas_series_is_read_by_position_and_not_by_label():
    series = pd.Series([10, 20, 30], index=[2, 1, 0])
    assert list(MapDataset.source(series)) == [10, 20, 30]


def test_numbers_of_an_arrow_table_are_not_copied_and_read_as_columns():
    values = np.arange(1000.0)
    table = pa.table({"x": pa.array(values)})
    for frame in (table, table.to_batches()[0], table.slice(0, 1000)):
        source = FrameSource(frame)
        assert source.is_columnar
        held = source.read_columns(range(0))._arrays[0]
        assert isinstance(held, np.ndarray)
        assert np.shares_memory(held, values)


@pytest.mark.parametrize("chunks", [[[1, 2], [3]], [[1, 2, 3]]])
def test_the_items_of_an_arrow_array_are_records(chunks: list[list[int]]):
    for column in (pa.chunked_array(chunks), pa.array([1, 2, 3])):
        batch: Any = MapDataset.source(column).batch(3)[0]
        assert batch.tolist() == [1, 2, 3]


def test_an_arrow_table_without_rows_is_empty():
    assert list(MapDataset.source(pa.schema([("x", pa.string())]).empty_table())) == []
    assert len(FrameSource(pa.table({"x": pa.chunked_array([], pa.int8())}))) == 0


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_the_groups_of_a_frame_are_refused_by_name(library: str):
    frame: Any = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}[library](
        {"a": [1, 1, 2]}
    )
    groups = getattr(frame, "group_by", None) or frame.groupby
    with pytest.raises(PlanTypeError, match=rf"GroupBy of {library}, which has no records by"):
        MapDataset.source(groups("a"))


def test_a_subset_of_a_frame_is_read_by_position():
    frame = pd.DataFrame({"x": range(10)})
    assert [row["x"] for row in MapDataset.source(frame[frame.x > 6])] == [7, 8, 9]


@pytest.mark.parametrize(
    "values",
    [
        [Decimal("1.5"), None],
        [datetime(2020, 1, 1, tzinfo=UTC)],
        [{"a": 1}, None],
        [b"bytes", None],
        [1, None],
        [True, None],
    ],
)
def test_other_values_of_polars_are_those_of_to_list(values: list[Any]):
    frame = pl.DataFrame({"x": pl.Series(values)})
    assert [row["x"] for row in FrameSource(frame).__getitems__(range(len(values)))] == values


def test_times_are_arrays():
    times = [datetime(2020, 1, 1), datetime(2021, 1, 1)]
    for frame in (pd.DataFrame({"t": times}), pl.DataFrame({"t": times})):
        source = FrameSource(frame)
        assert source.is_columnar
        assert source[1]["t"] == np.datetime64("2021-01-01")


def test_a_frame_without_columns_has_empty_records():
    assert FrameSource(pd.DataFrame(index=range(2))).__getitems__([0, 1]) == [{}, {}]


def test_columns_that_are_not_named_by_strings_are():
    assert FrameSource(pd.DataFrame(np.eye(2)))[0] == {"0": 1.0, "1": 0.0}


def test_columns_of_the_same_name_are_an_error():
    frame = pd.DataFrame(np.eye(2), columns=["a", "a"])
    with pytest.raises(PlanError, match=r"^The frame has several columns named 'a'\. Rename"):
        FrameSource(frame)


def test_another_object_is_an_error():
    with pytest.raises(PlanTypeError, match=r"^`frame` must be a DataFrame .*, got list\.$"):
        FrameSource([1])


def test_many_columns_have_a_short_repr():
    frame = pl.DataFrame({f"{'long' * 30} {i}": [1] for i in range(100)})
    assert len(repr(FrameSource(frame))) < 200
    assert repr(FrameSource(pl.DataFrame({"x": [1]}))) == "FrameSource(<1 records>, x: int64)"
