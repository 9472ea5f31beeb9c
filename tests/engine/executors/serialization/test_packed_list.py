"""A list that a worker loads item by item behaves as the plain list that it stands for."""

import array
import bisect
import collections
import copy
import heapq
import itertools
import json
import operator
import pickle
import random
import statistics
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.executors.serialization.packed_list import (
    MIN_MAPPED_RECORDS,
    PackedList,
    load_list,
)
from gristmill._engine.executors.serialization.packed_records import (
    MIN_RECORDS,
    STRINGS_PER_CHUNK,
    pack_records,
)

COUNT = MIN_RECORDS + 5

ITEMS: dict[str, Callable[[int], Any]] = {
    "strings": str,
    "other strings": lambda number: "é" * (number % 3) + str(number),
    "bytes": lambda number: b"%d" % number,
    "numbers": int,
    "tuples": lambda number: (str(number), number),
}


def make(name: str, count: int = COUNT) -> tuple[list[Any], Any]:
    """Return a plain list, and one that is packed."""
    plain = list(map(ITEMS[name], range(count)))
    packed = pack_records(plain)
    assert packed is not None
    return plain, PackedList.of(packed)


def append_in_place(items: Any) -> Any:
    other = [1]
    same = other
    other += items
    return same


def assign_to_slice(items: Any) -> Any:
    other = [1, 2, 3]
    other[1:2] = items
    return other


def match(items: Any) -> Any:
    match items:
        case [first, *rest]:
            return first, rest
        case _:
            return None


def change_while_iterating(items: Any) -> Any:
    found: list[Any] = []
    for number, item in enumerate(items):
        found.append(item)
        if number == 3:
            items.pop(0)
            items.append("last")
    return found


def search_while_iterating(items: Any) -> Any:
    return [item for item in items if item in items]


USES: dict[str, Callable[[Any], Any]] = {
    "len": len,
    "first": lambda items: items[0],
    "last": lambda items: items[-1],
    "NumPy index": lambda items: items[np.int64(7)],
    "slice": lambda items: items[5:900:7],
    "slice backwards": lambda items: items[::-3],
    "whole slice": lambda items: items[:],
    "out of range": lambda items: items[COUNT],
    "no index": lambda items: items["a"],
    "list": list,
    "tuple": tuple,
    "set": lambda items: sorted(set(items)),
    "sorted": sorted,
    "reversed": lambda items: list(reversed(items)),
    "zip": lambda items: list(zip(items, items, strict=True)),
    "enumerate": lambda items: list(enumerate(items)),
    "unpacked": lambda items: [*items, *items],
    "arguments": lambda items: (lambda *given: given)(*items),
    "match": match,
    "repr": repr,
    "str": "{}".format,
    "true": bool,
    "contains": lambda items: (items[7] in items, "no" in items),
    "index": lambda items: items.index(items[7]),
    "index of none": lambda items: items.index("no"),
    "count": lambda items: items.count(items[7]),
    "copy": lambda items: (items.copy(), type(items.copy())),
    "copy.copy": lambda items: (copy.copy(items), type(copy.copy(items))),
    "deepcopy": lambda items: (copy.deepcopy(items), type(copy.deepcopy(items))),
    "pickle": lambda items: [pickle.loads(pickle.dumps(items, n)) for n in range(6)],
    "type": lambda items: type(items)(iter("ab")),
    "equal": lambda items: (items == list(items), list(items) == items, items == [1]),
    "not equal": lambda items: (items != list(items), items != 3),
    "order": lambda items: (items < items[1:], items[1:] <= items, items > [], items <= []),
    "plus": lambda items: operator.add(items, ["x"]),
    "after": lambda items: operator.add(["x"], items),
    "plus itself": lambda items: operator.add(items, items),
    "times": lambda items: (items * 2, 2 * items),
    "plus tuple": lambda items: operator.add(items, (1,)),
    "append in place": append_in_place,
    "assign to slice": assign_to_slice,
    "change while iterating": change_while_iterating,
    "search while iterating": search_while_iterating,
    "append": lambda items: items.append("x"),
    "extend": lambda items: items.extend(items),
    "insert": lambda items: items.insert(3, "x"),
    "remove": lambda items: items.remove(items[5]),
    "pop": lambda items: (items.pop(), items.pop(0)),
    "clear": lambda items: items.clear(),
    "sort": lambda items: items.sort(key=str, reverse=True),
    "reverse": lambda items: items.reverse(),
    "assign": lambda items: items.__setitem__(3, "x"),
    "assign slice": lambda items: items.__setitem__(slice(3, 50), "xyz"),
    "delete": lambda items: items.__delitem__(slice(3, None, 2)),
    "json": lambda items: json.dumps(items),
    "min and max": lambda items: (min(items), max(items)),
    "sum": sum,
    "join": ",".join,
    "Counter": collections.Counter,
    "islice": lambda items: list(itertools.islice(items, 3, 9)),
    "combinations": lambda items: list(itertools.islice(itertools.combinations(items, 2), 5)),
    "bisect": lambda items: bisect.bisect(items, items[0]),
    "nsmallest": lambda items: heapq.nsmallest(3, items),
    "median": statistics.median_low,
    "shuffle": lambda items: random.Random(0).shuffle(items),
    "choice": lambda items: random.Random(0).choice(items),
    "sample": lambda items: random.Random(0).sample(items, 5),
    "array.array": lambda items: array.array("d", items),
    "np.array": lambda items: np.array(items).tolist(),
    "array of objects": lambda items: np.array(items, object).tolist(),
    "permutation": lambda items: np.random.default_rng(0).permutation(items).tolist(),
    "bytes": bytes,
}


