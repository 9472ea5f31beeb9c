"""One plan, whoever runs it: the same elements, states and errors, and the same after each."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gristmill import (
    Batch,
    Filter,
    FlatMap,
    IndexSampler,
    Map,
    MapWithIndex,
    RandomMap,
    ReadOptions,
)
from tests.equivalence.executors import (
    INLINE,
    Run,
    Trace,
    ahead,
    by_value,
    cheap,
    hopping,
    hopping_to_processes,
    processes,
    threads,
    trace,
)
from tests.properties.pipelines import KeepSome, Pipeline, pipelines
from tests.properties.trees import change, items_of, total

by_value(__name__)

CHEAP = settings(deadline=None, print_blob=True, max_examples=40)
DEAR = settings(deadline=None, print_blob=True, max_examples=8)


# Steps that fail for some elements, one of each kind.


class PickyError(Exception):
    """Takes two arguments, which pickling such an exception has trouble with."""

    def __init__(self, step: str, element: Any) -> None:
        super().__init__(f"{step} does not like {total(element)}")


@dataclass(frozen=True)
class Picky:
    """Has an aversion to some elements."""

    modulus: int

    def look_at(self, element: Any) -> None:
        if total(element) % self.modulus == 1:
            raise PickyError(type(self).__name__, element)


class PickyMap(Picky, Map):
    def map(self, element: Any) -> Any:
        self.look_at(element)
        return element


class PickyColumns(PickyMap):
    def map_batch(self, columns: Any) -> Any:
        for element in items_of(columns):
            self.look_at(element)
        return change(lambda leaf: leaf, columns)


class PickyMapWithIndex(Picky, MapWithIndex):
    def map_with_index(self, index: int, element: Any) -> Any:
        self.look_at(index)
        return element


class PickyJitter(Picky, RandomMap):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        shift = int(rng.integers(100))
        self.look_at(shift)
        return change(lambda leaf: leaf + shift, element)


class PickyFilter(Picky, Filter):
    def filter(self, element: Any) -> bool:
        self.look_at(element)
        return total(element) % 3 != 0


class PickySplit(Picky, FlatMap):
    max_fan_out = 3

    def flat_map(self, element: Any) -> Any:
        self.look_at(element)
        return [change(lambda leaf, by=by: leaf + by, element) for by in range(3)]


class TooManyPieces(Picky, FlatMap):
    max_fan_out = 1

    def flat_map(self, element: Any) -> list[Any]:
        return [element] * (1 + (total(element) % self.modulus == 1))


@dataclass(frozen=True)
class PickyBatch(Picky):
    def __call__(self, rows: Sequence[Any]) -> Any:
        self.look_at(rows[-1])
        return total(rows[0]), np.array(total(rows[-1]))


@dataclass(frozen=True)
class PickySource:
    """A source that cannot read some of its records."""

    source: Any
    bad: int

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        if index == self.bad:
            raise PickyError("reading", index)
        return self.source[index]


class PickySourceAtOnce(PickySource):
    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        return [self[index] for index in indices]


PICKY = [PickyMap, PickyColumns, PickyMapWithIndex, PickyFilter]
PICKY_WITH_OUR_GENERATORS = [PickyJitter, PickySplit, TooManyPieces]


@st.composite
def failing_pipelines(draw: st.DrawFn) -> Pipeline:
    """Return a pipeline with one more step, which fails sooner or later."""
    pipeline = draw(pipelines(fails=False))
    modulus = st.integers(2, 30)
    kinds: list[Any] = [*PICKY, lambda modulus: Batch(modulus // 2, batch_fn=PickyBatch(modulus))]
    if isinstance(pipeline.sampler, IndexSampler):
        kinds += PICKY_WITH_OUR_GENERATORS
    step = draw(st.sampled_from(kinds))(draw(modulus))
    place = draw(st.integers(0, len(pipeline.operations)))
    before, after = pipeline.operations[:place], pipeline.operations[place:]
    return replace(pipeline, operations=[*before, step, *after])


ANY = st.one_of(pipelines(), failing_pipelines())


@st.composite
def long_pipelines(draw: st.DrawFn) -> Pipeline:
    """Return a pipeline over so many records that it is worth to start processes."""
    pipeline = draw(ANY)
    shuffle, seed = draw(st.booleans()), draw(st.integers(0, 99))
    sampler = IndexSampler(30, shuffle=shuffle, num_epochs=2, seed=seed)
    return replace(pipeline, num_records=30, sampler=sampler)


def run(pipeline: Pipeline, way: Run, source: Any = None) -> Trace:
    with way.forced(), closing(iter(way.loader(pipeline, source))) as iterator:
        return trace(iterator)


def assert_same(pipeline: Pipeline, way: Run, source: Any = None) -> None:
    expected = run(pipeline, INLINE, source)
    event(f"ends with {expected.ending.kind or 'the end'}")

    assert run(pipeline, way, source) == expected


@given(pipeline=ANY, way=ahead)
@CHEAP
def test_a_thread_that_runs_ahead_changes_nothing(pipeline: Pipeline, way: Run):
    assert_same(pipeline, way)


@given(pipeline=ANY, way=threads)
@CHEAP
def test_reading_threads_change_nothing(pipeline: Pipeline, way: Run):
    assert_same(pipeline, way)


@given(pipeline=ANY, way=hopping)
@CHEAP
def test_going_from_one_way_of_running_to_another_all_the_time_changes_nothing(
    pipeline: Pipeline, way: Run
):
    assert_same(pipeline, way)


@given(
    pipeline=pipelines(fails=False),
    kind=st.sampled_from([PickySource, PickySourceAtOnce]),
    bad=st.integers(0, 29),
    way=cheap,
)
@CHEAP
def test_a_source_that_fails_does_so_at_the_same_place(
    pipeline: Pipeline, kind: type[PickySource], bad: int, way: Run
):
    assert_same(pipeline, way, kind(Listed(pipeline.source()), bad))


@dataclass(frozen=True)
class Listed:
    """Any source, without its faster ways."""

    source: Any

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        return self.source[index]

    def __repr__(self) -> str:
        return "Listed"


@given(
    pipeline=long_pipelines(),
    way=processes,
    cuts=st.lists(st.integers(0, 60), min_size=2, max_size=4),
)
@DEAR
def test_processes_change_nothing_and_can_be_set_back_and_forth(
    pipeline: Pipeline, way: Run, cuts: list[int]
):
    expected = run(pipeline, INLINE)
    event(f"ends with {expected.ending.kind or 'the end'}")

    with way.forced(), closing(iter(way.loader(pipeline))) as iterator:
        assert trace(iterator) == expected
        for cut in cuts:
            place = cut % len(expected.states)
            iterator.set_state(expected.states[place])
            assert trace(iterator) == rest_of(expected, place)


def rest_of(whole: Trace, place: int) -> Trace:
    return replace(whole, elements=whole.elements[place:], states=whole.states[place:])


@given(pipeline=long_pipelines(), way=hopping_to_processes)
@DEAR
def test_going_to_processes_and_back_all_the_time_changes_nothing(pipeline: Pipeline, way: Run):
    assert_same(pipeline, way)


@pytest.mark.parametrize("is_to_stay", [False, True])
@pytest.mark.parametrize("worker_count", [0, None])
def test_these_runs_do_go_everywhere(worker_count: int | None, is_to_stay: bool):
    total = 150  # a strategy first returns all that it has begun
    sampler = IndexSampler(total, num_epochs=1)
    pipeline = Pipeline("range", total, sampler, None, [KeepSome(2), Batch(2)])
    way = Run(
        "hopping",
        ReadOptions(num_threads=4),
        worker_count=worker_count,
        block_size=1,
        is_hopping=True,
        stays_where_it_went=is_to_stay,
    )

    with way.forced() as visited, closing(iter(way.loader(pipeline))) as iterator:
        assert trace(iterator) == run(pipeline, INLINE)

    kinds = {"inline", "2 threads"} | ({"2 processes"} if worker_count is None else set())
    assert kinds <= set(visited)
    assert len(visited) >= 6


@given(pipeline=ANY, first=cheap, second=cheap, cut=st.integers(0, 60))
@CHEAP
def test_a_state_of_one_way_restores_in_any_other(
    pipeline: Pipeline, first: Run, second: Run, cut: int
):
    expected = run(pipeline, INLINE)
    place = cut % len(expected.states)
    with first.forced(), closing(iter(first.loader(pipeline))) as iterator:
        for _ in range(place):
            next(iterator)
        state = iterator.get_state()

    assert state == expected.states[place]
    with second.forced(), closing(iter(second.loader(pipeline))) as iterator:
        iterator.set_state(state)
        assert trace(iterator) == rest_of(expected, place)


@given(
    pipeline=long_pipelines(),
    ways=st.tuples(processes, cheap, st.one_of(processes, hopping_to_processes)),
    steps=st.lists(st.integers(0, 12), min_size=3, max_size=3),
)
@DEAR
def test_a_stream_handed_on_from_executor_to_executor_is_the_same(
    pipeline: Pipeline, ways: tuple[Run, ...], steps: list[int]
):
    expected = run(pipeline, INLINE)
    place, state = 0, expected.states[0]

    for way, step in zip(ways, steps, strict=True):
        with way.forced(), closing(iter(way.loader(pipeline))) as iterator:
            iterator.set_state(state)
            for _ in range(min(step, len(expected.elements) - place)):
                next(iterator)
                place += 1
            state = iterator.get_state()
            assert state == expected.states[place]

    with INLINE.forced(), closing(iter(INLINE.loader(pipeline))) as iterator:
        iterator.set_state(state)
        assert trace(iterator) == rest_of(expected, place)
