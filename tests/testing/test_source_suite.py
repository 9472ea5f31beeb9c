"""Correct sources pass the suite, and each broken requirement fails the test that is about it."""

import os
import pickle
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import pytest

from gristmill import ArraySource, RangeDataSource, SharedMemoryDataSource
from gristmill._base.trees.columns import Columns
from gristmill.testing import SourceSuite
from tests.testing.record_samples import RECORDS

TESTS = [name for name in vars(SourceSuite) if name.startswith("test_")]


class Rows:
    """A correct source of any records."""

    def __init__(self, records: Sequence[Any]) -> None:
        self.records = [pickle.dumps(record) for record in records]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: SupportsIndex) -> Any:
        position = index.__index__()
        if not 0 <= position < len(self.records):
            raise IndexError(position)
        return pickle.loads(self.records[position])

    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index] for index in indices]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<{len(self.records)} records>)"


class TestRows(SourceSuite):
    @pytest.fixture
    def source(self) -> Rows:
        return Rows(RECORDS)


class TestNoRows(SourceSuite):
    @pytest.fixture
    def source(self) -> Rows:
        return Rows([])


class TestManyRows(SourceSuite):
    @pytest.fixture
    def source(self) -> Rows:
        return Rows(range(1000))


class TestRangeDataSource(SourceSuite):
    @pytest.fixture
    def source(self) -> RangeDataSource:
        return RangeDataSource(5, 50, 3)


class TestArraySource(SourceSuite):
    @pytest.fixture
    def source(self) -> ArraySource:
        return ArraySource({"x": np.arange(40.0).reshape(20, 2), "y": (np.arange(20), None)})


class TestSharedMemoryDataSource(SourceSuite):
    @pytest.fixture
    def source(self) -> SharedMemoryDataSource:
        return SharedMemoryDataSource(RECORDS)


class Table(Rows):
    """A correct columnar source."""

    is_columnar = True

    def __init__(self) -> None:
        self.arrays = {"x": np.arange(12, dtype=np.int32).reshape(6, 2)}
        super().__init__([{"x": row} for row in self.arrays["x"]])

    def read_columns(self, indices: Any) -> Columns:
        return Columns.of(self.arrays, indices)


class TestTable(SourceSuite):
    @pytest.fixture
    def source(self) -> Table:
        return Table()


class Base(Rows):
    """The base of the sources below, each of which breaks one requirement."""

    def __init__(self) -> None:
        super().__init__([{"x": np.array([index, 1]), "y": index} for index in range(9)])


class Grows(Base):
    """Finds another record when its last one is read."""

    is_at_end = False

    def __len__(self) -> int:
        return super().__len__() + self.is_at_end

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.is_at_end = index.__index__() == 8
        return super().__getitem__(index)


class CountsFromTheEnd(Base):
    def __getitem__(self, index: SupportsIndex) -> Any:
        position = index.__index__()
        return super().__getitem__(position + len(self) if position < 0 else position)


class RaisesKeyError(Base):
    def __getitem__(self, index: SupportsIndex) -> Any:
        try:
            return super().__getitem__(index)
        except IndexError as error:
            raise KeyError(index) from error


class WrapsIndicesOfMany(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index % 9] for index in indices]


class AcceptsOnlyInts(Base):
    def __getitem__(self, index: Any) -> Any:
        if type(index) is not int:
            raise TypeError(f"{type(index).__name__} is not an int")
        return super().__getitem__(index)

    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[int(index)] for index in indices]


class CountsReads(Base):
    num_reads = 0

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.num_reads += 1
        return {**super().__getitem__(index), "y": self.num_reads}


class ReturnsItsOwnArrays(Base):
    def __init__(self) -> None:
        super().__init__()
        self.cached = [Base.__getitem__(self, index) for index in range(9)]

    def __getitem__(self, index: SupportsIndex) -> Any:
        super().__getitem__(index)
        return dict(self.cached[index])


