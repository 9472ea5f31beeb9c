"""The suite passes good sources, and each broken promise is caught by the test that is about it."""

import os
import pickle
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import pytest

from gristmill import ArraySource, RangeDataSource, SharedMemoryDataSource
from gristmill._columns import Columns
from gristmill.testing import SourceSuite
from gristmill.testing._records import difference, overwrite

PROMISES = [name for name in vars(SourceSuite) if name.startswith("test_")]


class Point(NamedTuple):
    x: Any
    y: Any


@dataclass
class Label:
    name: str
    weights: Any


class Plain:
    """A class without an `__eq__`."""

    def __init__(self, value: int) -> None:
        self.value = value


RECORDS: list[Any] = [
    "text",
    3,
    None,
    {"x": np.arange(3, dtype=np.int16), "y": [np.float32("nan"), float("nan")]},
    Point(np.array("2020", "datetime64[Y]"), np.array(["a", "bc"])),
    Label("cat", np.array([True, False])),
    np.array([(1, 2.5)], dtype=[("a", "i1"), ("b", "f8")]),
    np.array([{1}, None], dtype=object),
    b"bytes",
    Plain(7),
]


class Rows:
    """A source of any records, as one should be."""

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
    """A columnar source, as one should be."""

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
    """What the sources below have in common, but for one promise each."""

    def __init__(self) -> None:
        super().__init__([{"x": np.array([index, 1]), "y": index} for index in range(9)])


class Grows(Base):
    """Finds its last record when it gets there."""

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


class ChecksNoBoundsOfMany(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index % 9] for index in indices]


class TakesOnlyInts(Base):
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


class GivesItsOwnArrays(Base):
    def __init__(self) -> None:
        super().__init__()
        self.made = [Base.__getitem__(self, index) for index in range(9)]

    def __getitem__(self, index: SupportsIndex) -> Any:
        super().__getitem__(index)
        return dict(self.made[index])


