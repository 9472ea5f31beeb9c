"""After an error the iterator stays before the failed element: none is skipped or repeated."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import gristmill as gm

TOTAL, FAILS_AT = 40, 29


class BrokenError(Exception):
    """What fails in these tests, until it is fixed."""


@dataclass
class Cause:
    """A fault in the user's code that can be fixed."""

    is_mended: bool = False
    fails_at: int = FAILS_AT

    def check(self, value: Any) -> None:
        if not self.is_mended and self.fails_at in np.atleast_1d(value):
            raise BrokenError(f"at {self.fails_at}")


class Source:
    def __init__(self, cause: Cause) -> None:
        self.cause = cause

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> Any:
        self.cause.check(index)
        return index


class SourceAtOnce(Source):
    def __getitems__(self, indices: Any) -> Any:
        return [self[index] for index in indices]


class RaggedSource(Source):
    def __getitem__(self, index: int) -> Any:
        is_ragged = index == FAILS_AT and not self.cause.is_mended
        return np.full(2 if is_ragged else 1, index)


class GappedSource(Source):
    def __getitem__(self, index: int) -> Any:
        return None if index == FAILS_AT and not self.cause.is_mended else index


class FailingSampler:
    def __init__(self, cause: Cause, fails: bool = True) -> None:
        self.cause = cause
        self.fails = fails

    def __len__(self) -> int:
        return TOTAL

    def __getitem__(self, index: int) -> gm.RecordMetadata:
        if self.fails:
            self.cause.check(index)
        return gm.RecordMetadata(index, index, np.random.default_rng(index))


class Step:
    def __init__(self, cause: Cause) -> None:
        self.cause = cause


class Map(Step, gm.Map):
    def map(self, element: Any) -> Any:
        self.cause.check(element)
        return element


class ColumnsMap(Map):
    def map_batch(self, columns: Any) -> Any:
        return self.map(columns)