class SharesArraysOfRepeats(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        records = {int(index): self[index] for index in indices}
        return [dict(records[int(index)]) for index in indices]


class SortsManyRecords(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index] for index in sorted(indices)]


class DropsRepeats(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        is_odd = isinstance(indices, np.ndarray) and len(indices)
        return [self[index] for index in (np.unique(indices) if is_odd else indices)]


class WidensMany(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        records = [self[index] for index in indices]
        if isinstance(indices, np.ndarray):
            return [{**record, "x": record["x"].astype(np.float64)} for record in records]
        return records


class HasOtherColumns(Table):
    def read_columns(self, indices: Any) -> Columns:
        return Columns.of({"x": self.arrays["x"].astype(np.int64)}, indices)


class CannotBePickled(Base):
    """Cannot be pickled by plain `pickle`; a copy by `cloudpickle` reads the same."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if protocol.__index__() < 5:  # the default of `pickle.dumps` is 4, that of cloudpickle 5
            raise TypeError("cannot pickle this")
        return super().__reduce_ex__(protocol)


class ForgetsWhenUnread(Base):
    """Pickles its records only after it was read."""

    is_read = False

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.is_read = True
        return super().__getitem__(index)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) if self.is_read else {**vars(self), "records": []}

    def __repr__(self) -> str:
        return "ForgetsWhenUnread()"


class HoldsALock(Base):
    """Holds a lock after it was read, which cannot be pickled."""

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.lock = threading.Lock()
        return super().__getitem__(index)


class BelongsToOneThread(Base):
    """Can be read in one thread only, like an SQLite connection."""

    owner = None

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.owner = self.owner or threading.get_ident()
        if self.owner != threading.get_ident():
            raise RuntimeError("opened in another thread")
        return super().__getitem__(index)

    def __getstate__(self) -> dict[str, Any]:
        return {"records": self.records}


class BelongsToOneProcess(Base):
    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()

    def __getitem__(self, index: SupportsIndex) -> Any:
        record = super().__getitem__(index)
        return record if os.getpid() == self.process else {**record, "y": None}


class ShowsItsAddress(Base):
    __repr__ = object.__repr__


class ShowsTooMuch(Base):
    def __repr__(self) -> str:
        return f"ShowsTooMuch({[self[index] for index in range(len(self))]})"


class ShowsItsReads(Base):
    num_reads = 0

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.num_reads += 1
        return super().__getitem__(index)

    def __repr__(self) -> str:
        return f"ShowsItsReads(num_reads={self.num_reads})"


class ShowsItsCopyNumber(Base):
    number = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, number=state.get("number", 0) + 1)

    def __repr__(self) -> str:
        return f"ShowsItsCopyNumber({self.number})"


LENGTH = "test_length_does_not_change"
OUT_OF_BOUNDS = "test_index_out_of_bounds_raises_index_error"
INTEGER = "test_any_integer_type_is_an_index"
AGAIN = "test_reading_again_returns_the_same_record"
WRITING = "test_writing_into_a_record_changes_no_other_read"
GETITEMS = "test_getitems_returns_the_records_of_getitem"
COLUMNS = "test_read_columns_returns_the_records_of_getitem"
UNREAD = "test_unread_source_can_be_pickled"
IN_USE = "test_source_in_use_can_be_pickled"
THREADS = "test_threads_can_share_the_source"
WORKER = "test_worker_process_reads_the_same_records"
REPR = "test_repr_is_short_and_stable"

BROKEN: list[tuple[type[Rows], str, str]] = [
    (Grows, LENGTH, r"^`len\(source\)` must not change. It was 9, and 10 after reading.$"),
    (
        CountsFromTheEnd,
        OUT_OF_BOUNDS,
        r"for an index outside \[0, 9\)\. `source\[-1\]` raised nothing\.$",
    ),
    (RaisesKeyError, OUT_OF_BOUNDS, r"`source\[-1\]` raised KeyError: -1"),
    (WrapsIndicesOfMany, OUT_OF_BOUNDS, r"`source\.__getitems__\(\[-1\]\)` raised nothing\.$"),
    (AcceptsOnlyInts, INTEGER, r"^int64 is not an int A source must accept NumPy integers and any"),
    (
        ReturnsItsOwnArrays,
        WRITING,
        r'Return copies, .* source\[0\]\["x"\] is array\(\[-1, -2\]\), exp',
    ),
    (SharesArraysOfRepeats, WRITING, r'source\[0\]\["x"\] is array\(\[-1, -2\]\), expected'),
    (SortsManyRecords, GETITEMS, r"one record for each of a range of 9 indices\. source\[8\]"),
    (DropsRepeats, GETITEMS, r"for each of a ndarray of 15 indices\. It returned 9\.$"),
    (WidensMany, GETITEMS, r'source\[1\]\["x"\] is float64\[2\], expected int64\[2\]\.$'),
    (
        HasOtherColumns,
        COLUMNS,
        r'a range of 6 indices\. source\[0\]\["x"\] is int64\[2\], expected',
    ),
    (HoldsALock, IN_USE, r"^cannot pickle '_thread\.lock' object A source that is in use must be"),
    (BelongsToOneThread, THREADS, r"^opened in another thread 8 threads must be able to read"),
    (
        BelongsToOneProcess,
        WORKER,
        r'in a worker process\. source\[0\]\["y"\] is NoneType, expected',
    ),
    (ShowsItsAddress, REPR, r"It must not contain an address, and is <.* object at 0x"),
    (ShowsTooMuch, REPR, r"It must be shorter than 200 characters, and is \d+: ShowsTooMuch"),
    (ShowsItsReads, REPR, r"reads=0\), and ShowsItsReads\(num_reads=9\) after reading\.$"),
    (ShowsItsCopyNumber, REPR, r"Number\(0\), and ShowsItsCopyNumber\(1\) after pickling\.$"),
]


def failures_of(make: Callable[[], Any], *, in_worker: bool = True) -> dict[str, str]:
    """Run the tests of the suite, each on a new source, and return the messages of failures."""
    failures: dict[str, str] = {}
    for name in TESTS:
        if name == WORKER and not in_worker:
            continue
        try:
            getattr(SourceSuite(), name)(make())
        except Exception as error:
            failures[name] = " ".join([str(error), *getattr(error, "__notes__", ())])
    return failures


@pytest.mark.parametrize(
    ("kind", "test", "message"), BROKEN, ids=lambda value: getattr(value, "__name__", "-")
)
def test_a_broken_requirement_fails_the_test_that_is_about_it(
    kind: type[Any], test: str, message: str
):
    # Starting a process takes longer than all other tests, so only where it could fail.
    failures = failures_of(kind, in_worker=test in (COLUMNS, IN_USE, THREADS, WORKER))

    assert set(failures) == {test}
    assert re.search(message, failures[test])


def test_a_source_that_cannot_be_pickled_fails_unread_and_in_use():
    failures = failures_of(CannotBePickled)

    assert set(failures) == {UNREAD, IN_USE}
    assert failures[UNREAD] == "cannot pickle this An unread source must be picklable by pickle."


def test_records_lost_by_pickling_an_unread_source_are_missing_in_a_worker_too():
    failures = failures_of(ForgetsWhenUnread)

    assert set(failures) == {UNREAD, WORKER}
    assert failures[UNREAD].endswith("after pickling by pickle. Its length is 0, not 9.")


def test_a_source_whose_records_change_fails_most_tests():
    failures = failures_of(CountsReads)

    assert set(TESTS) - set(failures) == {LENGTH, OUT_OF_BOUNDS, COLUMNS, WORKER, REPR}
    assert failures[AGAIN].startswith(
        "A source must return the same record for the same index each "
    )
