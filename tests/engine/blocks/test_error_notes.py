"""A step that fails: the elements before it are complete, and nothing ends the stream silently."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from gristmill import (
    ArraySource,
    Batch,
    DataLoader,
    Filter,
    FlatMap,
    Map,
    RandomMap,
    RecordMetadata,
)

MakeLoader = Callable[..., DataLoader]
BOTH = pytest.mark.parametrize("ahead", [False, True], ids=["inline", "ahead"])


class KeepAll(Filter):
    def filter(self, element: Any) -> bool:
        return True


class AndAHalf(FlatMap):
    max_fan_out = 2

    def flat_map(self, element: float) -> list[float]:
        return [element, element + 0.5]


def until_error(iterator: Any) -> tuple[list[Any], str]:
    elements: list[Any] = []
    try:
        for element in iterator:
            elements.append(np.asarray(element).tolist())  # noqa: PERF401 - kept on an error
    except Exception as error:
        return elements, str(error)
    return elements, "no error"


class AddInPlace(Map):
    """Writes into the batch, which is the user's own memory, and fails on one of them."""

    def map(self, element: Any) -> Any:
        element += 100
        if 112 in element:
            raise ValueError("twelve")
        return element


@BOTH
@pytest.mark.parametrize("below", [[], [KeepAll()]], ids=["dense", "sparse"])
def test_a_step_that_writes_into_its_batch_does_so_once(
    make_loader: MakeLoader, below: list[Any], ahead: bool
):
    iterator = iter(make_loader(range(40), *below, Batch(2), AddInPlace(), ahead=ahead))

    for _ in range(2):
        elements, error = until_error(iterator)
        assert error == "twelve"
        assert elements in ([[n + 100, n + 101] for n in range(0, 12, 2)], [])


@dataclass(frozen=True)
class WithGenerators:
    """A user's sampler that provides a generator for each record."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> RecordMetadata:
        return RecordMetadata(index, index, np.random.Generator(np.random.Philox(key=index)))


class DrawUnless(RandomMap):
    def __init__(self, bad: int) -> None:
        self.bad = bad

    def random_map(self, element: Any, rng: np.random.Generator) -> int:
        drawn = int(rng.integers(10**6))
        if self.bad in element:
            raise ValueError("bad")
        return drawn


@BOTH
def test_numbers_before_a_failure_are_drawn_once(make_loader: MakeLoader, ahead: bool):
    def run(bad: int) -> tuple[list[Any], str]:
        steps = (KeepAll(), Batch(2), DrawUnless(bad))
        return until_error(
            iter(make_loader(range(40), *steps, ahead=ahead, sampler=WithGenerators()))
        )

    whole, _ = run(bad=-1)
    for bad in range(0, 40, 2):
        assert run(bad) == (whole[: bad // 2], "bad")


@BOTH
def test_outputs_of_a_flat_map_before_one_that_fails_are_delivered(
    make_loader: MakeLoader, ahead: bool
):
    def refuse(element: float) -> float:
        if element == 3.5:
            raise ValueError("three and a half")
        return element

    iterator = iter(make_loader(range(10), AndAHalf(), refuse, ahead=ahead))

    elements, error = until_error(iterator)

    assert error == "three and a half"
    assert elements == [0, 0.5, 1, 1.5, 2, 2.5, 3]


def stops(_: Any) -> Any:
    return next(iter([]))


class StopsAtOnce(Map):
    def map(self, element: Any) -> Any:
        return element

    def map_batch(self, columns: Any) -> Any:
        return stops(columns)


class SourceThatStops:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return index

    def __getitems__(self, indices: Sequence[int]) -> list[int]:
        return stops(indices)


class FlatMapThatStops(FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        return stops(element)


class FilterThatStops(Filter):
    def filter(self, element: Any) -> Any:
        return stops(element)


@BOTH
@pytest.mark.parametrize(
    ("source", "operations"),
    [
        ([1, 2, 3, 4], [stops]),
        ([1, 2, 3, 4], [Batch(2, batch_fn=stops)]),
        ([1, 2, 3, 4], [KeepAll(), Batch(2, batch_fn=stops)]),
        ([1, 2, 3, 4], [FlatMapThatStops()]),
        ([1, 2, 3, 4], [FilterThatStops()]),
        (ArraySource(np.arange(4)), [StopsAtOnce()]),
        (SourceThatStops(), []),
    ],
    ids=["map", "batch_fn", "sparse batch_fn", "flat_map", "filter", "map_batch", "getitems"],
)
def test_stop_iteration_in_a_step_does_not_end_the_stream_silently(
    make_loader: MakeLoader, source: Any, operations: list[Any], ahead: bool
):
    iterator = iter(make_loader(source, *operations, ahead=ahead))

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(iterator)


@dataclass(frozen=True)
class WithoutGenerators:
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> RecordMetadata:
        return RecordMetadata(index, index)


class Draw(RandomMap):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return int(rng.integers(10))


def test_a_random_step_without_generators_is_an_error(make_loader: MakeLoader):
    with pytest.raises(ValueError, match="rng"):
        list(make_loader(range(4), Draw(), sampler=WithoutGenerators()))


@dataclass(frozen=True)
class KeysOf:
    keys: tuple[Any, ...]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> RecordMetadata:
        return RecordMetadata(index, self.keys[index])


@pytest.mark.parametrize("key", [1.5, None, "1"])
def test_a_record_key_that_is_not_an_integer_is_refused(make_loader: MakeLoader, key: Any):
    with pytest.raises((TypeError, ValueError), match="record_key"):
        list(make_loader(range(4), sampler=KeysOf((0, key))))


@dataclass
class ShowsItsReads:
    """A source whose `repr` changes while it is read, as that of many dataclasses does."""

    reads: int = 0

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> int:
        self.reads += 1
        return index


@BOTH
def test_a_state_does_not_depend_on_what_a_source_was_used_for(
    make_loader: MakeLoader, ahead: bool
):
    loader = make_loader(ShowsItsReads(), ahead=ahead)
    iterator = iter(loader)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    state = iterator.get_state()
    next(iterator)

    resumed = iter(loader)
    resumed.set_state(state)

    assert list(resumed) == list(range(3, 100))
    fresh = iter(make_loader(ShowsItsReads(), ahead=False))
    fresh.set_state(state)
    assert next(fresh) == 3


class KeepBits(RandomMap):
    """Returns the source of its randomness, to be drawn from later."""

    def random_map(self, element: int, rng: np.random.Generator) -> Any:
        return rng.bit_generator


def test_a_bit_generator_that_the_user_keeps_is_not_used_for_another_record(
    make_loader: MakeLoader,
):
    bit_generators = list(make_loader(range(10), KeepBits()))

    drawn = [np.random.Generator(bits).integers(10**6) for bits in bit_generators]
    expected = [np.random.Generator(np.random.Philox(key=key)).integers(10**6) for key in range(10)]
    assert drawn == expected
