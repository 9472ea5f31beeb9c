"""Long lists of plain data are packed: any record can be read, in any order, and again."""

import datetime
import decimal
import pickle
import sys
from pathlib import PurePosixPath
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._engine.executors.serialization.packed_records import (
    MAX_ARRAY_BYTES,
    MIN_RECORDS,
    STRINGS_PER_CHUNK,
    PackedRecords,
    PackedStrings,
    pack_records,
)

cloudpickle.register_pickle_by_value(sys.modules[__name__])

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
    | st.dates()
    | st.decimals(allow_nan=False)
)
plain = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def pack(records: Any) -> PackedRecords | PackedStrings:
    packed = pack_records(records)
    assert packed is not None
    return packed


def long(records: list[Any]) -> list[Any]:
    """Repeat records until there are enough to be packed, with a last chunk that is not full."""
    return (records * (MIN_RECORDS // len(records) + 4))[: MIN_RECORDS + 3]


@settings(deadline=None)
@given(
    st.lists(plain, min_size=1, max_size=30),
    st.lists(st.integers(0, MIN_RECORDS + 2), max_size=50),
    st.booleans(),
)
def test_any_plain_data_reads_back_equal_in_any_order(
    few: list[Any], indices: list[int], is_tuple: bool
):
    records: Any = tuple(long(few)) if is_tuple else long(few)
    packed = pickle.loads(pickle.dumps(pack(records)))  # as a worker has it

    assert len(packed) == len(records)
    for index in [*indices, *indices, len(records) - 1, 0]:
        assert packed[index] == records[index]
        assert type(packed[index]) is type(records[index])


@settings(deadline=None)
@given(
    st.lists(st.text(st.characters(), max_size=5), min_size=1, max_size=30)
    | st.lists(st.binary(max_size=5), min_size=1, max_size=30),
    st.booleans(),
)
def test_any_strings_read_back_equal(few: list[Any], is_ascii_at_first: bool):
    start = type(few[0])() if is_ascii_at_first else few[-1]
    records = [start] * (STRINGS_PER_CHUNK - 3) + long(few)
    packed = pickle.loads(pickle.dumps(pack(records)))  # as a worker has it

    assert isinstance(packed, PackedStrings)
    assert len(packed) == len(records)
    assert [packed[index] for index in range(len(records))] == records


@pytest.mark.parametrize("other", ["a", b"a", None, ["a"], np.str_("a")])
@pytest.mark.parametrize("strings", [["b"], [b"b"]])
def test_other_records_among_strings_keep_their_type(strings: list[Any], other: Any):
    records = [*strings * (2 * STRINGS_PER_CHUNK), other]
    packed = pack(records)

    assert [packed[0], packed[len(records) - 1]] == [records[0], other]
    assert type(packed[len(records) - 1]) is type(other)


def test_a_record_that_was_changed_reads_back_as_it_was():
    packed = pack([{"x": [number]} for number in range(MIN_RECORDS)])

    for _ in range(3):
        record: Any = packed[5]
        assert record == {"x": [5]}
        record["x"].append("changed")
        record["y"] = 1
    assert packed[6] == {"x": [6]}


def test_the_list_is_copied():
    records = [[number] for number in range(MIN_RECORDS)]
    packed = pack(records)

    records[3].append(7)

    assert packed[3] == [3]


def test_arrays_and_objects_of_the_standard_library_are_plain_data():
    records = [
        (np.arange(number % 5), np.float32(1.5), PurePosixPath("a"), datetime.timedelta(1))
        for number in range(MIN_RECORDS)
    ]

    record: Any = pack(records)[8]
    array, number, path, delta = record

    assert array.tolist() == [0, 1, 2]
    assert (number, path, delta) == records[8][1:]
    assert pack([decimal.Decimal(1)] * MIN_RECORDS)[0] == 1


class OfTheScript:
    """A class that workers know only by value."""


def function_of_the_script() -> None:
    """Is sent by value as well."""


@pytest.mark.parametrize(
    "record",
    [
        OfTheScript(),
        OfTheScript,
        function_of_the_script,
        [OfTheScript()],
        {"x": {"y": OfTheScript}},
    ],
    ids=["instance", "class", "function", "in a list", "in dicts"],
)
def test_what_a_worker_cannot_import_is_left_to_the_general_pickler(record: Any):
    assert pack_records([*range(MIN_RECORDS), record]) is None


def test_classes_of_main_are_left_to_the_general_pickler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(OfTheScript, "__module__", "__main__")
    monkeypatch.setattr(sys.modules["__main__"], "OfTheScript", OfTheScript, raising=False)

    assert pack_records([OfTheScript() for _ in range(MIN_RECORDS)]) is None


def test_large_arrays_and_open_files_are_left_to_the_general_pickler():
    large = np.zeros(MAX_ARRAY_BYTES + 1, np.uint8)
    with open(__file__) as file:
        assert pack_records([large] * MIN_RECORDS) is None
        assert pack_records([file] * MIN_RECORDS) is None


@pytest.mark.parametrize(
    "source", [[1] * (MIN_RECORDS - 1), range(10**6), np.zeros(10**4), {}, "x" * 10**4]
)
def test_other_sources_are_not_packed(source: Any):
    assert pack_records(source) is None


def test_subclasses_of_list_are_not_packed():
    class Own(list[int]):
        pass

    assert pack_records(Own([1] * MIN_RECORDS)) is None


@pytest.mark.parametrize("record", [1, "a"])
@pytest.mark.parametrize("kind", [list, tuple])
def test_packed_records_are_shown_as_what_they_were(kind: Any, record: Any):
    assert repr(pack(kind([record] * MIN_RECORDS))) == f"{kind.__name__}(<1000 records>)"


@pytest.mark.parametrize("record", [1, "a"])
def test_an_index_out_of_range_is_refused(record: Any):
    with pytest.raises(IndexError):
        pack([record] * MIN_RECORDS)[MIN_RECORDS]


def test_records_that_share_a_large_object_are_left_to_the_general_pickler():
    """They would have a copy of it each."""
    text = "x" * 10_000
    assert pack_records([text] * MIN_RECORDS) is None
    assert pack_records([(number, text) for number in range(MIN_RECORDS)]) is None
    assert pack_records([f"{number}{text}" for number in range(MIN_RECORDS)]) is not None
    assert pack_records(["a name", "another"] * MIN_RECORDS) is not None