class OnlyColumnsFail(gm.Map):
    """Its `map` works where its `map_batch` does not."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause

    def map(self, element: Any) -> Any:
        return element

    def map_batch(self, columns: Any) -> Any:
        self.cause.check(columns)
        return columns


class InPlace(Step, gm.Map):
    def map(self, element: Any) -> Any:
        self.cause.check(element)
        element += 100
        return element


class Indexed(Step, gm.MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        self.cause.check(element)
        return index, element


class Draw(Step, gm.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        drawn = int(rng.integers(2**30))
        self.cause.check(element)
        return drawn


class DrawMore(gm.RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return element, int(rng.integers(2**30))


class Odd(gm.Filter):
    def filter(self, element: Any) -> bool:
        return bool(np.all(element % 2 == 1))


class FailingFilter(Step, gm.Filter):
    def filter(self, element: Any) -> bool:
        self.cause.check(element)
        return element % 2 == 1


class Split(Step, gm.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        self.cause.check(element)
        return [element * 10 + piece for piece in range(3)]


class Thrice(gm.FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        return [(element, piece) for piece in range(3)]


class FailAtPiece(Step, gm.Map):
    def map(self, element: Any) -> Any:
        if element[1] == 1:
            self.cause.check(element[0])
        return element


def sums(cause: Cause) -> Callable[[Any], int]:
    def batch_fn(rows: Any) -> int:
        cause.check(list(rows))
        return sum(rows)

    return batch_fn


def rows(cause: Cause) -> Any:
    return list(range(TOTAL))


def columns(cause: Cause) -> Any:
    return np.arange(TOTAL)


Case = tuple[Callable[[Cause], Any], Callable[[Cause], list[Any]], int]
"""The source, the operations, and how many elements come before the one that fails."""

CASES: dict[str, Case] = {
    "source": (Source, lambda c: [], 29),
    "source at once": (SourceAtOnce, lambda c: [], 29),
    "source below a batch": (Source, lambda c: [gm.Batch(3)], 9),
    "source below a filter and a batch": (Source, lambda c: [Odd(), gm.Batch(3)], 4),
    "map": (rows, lambda c: [Map(c)], 29),
    "map below a batch": (rows, lambda c: [Map(c), gm.Batch(3)], 9),
    "map above a batch": (rows, lambda c: [gm.Batch(3), Map(c)], 9),
    "map_batch": (columns, lambda c: [ColumnsMap(c)], 29),
    "map_batch below a batch": (columns, lambda c: [ColumnsMap(c), gm.Batch(3)], 9),
    "map_batch alone": (columns, lambda c: [OnlyColumnsFail(c), gm.Batch(3)], 9),
    "map with index": (rows, lambda c: [Indexed(c)], 29),
    "random map": (rows, lambda c: [Draw(c)], 29),
    "two random maps": (rows, lambda c: [Draw(c), DrawMore()], 29),
    "random map above a batch": (rows, lambda c: [gm.Batch(3), Draw(c), DrawMore()], 9),
    "random map above a sparse batch": (rows, lambda c: [Odd(), gm.Batch(3), Draw(c)], 4),
    "filter": (rows, lambda c: [FailingFilter(c)], 14),
    "filter below a batch": (rows, lambda c: [FailingFilter(c), gm.Batch(3)], 4),
    "flat map": (rows, lambda c: [Split(c)], 87),
    "flat map below a batch": (rows, lambda c: [Split(c), gm.Batch(4)], 21),
    "piece of a flat map": (rows, lambda c: [Thrice(), FailAtPiece(c)], 88),
    "piece below a batch": (rows, lambda c: [Thrice(), FailAtPiece(c), gm.Batch(8)], 11),
    "stacking": (RaggedSource, lambda c: [gm.Batch(3)], 9),
    "stacking above a filter": (RaggedSource, lambda c: [Odd(), gm.Batch(3)], 4),
    "stacking of none": (GappedSource, lambda c: [gm.Batch(3)], 9),
    "batch_fn": (rows, lambda c: [gm.Batch(3, batch_fn=sums(c))], 9),
    "batch_fn above a filter": (rows, lambda c: [Odd(), gm.Batch(3, batch_fn=sums(c))], 4),
    "map above a sparse batch": (rows, lambda c: [Odd(), gm.Batch(3), Map(c)], 4),
    "in-place map above a batch": (rows, lambda c: [gm.Batch(3), InPlace(c)], 9),
    "in-place map above a sparse batch": (rows, lambda c: [Odd(), gm.Batch(3), InPlace(c)], 4),
    "batch of batches above a filter": (
        rows,
        lambda c: [Odd(), gm.Batch(2), Map(c), gm.Batch(2)],
        3,
    ),
    "last batch": (rows, lambda c: [gm.Batch(30), Map(c)], 0),
}

execution = pytest.mark.parametrize(
    "options", [gm.ReadOptions(num_threads=0), gm.ReadOptions()], ids=["inline", "ahead"]
)


def loader_of(case: Case, cause: Cause, options: gm.ReadOptions) -> gm.DataLoader:
    make_source, make_operations, _ = case
    return gm.DataLoader(
        data_source=make_source(cause),
        sampler=gm.IndexSampler(TOTAL, seed=1, num_epochs=1),
        operations=make_operations(cause),
        read_options=options,
    )


def plain(element: Any) -> Any:
    """Return an element in a form that `==` compares."""
    if isinstance(element, np.ndarray | np.generic):
        return element.tolist()
    return tuple(map(plain, element)) if isinstance(element, tuple) else element


def take_until_the_error(iterator: Any) -> list[Any]:
    taken: list[Any] = []
    with pytest.raises((BrokenError, gm.errors.BatchError)):
        taken.extend(map(plain, iterator))  # what came before the error stays in
    return taken


@execution
@pytest.mark.parametrize("name", CASES)
def test_all_that_comes_before_the_failed_element_is_delivered(name: str, options: gm.ReadOptions):
    case = CASES[name]
    expected = list(map(plain, loader_of(case, Cause(is_mended=True), options)))
    assert take_until_the_error(iter(loader_of(case, Cause(), options))) == expected[: case[2]]


@execution
@pytest.mark.parametrize("name", CASES)
def test_the_error_comes_again_until_mended_and_then_the_same_iterator_goes_on(
    name: str, options: gm.ReadOptions
):
    case, cause = CASES[name], Cause()
    expected = list(map(plain, loader_of(case, Cause(is_mended=True), options)))
    iterator = iter(loader_of(case, cause, options))
    taken = take_until_the_error(iterator)
    for _ in range(3):
        with pytest.raises((BrokenError, gm.errors.BatchError)):
            next(iterator)
    cause.is_mended = True
    assert taken + list(map(plain, iterator)) == expected


@execution
@pytest.mark.parametrize("name", CASES)
def test_the_state_read_at_the_error_resumes_at_the_failed_element(
    name: str, options: gm.ReadOptions
):
    case, cause = CASES[name], Cause()
    expected = list(map(plain, loader_of(case, Cause(is_mended=True), options)))
    loader = loader_of(case, cause, options)
    iterator = iter(loader)
    taken = take_until_the_error(iterator)
    state = iterator.get_state()

    unmended = iter(loader)
    unmended.set_state(state)
    with pytest.raises((BrokenError, gm.errors.BatchError)):
        next(unmended)
    assert unmended.get_state() == state

    cause.is_mended = True
    resumed = iter(loader)
    resumed.set_state(state)
    assert taken + list(map(plain, resumed)) == expected


@execution
def test_a_users_sampler_that_fails_is_asked_again(options: gm.ReadOptions):
    cause = Cause()
    loader = gm.DataLoader(
        data_source=range(TOTAL), sampler=FailingSampler(cause), read_options=options
    )
    iterator = iter(loader)
    assert take_until_the_error(iterator) == list(range(FAILS_AT))
    cause.is_mended = True
    assert list(iterator) == list(range(FAILS_AT, TOTAL))


@execution
@pytest.mark.parametrize(
    "before", [[], [gm.Batch(2)], [Odd(), gm.Batch(2)]], ids=["rows", "dense", "sparse"]
)
def test_an_error_does_not_change_what_a_users_generators_yield(
    before: list[Any], options: gm.ReadOptions
):
    def elements(cause: Cause) -> list[Any]:
        sampler = FailingSampler(cause, fails=False)
        loader = gm.DataLoader(
            data_source=range(TOTAL),
            sampler=sampler,
            operations=[*before, Draw(cause)],
            read_options=options,
        )
        return list(loader) if cause.is_mended else take_until_the_error(iter(loader))

    expected = elements(Cause(is_mended=True))
    for fails_at in range(1, TOTAL, 2):  # wherever the blocks end
        taken = elements(Cause(fails_at=fails_at))
        assert taken == expected[: len(taken)]


@execution
def test_an_error_at_the_first_element_leaves_the_iterator_at_the_start(options: gm.ReadOptions):
    is_broken = True

    def fail(element: int) -> int:
        if is_broken:
            raise BrokenError
        return element

    iterator = iter(gm.load(range(3), num_epochs=1, transformations=[fail], read_options=options))
    start = iterator.get_state()
    with pytest.raises(BrokenError):
        next(iterator)
    assert iterator.get_state() == start
    is_broken = False
    assert list(iterator) == [0, 1, 2]


@execution
def test_keyboard_interrupt_in_the_users_code_loses_nothing(options: gm.ReadOptions):
    is_pressed = True

    def press(element: int) -> int:
        nonlocal is_pressed
        if element == FAILS_AT and is_pressed:
            is_pressed = False
            raise KeyboardInterrupt
        return element

    iterator = iter(
        gm.load(range(TOTAL), num_epochs=1, transformations=[press], read_options=options)
    )
    taken: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        taken.extend(iterator)  # what came before the interrupt stays in
    assert taken + list(iterator) == list(range(TOTAL))


@execution
def test_many_errors_in_a_row_are_reported_one_by_one(options: gm.ReadOptions):
    fixed: set[int] = set()

    def fail(element: int) -> int:
        if element not in fixed:
            raise BrokenError(element)
        return element

    iterator = iter(gm.load(range(8), num_epochs=1, transformations=[fail], read_options=options))
    for number in range(8):
        with pytest.raises(BrokenError, match=rf"^{number}\b"):
            next(iterator)
        fixed.add(number)
        assert next(iterator) == number
    with pytest.raises(StopIteration):
        next(iterator)
