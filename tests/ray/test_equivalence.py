"""The same elements, states, errors and ledgers from actors on two nodes as from this process."""

import itertools
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

import gristmill as gm
from tests.equivalence.executors import (
    BLOCK_SIZES,
    INLINE,
    Run,
    by_value,
    cheap,
    exact,
    processes,
    trace,
)
from tests.equivalence.test_executors import long_pipelines, rest_of, run
from tests.equivalence.test_skips import PLENTY, BadRecordError
from tests.properties.pipelines import Pipeline
from tests.ray.clusters import ray_options

by_value(__name__)
for _module in ("tests.equivalence.test_executors", "tests.equivalence.test_skips"):
    by_value(_module)

pytestmark = pytest.mark.usefixtures("cluster")

_numbers = itertools.count()

SLOW = settings(
    deadline=None, print_blob=True, max_examples=3, suppress_health_check=[HealthCheck.too_slow]
)

on_ray = st.builds(
    Run,
    st.just("ray"),
    st.builds(gm.ReadOptions, st.integers(0, 4), st.sampled_from([1, 500])),
    worker_count=st.integers(1, 3),
    worker_buffer_size=st.integers(1, 3),
    block_size=BLOCK_SIZES,
    uses_arena=st.booleans(),
    is_wide=st.booleans(),
    ray=st.just(ray_options()),
)


@given(
    pipeline=long_pipelines(),
    way=on_ray,
    cuts=st.lists(st.integers(0, 60), min_size=2, max_size=4),
)
@SLOW
def test_actors_change_nothing_and_can_be_set_back_and_forth(
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


@given(
    pipeline=long_pipelines(),
    ways=st.permutations([0, 1, 2]).flatmap(
        lambda order: st.tuples(on_ray, cheap, processes).map(
            lambda ways: tuple(ways[place] for place in order)
        )
    ),
    steps=st.lists(st.integers(0, 12), min_size=3, max_size=3),
)
@SLOW
def test_a_stream_handed_on_between_ray_and_other_executors_is_the_same(
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


@given(pipeline=long_pipelines(), cut=st.integers(0, 60))
@SLOW
def test_readers_of_a_shared_pool_get_the_same_from_wherever_they_start(
    pipeline: Pipeline, cut: int
):
    expected = run(pipeline, INLINE)
    place = cut % len(expected.states)
    options = ray_options(shared_pool=f"equal {next(_numbers)}", idle_timeout_s=0.5)
    way = Run("ray", worker_count=1, ray=options)

    with (
        way.forced(),
        closing(iter(way.loader(pipeline))) as first,
        closing(iter(way.loader(pipeline))) as second,
    ):
        second.set_state(expected.states[place])
        assert trace(second) == rest_of(expected, place)
        assert trace(first) == expected


class Fussy(gm.Map):
    """Cannot do every seventh record."""

    def map(self, element: Any) -> Any:
        if element % 7 == 3:
            raise BadRecordError(f"cannot do {element}")
        return element


def test_bad_records_are_skipped_and_listed_as_without_ray():
    def read(**arguments: Any) -> tuple[Any, Any, Any]:
        loader = gm.DataLoader(
            data_source=range(200),
            sampler=gm.IndexSampler(200, shuffle=True, seed=3, num_epochs=1),
            operations=[Fussy(), gm.Batch(8)],
            on_error=gm.SkipErrors(PLENTY),
            **arguments,
        )
        with closing(loader), closing(iter(loader)) as iterator:
            elements = [exact(element) for element in iterator]
            return elements, iterator.get_state(), iterator.skipped

    assert read(worker_count=2, worker_options=ray_options()) == read()


def test_a_dataset_on_ray_yields_the_same_elements_and_states():
    def random(x: Any, rng: np.random.Generator) -> Any:
        return x + rng.integers(1000)

    ds = gm.MapDataset.range(300).shuffle(seed=1).seed(2).random_map(random).filter(lambda x: x % 3)
    stream = ds.to_iter_dataset().batch(4)
    with closing(iter(stream.mp_prefetch(ray_options(num_workers=2)))) as iterator:
        found = [(exact(element), iterator.get_state()) for element in iterator]
    with closing(iter(stream)) as iterator:
        assert found == [(exact(element), iterator.get_state()) for element in iterator]


def test_a_user_owns_the_memory_of_batches():
    source = [np.full(30_000, number, np.float32) for number in range(40)]
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.SequentialSampler(40, gm.NoSharding()),
        operations=[gm.Batch(4)],
        worker_count=2,
        worker_options=ray_options(),
    )
    with closing(loader):
        batches = list(loader)

    for number, batch in enumerate(batches):
        assert batch.flags.writeable
        batch += 1
        assert (batch[:, 0] == np.arange(4 * number, 4 * number + 4) + 1).all()


class InPlace(gm.Map):
    """Writes to the record itself."""

    def map(self, element: Any) -> Any:
        element += 1
        return element


def test_a_transform_may_write_to_the_arrays_of_its_source():
    source = [np.full(30_000, number, np.float32) for number in range(12)]
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.SequentialSampler(12, gm.NoSharding()),
        operations=[InPlace()],
        worker_count=2,
        worker_options=ray_options(),
    )
    with closing(loader):
        assert [int(element[0]) for element in loader] == list(range(1, 13))