class GivesRepeatsTheSameArray(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        made = {int(index): self[index] for index in indices}
        return [dict(made[int(index)]) for index in indices]


class SortsManyRecords(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        return [self[index] for index in sorted(indices)]


class LosesRepeats(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        is_odd = isinstance(indices, np.ndarray) and len(indices)
        return [self[index] for index in (np.unique(indices) if is_odd else indices)]


class WidensMany(Base):
    def __getitems__(self, indices: Any) -> list[Any]:
        made = [self[index] for index in indices]
        if isinstance(indices, np.ndarray):
            return [{**record, "x": record["x"].astype(np.float64)} for record in made]
        return made


class HasOtherColumns(Table):
    def read_columns(self, indices: Any) -> Columns:
        return Columns.of({"x": self.arrays["x"].astype(np.int64)}, indices)


class CannotBePickled(Base):
    """Only plain pickle refuses it: what else goes through cloudpickle reads the same."""

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        if protocol.__index__() < 5:  # `pickle.dumps` takes 4 by itself, cloudpickle 5
            raise TypeError("cannot pickle this")
        return super().__reduce_ex__(protocol)


class ForgetsWhenUnread(Base):
    """Has something in hand only once it was read, and pickles only that."""

    is_read = False

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.is_read = True
        return super().__getitem__(index)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) if self.is_read else {**vars(self), "records": []}

    def __repr__(self) -> str:
        return "ForgetsWhenUnread()"


class KeepsALock(Base):
    """Has something in hand once it was read that cannot be pickled."""

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.lock = threading.Lock()
        return super().__getitem__(index)


class BelongsToOneThread(Base):
    """Like a connection to SQLite."""

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


class TellsItsAddress(Base):
    __repr__ = object.__repr__


class TellsTooMuch(Base):
    def __repr__(self) -> str:
        return f"TellsTooMuch({[self[index] for index in range(len(self))]})"


class TellsWhatItDoes(Base):
    num_reads = 0

    def __getitem__(self, index: SupportsIndex) -> Any:
        self.num_reads += 1
        return super().__getitem__(index)

    def __repr__(self) -> str:
        return f"TellsWhatItDoes(num_reads={self.num_reads})"


class TellsWhichCopyItIs(Base):
    number = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, number=state.get("number", 0) + 1)

    def __repr__(self) -> str:
        return f"TellsWhichCopyItIs({self.number})"


LENGTH = "test_its_length_stays_what_it_is"
OUTSIDE = "test_an_index_outside_is_refused"
INTEGER = "test_any_integer_is_an_index"
AGAIN = "test_reading_again_gives_the_same_record"
BELONGS = "test_a_record_belongs_to_who_read_it"
MANY = "test_many_records_at_once_are_those_read_one_by_one"
COLUMNS = "test_columns_are_the_records_read_one_by_one"
BEFORE = "test_it_can_be_pickled_before_it_is_read"
AFTER = "test_it_can_be_pickled_after_it_is_read"
THREADS = "test_threads_may_share_it"
WORKER = "test_a_worker_process_reads_the_same"
REPR = "test_its_repr_is_short_and_the_same_everywhere"

BROKEN: list[tuple[type[Rows], str, str]] = [
    (Grows, LENGTH, r"^`len\(source\)` must not change. It was 9, and 10 after reading.$"),
    (
        CountsFromTheEnd,
        OUTSIDE,
        r"for an index outside \[0, 9\)\. `source\[-1\]` raised nothing\.$",
    ),
    (RaisesKeyError, OUTSIDE, r"`source\[-1\]` raised KeyError: -1"),
    (ChecksNoBoundsOfMany, OUTSIDE, r"`source\.__getitems__\(\[-1\]\)` raised nothing\.$"),
    (TakesOnlyInts, INTEGER, r"^int64 is not an int A source must take NumPy's integers and any"),
    (GivesItsOwnArrays, BELONGS, r'Give copies, .* source\[0\]\["x"\] is array\(\[-1, -2\]\), and'),
    (GivesRepeatsTheSameArray, BELONGS, r'source\[0\]\["x"\] is array\(\[-1, -2\]\), and should'),
    (SortsManyRecords, MANY, r"one record for each of a range of 9 indices\. source\[8\]"),
    (LosesRepeats, MANY, r"for each of a ndarray of 15 indices\. It gave 9\.$"),
    (WidensMany, MANY, r'source\[1\]\["x"\] is float64\[2\], and should be int64\[2\]\.$'),
    (
        HasOtherColumns,
        COLUMNS,
        r'a range of 6 indices\. source\[0\]\["x"\] is int64\[2\], and should',
    ),
    (KeepsALock, AFTER, r"^cannot pickle '_thread\.lock' object A source that is in use must go"),
    (BelongsToOneThread, THREADS, r"^opened in another thread 8 threads must be able to read"),
    (
        BelongsToOneProcess,
        WORKER,
        r'in a worker process\. source\[0\]\["y"\] is NoneType, and should',
    ),
    (TellsItsAddress, REPR, r"It must not hold an address, and is <.* object at 0x"),
    (TellsTooMuch, REPR, r"It must be shorter than 200 characters, and is \d+: TellsTooMuch"),
    (TellsWhatItDoes, REPR, r"reads=0\), and TellsWhatItDoes\(num_reads=9\) after reading\.$"),
    (TellsWhichCopyItIs, REPR, r"Is\(0\), and TellsWhichCopyItIs\(1\) after pickling\.$"),
]


def failures_of(make: Callable[[], Any], *, in_worker: bool = True) -> dict[str, str]:
    """Run the tests of the suite, each on a fresh source, and give what the failures tell."""
    failures: dict[str, str] = {}
    for name in PROMISES:
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
def test_a_broken_promise_is_caught_by_the_test_that_is_about_it(
    kind: type[Any], test: str, message: str
):
    # Starting a process takes longer than all the rest: only where it could tell something.
    failures = failures_of(kind, in_worker=test in (COLUMNS, AFTER, THREADS, WORKER))

    assert set(failures) == {test}
    assert re.search(message, failures[test])


def test_what_cannot_be_pickled_is_caught_before_and_after_it_is_read():
    failures = failures_of(CannotBePickled)

    assert set(failures) == {BEFORE, AFTER}
    assert failures[BEFORE] == "cannot pickle this An unread source must go through pickle."


def test_what_is_lost_when_an_unread_source_is_pickled_is_missing_in_a_worker_too():
    failures = failures_of(ForgetsWhenUnread)

    assert set(failures) == {BEFORE, WORKER}
    assert failures[BEFORE].endswith("after it went through pickle. Its length is 0, not 9.")


def test_a_source_that_never_reads_the_same_keeps_few_promises():
    failures = failures_of(CountsReads)

    assert set(PROMISES) - set(failures) == {LENGTH, OUTSIDE, COLUMNS, WORKER, REPR}
    assert failures[AGAIN].startswith("A source must give the same record for the same index each ")


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_does_not_differ_from_its_copy(record: Any):
    assert difference(record, pickle.loads(pickle.dumps(record))) is None


UNLIKE: list[Any] = [
    None,
    {},
    {"a": 1},
    {"b": 1},
    {"b": 1.0},
    {"b": True},
    {"b": np.int64(1)},
    {"b": np.int32(1)},
    {"b": np.array(1, np.int32)},
    {"b": np.array([1], np.int32)},
    {"b": np.array([[1]], np.int32)},
    {"b": np.array([[2]], np.int32)},
    {"b": np.array([[2]], ">i4")},
    [2, 3],
    [3, 2],
    (3, 2),
    Point(3, 2),
    "text",
    b"text",
    np.array([0.0]),
    np.array([-0.0]),
    np.array([(0, 1.5)], [("a", "i1"), ("b", "f8")]),
    np.array([(0, 1.0)], [("a", "i1"), ("b", "f8")]),
    np.array([{1}, None], dtype=object),
    np.array([{2}, None], dtype=object),
    Plain(1),
    Plain(2),
]


@pytest.mark.parametrize("index", range(len(UNLIKE) - 1))
def test_records_differ_by_containers_types_shapes_and_bits(index: int):
    one, other = UNLIKE[index : index + 2]
    assert difference(one, other) is not None
    assert difference(other, one) is not None


def test_a_difference_is_told_with_the_way_to_it_and_shortly():
    told = difference({"x": [1, "a"]}, {"x": [1, "b" * 100]})
    assert told == f"""record["x"][1] is '{"b" * 76}..., and should be 'a'"""
    assert difference({"x": 1}, {}) == 'record has nothing, and should have ["x"]'


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 0)),
        np.array(True),
        np.array([1.5, float("nan")]),
        np.arange(12).reshape(3, 4)[::2, ::-1],
        np.array(["a", ""]),
        np.array([{1}], dtype=object),
        np.array([({1}, 2)], [("a", "O"), ("b", "i1")]),
        np.array(["a", "bc"], np.dtypes.StringDType()),
        np.arange(3).astype("datetime64[s]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_overwriting_changes_every_array_that_has_anything_in_it(array: Any):
    before = array.copy()
    overwrite({"x": [array]})
    assert (difference(before, array) is None) == (array.size == 0)


def test_overwriting_leaves_what_is_read_only():
    array = np.arange(3)
    array.flags.writeable = False
    overwrite(array)
    assert array.tolist() == [0, 1, 2]
