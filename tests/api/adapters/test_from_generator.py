import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import IterDataset, MapDataset, MultiprocessingOptions, from_generator
from gristmill.errors import PlanError, PlanTypeError, StateError, WorkerError


def squares() -> Iterator[int]:
    for number in range(40):
        yield number**2


class Counter:
    """An iterator that knows its position, and counts what it yields."""

    num_yielded = 0

    def __init__(self) -> None:
        self._next = 0

    def __iter__(self) -> "Counter":
        return self

    def __next__(self) -> int:
        if self._next == 2000:
            raise StopIteration
        self._next += 1
        type(self).num_yielded += 1
        return self._next - 1

    def get_state(self) -> dict[str, int]:
        return {"next": self._next}

    def set_state(self, state: dict[str, int]) -> None:
        self._next = state["next"]


def resumed_after(ds: IterDataset[Any], count: int) -> list[Any]:
    iterator = iter(ds)
    for _ in range(count):
        next(iterator)
    again = iter(ds)
    again.set_state(iterator.get_state())
    return [np.asarray(element).tolist() for element in again]


def test_each_iterator_calls_the_function():
    ds = from_generator(squares)
    assert list(ds) == list(ds) == [number**2 for number in range(40)]


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 13))
def test_a_stream_resumes_at_any_element(count: int):
    ds = from_generator(squares).map(lambda x: x + 1).batch(3)
    expected = [element.tolist() for element in ds]
    assert resumed_after(ds, count) == expected[count:]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1999, 2000])
def test_an_iterator_with_its_own_state_is_not_replayed(count: int):
    ds = from_generator(Counter)
    iterator = iter(ds)
    for _ in range(count):
        next(iterator)
    state = iterator.get_state()
    again = iter(ds)
    Counter.num_yielded = 0
    again.set_state(state)
    assert list(again) == list(range(count, 2000))
    assert Counter.num_yielded <= 2000 - count + 256  # at most one chunk is read again


def test_the_state_is_a_few_numbers():
    iterator = iter(from_generator(squares))
    next(iterator)
    assert len(str(iterator.get_state())) < 400


def test_any_iterable_is_read():
    assert list(from_generator(lambda: {"a": 1, "b": 2})) == ["a", "b"]


def test_building_calls_nothing():
    def fail() -> Iterator[int]:
        raise AssertionError

    assert repr(from_generator(fail).map(str))


def test_an_error_of_the_generator_comes_after_the_elements_before_it():
    def two() -> Iterator[int]:
        yield 1
        yield 2
        raise KeyError("lost")

    iterator = iter(from_generator(two))
    assert [next(iterator), next(iterator)] == [1, 2]
    with pytest.raises(KeyError, match="lost") as caught:
        next(iterator)
    (note,) = caught.value.__notes__
    assert note.startswith("In from_generator(")
    assert "test_from_generator.py:" in note


def test_a_generator_that_calls_exit_does_not_end_the_program():
    def exits() -> Iterator[int]:
        yield 1
        sys.exit(3)

    iterator = iter(from_generator(exits))
    assert next(iterator) == 1
    with pytest.raises(
        WorkerError, match=r"`sys.exit\(3\)` was called .* In from_generator\(exits\)"
    ):
        next(iterator)


def test_a_function_that_calls_exit_does_not_end_the_program():
    with pytest.raises(WorkerError, match=r"`sys.exit\(\)` was called"):
        next(iter(from_generator(sys.exit)))


def test_a_generator_that_yields_less_cannot_be_resumed():
    numbers = list(range(10))
    ds = from_generator(lambda: iter(numbers))
    iterator = iter(ds)
    for _ in range(8):
        next(iterator)
    state = iterator.get_state()
    del numbers[3:]
    again = iter(ds)
    again.set_state(state)
    with pytest.raises(StateError, match=r"which has fewer items"):
        next(again)


def test_a_generator_that_was_called_is_an_error():
    called: Any = squares()
    message = r"^`factory` must be a function .*, got a generator\. .* without calling it\.$"
    with pytest.raises(PlanTypeError, match=message):
        from_generator(called)


def test_a_function_that_returns_no_iterable_is_an_error():
    wrong: Any = lambda: 3  # noqa: E731
    with pytest.raises(PlanTypeError, match=r"^`factory` must return an iterable, got int from "):
        next(iter(from_generator(wrong)))


@pytest.mark.parametrize(
    "once",
    [squares(), iter(range(40)), map(str, range(40)), Counter()],
    ids=lambda it: type(it).__name__,
)
def test_a_function_that_returns_one_iterator_again_is_an_error(once: Iterator[Any]):
    ds = from_generator(lambda: once)
    assert len(list(ds)) >= 40
    with pytest.raises(PlanError, match="must return a new iterable each time, but <lambda> "):
        list(ds)


def test_a_generator_that_was_read_in_part_is_an_error():
    once = (number for number in range(1000))
    ds = from_generator(lambda: once)
    assert next(iter(ds)) == 0
    with pytest.raises(PlanError, match="returned one generator again, whose elements were read"):
        next(iter(ds))


def test_an_iterator_that_begins_again_may_be_returned_again():
    class Restarts:
        def __iter__(self) -> "Restarts":
            self._left = 3
            return self

        def __next__(self) -> int:
            if not self._left:
                raise StopIteration
            self._left -= 1
            return self._left

    again = Restarts()
    ds = from_generator(lambda: again)
    assert list(ds) == list(ds) == [2, 1, 0]


def test_an_epoch_may_be_empty_and_a_header_may_be_read():
    numbers = [1, 2]
    ds = from_generator(lambda: iter(numbers))
    assert list(ds) == [1, 2]
    numbers.clear()
    assert not list(ds)

    def without_header() -> Iterator[int]:
        generator = squares()
        next(generator)
        return generator

    ds = from_generator(without_header)
    assert list(ds) == list(ds) == [number**2 for number in range(1, 40)]


def test_workers_are_refused():
    options = MultiprocessingOptions(num_workers=2)
    ds = from_generator(squares).map(str)
    message = r"^from_generator\(squares\) is read in order, in this process, so worker processes"
    with pytest.raises(PlanError, match=message):
        ds.mp_prefetch(options)
    assert list(ds.mp_prefetch(MultiprocessingOptions(num_workers=0)))


def test_workers_may_compute_the_other_parts_of_a_mixture():
    other = MapDataset.range(40).to_iter_dataset()
    mixed = IterDataset.mix([from_generator(squares), other])
    expected = list(mixed)
    with iter(mixed.mp_prefetch(MultiprocessingOptions(num_workers=1))) as iterator:
        assert list(iterator) == expected


def test_a_generator_as_source_is_an_error_that_names_the_function():
    wrong: Any = squares()
    with pytest.raises(PlanTypeError, match=r"use `from_generator` for an iterable\.$"):
        gristmill.MapDataset.source(wrong)