@pytest.mark.parametrize("name", ITEMS)
@pytest.mark.parametrize("use", USES)
def test_it_is_used_as_any_list(use: str, name: str):
    plain, packed = make(name)

    assert isinstance(packed, list)
    assert result_of(USES[use], packed) == result_of(USES[use], plain)
    assert list(packed) == plain  # whatever was done to them
    assert len(packed) == len(plain)
    assert result_of(USES[use], packed) == result_of(USES[use], plain)


def result_of(use: Callable[[Any], Any], items: Any) -> Any:
    try:
        return use(items)
    except Exception as error:
        return type(error)


operations = st.one_of(
    st.tuples(st.just("append"), st.integers()),
    st.tuples(st.just("insert"), st.integers(-2000, 2000), st.integers()),
    st.tuples(st.just("pop"), st.integers(-COUNT - 5, COUNT + 5)),
    st.tuples(st.just("__getitem__"), st.integers(-COUNT - 5, COUNT + 5)),
    st.tuples(st.just("__getitem__"), st.slices(COUNT)),
    st.tuples(st.just("__delitem__"), st.slices(COUNT)),
    st.tuples(st.just("__setitem__"), st.integers(-COUNT, COUNT), st.integers()),
    st.tuples(st.just("__setitem__"), st.slices(COUNT), st.lists(st.integers(), max_size=4)),
    st.tuples(st.just("__contains__"), st.integers(-5, COUNT + 5)),
    st.tuples(st.just("__imul__"), st.integers(0, 2)),
    st.tuples(st.just("__iadd__"), st.lists(st.integers(), max_size=4)),
    st.tuples(st.sampled_from(["reverse", "sort", "copy", "__len__"])),
)


@given(st.lists(operations, max_size=8))
def test_any_sequence_of_operations_has_the_results_of_a_plain_list(calls: list[Any]):
    plain, packed = make("numbers")

    for method, *arguments in calls:
        call = operator.methodcaller(method, *arguments)
        assert result_of(call, packed) == result_of(call, plain)
    assert [*packed] == plain


@pytest.mark.parametrize("name", ITEMS)
def test_all_items_are_read_in_order(name: str):
    plain, packed = make(name, 2 * STRINGS_PER_CHUNK + 3)

    assert [*packed] == plain
    assert [packed[index] for index in range(len(plain))] == plain
    assert [*map(type, packed)] == [*map(type, plain)]


def test_short_lists_are_loaded_as_plain_lists():
    short, _ = make("strings")

    assert type(load_list(pack_records(short))) is list  # pyright: ignore[reportArgumentType]
    long: Any = load_list(pack_records(["a"] * MIN_MAPPED_RECORDS))  # pyright: ignore[reportArgumentType]
    assert type(long) is PackedList
    assert long == ["a"] * MIN_MAPPED_RECORDS


def from_array(items: Any) -> None:
    array.array("q").fromlist(items)


def to_arrow(items: Any) -> None:
    pytest.importorskip("pyarrow").array(items)


@pytest.mark.parametrize(
    "read", [from_array, to_arrow, heapq.heapify, heapq.heappop, lambda items: list.sort(items)]
)
def test_code_that_reads_the_storage_of_a_list_fails(read: Callable[[Any], object]):
    """It never gets other items, or fewer of them."""
    _, packed = make("numbers")

    with pytest.raises((TypeError, ValueError), match=r"[Pp]ass `list\(items\)`"):
        read(packed)


def test_changes_of_several_threads_are_all_kept():
    count = 20
    plain, packed = make("tuples")
    barrier = threading.Barrier(count)

    def append(number: int) -> None:
        barrier.wait()
        packed.append(number)

    with ThreadPoolExecutor(count) as threads:
        list(threads.map(append, range(count)))

    assert packed[:COUNT] == plain
    assert sorted(packed[COUNT:]) == list(range(count))


def test_a_list_cannot_be_hashed():
    with pytest.raises(TypeError, match="unhashable"):
        hash(make("numbers")[1])
