"""A long list is packed again for the next iterator only if it may have changed."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gristmill._engine.executors.serialization.packed_records import MIN_RECORDS
from gristmill._engine.executors.serialization.packed_sources import PackedSource, PackedSources

COUNT = MIN_RECORDS + 5

UNCHANGEABLE: dict[str, Callable[[int], Any]] = {
    "strings": str,
    "bytes": lambda number: b"%d" % number,
    "numbers": lambda number: [number, number / 2, None, True, 1j][number % 5],
    "flat tuples": lambda number: (str(number), number, None),
    "tuples and strings": lambda number: (number,) if number % 2 else str(number),
    "tuples in tuples": lambda number: ("a", (number, (2.5, None))),
    "numbers of NumPy": lambda number: (np.int64(number), np.float32(0.5), np.datetime64(0, "D")),
    "paths": lambda number: Path("data") / str(number),
}
CHANGEABLE: dict[str, Callable[[int], Any]] = {
    "dicts": lambda number: {"x": number},
    "lists": lambda number: [number],
    "one list": lambda number: [] if number == 777 else str(number),
    "a list in a tuple": lambda number: ("a", [] if number == 777 else 1),
    "a tuple in a tuple": lambda number: ("a", (number, [])),
    "arrays of objects": lambda number: np.array([number, []], dtype=object),
    "large arrays": lambda number: (number, np.zeros(500)),
    "a list beside an array": lambda number: (np.zeros(3), [number]),
    "records of NumPy": lambda number: np.array([(number,)], [("x", int)])[0],
    "deep tuples": lambda number: ((((([number],),),),),),
}


def packed_once(source: Any) -> list[PackedSource]:
    """Pack a source; return what the next iterator need not pack again."""
    sources = PackedSources()
    assert sources.pack(source) is sources.pack(source) is not None
    return sources.comparable


def read(source: Any, earlier: list[PackedSource]) -> list[Any]:
    packed = PackedSources(earlier).pack(source)
    assert packed is not None
    return [packed[index] for index in range(len(packed))]


@pytest.mark.parametrize("name", UNCHANGEABLE)
@pytest.mark.parametrize("kind", [list, tuple])
def test_what_cannot_have_changed_is_not_packed_again(name: str, kind: Callable[[Any], Any]):
    source = kind(map(UNCHANGEABLE[name], range(COUNT)))
    (earlier,) = packed_once(source)

    again = PackedSources([earlier])

    assert again.pack(source) is earlier.packed
    assert again.comparable == [earlier]


@pytest.mark.parametrize("name", CHANGEABLE)
def test_records_that_can_change_are_packed_for_each_iterator(name: str):
    assert packed_once(list(map(CHANGEABLE[name], range(COUNT)))) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda source: source.append("new"),
        lambda source: source.pop(),
        lambda source: source.__setitem__(700, "new"),
        lambda source: source.__setitem__(700, 700.0),
        lambda source: source.reverse(),
        lambda source: source.__setitem__(slice(None), [str(n) for n in range(COUNT)]),
    ],
    ids=["append", "pop", "assign", "equal of another type", "reverse", "equal ones"],
)
def test_a_list_that_has_changed_is_packed_again(change: Callable[[list[Any]], object]):
    source: list[Any] = list(range(COUNT))
    earlier = packed_once(source)

    change(source)

    found = read(source, earlier)
    assert found == source
    assert [*map(type, found)] == [*map(type, source)]


def test_an_equal_list_is_packed_by_itself():
    source = [str(number) for number in range(COUNT)]
    earlier = packed_once(source)

    sources = PackedSources(earlier)

    assert sources.pack(list(source)) is not earlier[0].packed


def test_a_source_that_is_sent_as_it_is_has_nothing_to_keep():
    sources = PackedSources()

    assert sources.pack(["a", "b"]) is None
    assert sources.pack(np.zeros(5000)) is None
    assert sources.comparable == []


@pytest.mark.parametrize("name", UNCHANGEABLE)
def test_a_list_in_an_object_is_packed_if_its_items_cannot_change(name: str):
    items = list(map(UNCHANGEABLE[name], range(COUNT)))
    sources = PackedSources()

    reference = sources.refer(items)

    assert pickle.loads(pickle.dumps(reference)) == items
    assert sources.refer(items) is reference
    assert len(sources.comparable) == 1
    again = PackedSources(sources.comparable)
    again.refer(items)
    assert again.comparable == sources.comparable


@pytest.mark.parametrize("name", CHANGEABLE)
def test_a_list_in_an_object_is_left_as_it_is_if_its_items_can_change(name: str):
    """Two of them may have a part in common, and a change of one would be a change of both."""
    sources = PackedSources()

    assert sources.refer(list(map(CHANGEABLE[name], range(COUNT)))) is None
    assert sources.comparable == []


ARRAYS: dict[str, Callable[[int], Any]] = {
    "arrays": lambda number: np.array([number, number + 1]),
    "tuples": lambda number: (str(number), np.arange(number % 5, dtype=np.float32), number),
    "several types": lambda number: ((np.zeros(3), np.array(number)), np.array(["a", "bc"])),
    "structured": lambda number: (np.zeros(2, [("x", int), ("y", "i1")]),),
    "big endian": lambda number: (np.full((2, 2), number, ">i4"), np.array(number, "M8[s]")),
}


def arrays_of(record: Any) -> list[Any]:
    if isinstance(record, np.ndarray):
        return [record]
    return [one for part in record for one in arrays_of(part)] if type(record) is tuple else []


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("kind", [list, tuple])
def test_arrays_in_a_source_are_compared(name: str, kind: Callable[[Any], Any]):
    source = kind(map(ARRAYS[name], range(COUNT)))
    (earlier,) = packed_once(source)

    assert PackedSources([earlier]).pack(source) is earlier.packed
    assert PackedSources([earlier]).refer(source) is None  # in an object, workers may change them


ARRAY_CHANGES: dict[str, Callable[[Any], object]] = {
    "content": lambda array: array.view("u1").__setitem__(0, array.view("u1")[0] ^ 1),
    "flags": lambda array: array.setflags(write=False),
    "shape": lambda array: setattr(array, "shape", (1, *array.shape)),
    "dtype": lambda array: setattr(array, "dtype", array.dtype.newbyteorder()),
    "size": lambda array: array.resize((0,), refcheck=False),
}


@pytest.mark.parametrize("name", ["arrays", "tuples", "big endian"])
@pytest.mark.parametrize("change", ARRAY_CHANGES)
@pytest.mark.filterwarnings("ignore:Setting the:DeprecationWarning")
def test_a_changed_array_is_packed_again(name: str, change: str):
    source = [ARRAYS[name](number) for number in range(COUNT)]
    earlier = packed_once(source)
    array = arrays_of(source[777])[0]

    ARRAY_CHANGES[change](array)

    again = arrays_of(read(source, earlier)[777])[0]
    assert again.dtype == array.dtype
    assert again.shape == array.shape
    assert again.tobytes() == array.tobytes()
    assert again.flags.writeable == array.flags.writeable
    assert PackedSources(earlier).pack(source) is not earlier[0].packed


def test_another_array_of_the_same_content_is_packed_again():
    source: list[Any] = [np.zeros(2) for _ in range(COUNT)]
    earlier = packed_once(source)

    source[777] = np.zeros(2)

    assert PackedSources(earlier).pack(source) is not earlier[0].packed


def test_a_list_that_is_a_source_and_in_an_object_is_packed_once():
    items = list(map(str, range(COUNT)))
    sources = PackedSources()

    sources.refer(items)
    packed = sources.pack(items)

    (one,) = sources.comparable
    assert packed is one.packed


def test_lists_are_looked_for_again_only_if_there_were_any():
    assert PackedSources().finds_lists
    assert not PackedSources([]).finds_lists
    assert PackedSources(packed_once(list(range(COUNT)))).finds_lists


def test_the_list_of_a_temporary_object_is_not_mistaken_for_another():
    sources = PackedSources()

    for number in range(20):  # each may be where the one before was in memory
        reference = sources.refer([number] * COUNT)
        assert pickle.loads(pickle.dumps(reference))[7] == number
