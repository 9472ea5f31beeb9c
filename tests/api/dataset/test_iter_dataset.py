"""Every step of an `IterDataset`, users' own datasets among them: Grain's elements, and states."""

import itertools
import json
import os
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gristmill.errors import PlanError, StateError
from tests.compat.both_sides import (
    MAP_CHAINS,
    SIDES,
    STEADY,
    assert_resumes,
    assert_same,
    assert_same_stream,
    build_map,
    double,
    every_other,
    jitter,
    number,
    ours,
    passes,
    splitting,
    take,
)


def run_lengths(api: Any, parent: Any) -> Any:
    """An `IterDataset` of the user's own: each element as often as its number, 1, 2, 1, 2."""

    class Again(api.DatasetIterator):
        def __init__(self, parent: Any) -> None:
            super().__init__(parent)
            self._count = 0
            self._left = 0
            self._before = parent.get_state()
            self._element: Any = None

        def __next__(self) -> Any:
            if not self._left:
                before = self._parent.get_state()
                self._element = next(self._parent)
                self._before = before
                self._left = self._count % 2 + 1
                self._count += 1
            self._left -= 1
            return self._element

        def get_state(self) -> dict[str, Any]:
            parent = self._before if self._left else self._parent.get_state()
            return {"parent": parent, "count": self._count, "left": self._left}

        def set_state(self, state: dict[str, Any]) -> None:
            self._parent.set_state(state["parent"])
            self._before = state["parent"]
            self._count, self._left = state["count"], state["left"]
            if self._left:
                self._element = next(self._parent)

    class RunLengths(api.IterDataset):
        def __iter__(self) -> Any:
            return Again(self._parent.__iter__())

    return RunLengths(parent)


def counting(api: Any, stop: int) -> Any:
    """An `IterDataset` of the user's own that reads from nothing."""

    class Count(api.DatasetIterator):
        def __init__(self) -> None:
            super().__init__()
            self._next = 0

        def __next__(self) -> int:
            if self._next >= stop:
                raise StopIteration
            self._next += 1
            return self._next - 1

        def get_state(self) -> dict[str, Any]:
            return {"next": self._next}

        def set_state(self, state: dict[str, Any]) -> None:
            self._next = state["next"]

    class Counting(api.IterDataset):
        def __iter__(self) -> Any:
            return Count()

    return Counting()


def with_iter_op(api: Any, ds: Any, op: tuple[Any, ...]) -> Any:
    match op:
        case ("seed", seed):
            return ds.seed(seed)
        case ("map",):
            return ds.map(double)
        case ("map_with_index",):
            return ds.map_with_index(number)
        case ("random_map", seed):
            return ds.random_map(jitter, seed=seed)
        case ("filter", divisor):
            return ds.filter(passes(divisor))
        case ("batch", size, drop_remainder):
            return ds.batch(size, drop_remainder=drop_remainder)
        case ("flat", max_fan_out):
            return api.experimental.FlatMapIterDataset(ds, splitting(api, max_fan_out))
        case ("ahead", size):
            return api.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=size)
        case ("own",):
            return run_lengths(api, ds)
    raise AssertionError(op)


ITER_OPS = st.one_of(
    st.tuples(st.just("seed"), st.integers(0, 50)),
    st.tuples(st.sampled_from(["map", "map_with_index", "own"])),
    st.tuples(st.just("random_map"), st.none() | st.integers(0, 50)),
    st.tuples(st.just("filter"), st.integers(2, 4)),
    st.tuples(st.just("batch"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("flat"), st.integers(1, 3)),
    st.tuples(st.just("ahead"), st.integers(0, 2)),
)
OPS = st.lists(ITER_OPS, max_size=5).map(tuple)


def build(api: Any, chain: Any, ops: Any, num_threads: int = 16, size: int = 500) -> Any:
    options = api.ReadOptions(num_threads=num_threads, prefetch_buffer_size=size)
    dataset = build_map(api, *chain).to_iter_dataset(options)
    for op in ops:
        dataset = with_iter_op(api, dataset, op)
    return dataset


@pytest.mark.filterwarnings("ignore:There will be no batch")
@STEADY
@given(chain=MAP_CHAINS, ops=OPS, num_threads=st.sampled_from([0, 1, 3]))
def test_any_chain_yields_grains_elements(chain: Any, ops: Any, num_threads: int):
    assert_same_stream(lambda api: build(api, chain, ops, num_threads, 4))


@pytest.mark.filterwarnings("ignore:There will be no batch")
@STEADY
@given(chain=MAP_CHAINS, ops=OPS)
def test_any_chain_goes_on_from_any_state(chain: Any, ops: Any):
    try:
        dataset = build(ours, chain, ops)
        list(dataset)
    except (ValueError, IndexError):
        return
    assert_resumes(dataset)


PLAIN = ("range", ())
STEPS = {
    "map": (("map",),),
    "filter and count": (("filter", 3), ("map_with_index",)),
    "seeded": (("seed", 3), ("random_map", None), ("map",), ("random_map", None)),
    "two seeds": (("seed", 3), ("map",), ("seed", 4), ("random_map", None)),
    "batches": (("batch", 3, True), ("map",), ("batch", 2, True)),
    "pieces": (("flat", 3), ("filter", 2), ("flat", 2)),
    "pieces counted": (("flat", 3), ("map_with_index",), ("flat", 2), ("batch", 2, False)),
    "random pieces": (("flat", 3), ("random_map", 7), ("filter", 3)),
    "own": (("own",), ("map",), ("batch", 2, False)),
    "own twice": (("own",), ("filter", 2), ("own",), ("random_map", 5)),
    "ahead": (("map",), ("ahead", 2), ("batch", 2, False), ("ahead", 1)),
}


@pytest.mark.parametrize("ops", STEPS.values(), ids=STEPS.keys())
def test_each_step(ops: Any):
    assert_same_stream(lambda api: build(api, PLAIN, ops))
    assert_resumes(build(ours, PLAIN, ops))


def test_absent_elements_are_left_out_unless_allowed():
    def program(allow_nones: bool) -> Any:
        def make(api: Any) -> Any:
            ds = api.MapDataset.range(9).filter(passes(2)).seed(1)
            ds = ds.to_iter_dataset(allow_nones=allow_nones).map(double)
            return ds.map_with_index(number).random_map(jitter)

        return make

    for allow_nones in (True, False):
        assert_same_stream(program(allow_nones))
        assert_resumes(program(allow_nones)(ours))
    assert None in take(iter(program(True)(ours)))


def test_a_filter_sees_absent_elements_that_are_allowed_as_in_grain():
    assert_same_stream(
        lambda api: (
            api.MapDataset.range(9)
            .filter(passes(2))
            .to_iter_dataset(allow_nones=True)
            .filter(lambda element: element is None or element > 4)
        )
    )


def test_a_map_may_yield_none_as_in_grain():
    assert_same_stream(
        lambda api: (
            api.MapDataset.range(6)
            .to_iter_dataset()
            .map(lambda element: element if element % 2 else None)
            .map(double)
            .map_with_index(number)
        )
    )
    assert_same_stream(lambda api: api.MapDataset.range(6).map(lambda e: e if e % 2 else None))


def test_a_flat_map_of_a_stream_needs_no_bound_as_in_grain():
    def program(api: Any) -> Any:
        class Repeat(api.experimental.FlatMapTransform):
            def flat_map(self, element: Any) -> Any:
                return [element] * element

        return api.experimental.FlatMapIterDataset(
            api.MapDataset.range(5).to_iter_dataset(), Repeat()
        )

    assert_same_stream(program)
    assert_resumes(program(ours))


def test_transformations_are_applied_as_objects_and_functions_piped():
    def program(api: Any) -> Any:
        class Double(api.transforms.Map):
            def map(self, element: Any) -> Any:
                return double(element)

        class Jitter(api.transforms.RandomMap):
            def random_map(self, element: Any, rng: np.random.Generator) -> Any:
                return jitter(element, rng)

        class Number(api.transforms.MapWithIndex):
            def map_with_index(self, index: int, element: Any) -> Any:
                return number(index, element)

        class Odd(api.transforms.Filter):
            def filter(self, element: Any) -> bool:
                return passes(2)(element)

        ds = api.MapDataset.range(20).seed(1).to_iter_dataset()
        ds = ds.apply([Double(), Jitter(), Number(), Odd(), splitting(api, 2)])
        return ds.pipe(lambda ds, size: ds.apply(api.transforms.Batch(size)), 3)

    assert_same_stream(program)
    assert_resumes(program(ours))


def test_a_batch_function_makes_the_batch():
    assert_same_stream(
        lambda api: api.MapDataset.range(7).to_iter_dataset().batch(3, batch_fn=list)
    )


def test_an_endless_stream_is_taken_from_as_long_as_one_likes():
    def program(api: Any) -> Any:
        ds = api.MapDataset.range(7).shuffle(3).repeat().to_iter_dataset()
        return ds.filter(passes(3)).random_map(jitter, seed=3).batch(4)

    assert_same_stream(program, most=50)
    assert_resumes(program(ours), most=12)


def test_users_own_iterators_are_given_as_they_are():
    for api in SIDES:
        iterator = iter(counting(api, 5))
        assert next(iterator) == 0
        assert iterator.get_state() == {"next": 1}
        iterator.close()


def test_users_own_datasets_stand_anywhere():
    def program(api: Any) -> Any:
        ds = every_other(api, api.MapDataset.range(40).shuffle(1)).map(double)
        ds = run_lengths(api, ds.to_iter_dataset().filter(passes(3))).map(double)
        return run_lengths(api, ds.batch(2)).seed(3).random_map(jitter)

    assert_same_stream(program)
    assert_resumes(program(ours))
    assert_same_stream(lambda api: counting(api, 9).map(double).batch(2))
    assert_resumes(counting(ours, 9).filter(passes(2)).batch(2))


def test_a_users_iterator_that_cannot_report_its_state_is_iterated_all_the_same():
    def program(api: Any) -> Any:
        class Iterator(api.DatasetIterator):
            def __init__(self) -> None:
                super().__init__()
                self._numbers = iter(range(5))

            def __next__(self) -> int:
                return next(self._numbers)

            def get_state(self) -> Any:
                raise NotImplementedError("no state")

            def set_state(self, state: Any) -> None:
                raise NotImplementedError("no state")

        class Stateless(api.IterDataset):
            def __iter__(self) -> Any:
                return Iterator()

        return Stateless().map(double).batch(2)

    assert_same_stream(program)
    iterator = iter(program(ours))
    next(iterator)
    with pytest.raises(NotImplementedError, match="no state"):
        iterator.get_state()


def test_a_users_error_comes_at_its_element_and_the_stream_stands_before_it():
    failures = iter([True, False])

    def fail_once(element: int) -> int:
        if element == 3 and next(failures):
            raise KeyError("three")
        return element

    ds = run_lengths(ours, ours.MapDataset.range(5).to_iter_dataset().map(fail_once))
    iterator = iter(ds.map(lambda element: element))
    assert list(itertools.islice(iterator, 4)) == [0, 1, 1, 2]
    with pytest.raises(KeyError, match="three"):
        next(iterator)
    assert list(iterator) == [3, 3, 4]


def test_states_are_for_the_pipeline_they_came_from():
    iterator = iter(ours.MapDataset.range(5).to_iter_dataset())
    for wrong in ({}, None, {"next_index": 9}, {"step": 3}, b"state"):
        with pytest.raises(StateError):
            iterator.set_state(wrong)


def test_what_cannot_work_is_refused_where_it_is_written():
    ds = ours.MapDataset.range(5).to_iter_dataset()
    for wrong in (
        lambda: ds.random_map(jitter),
        lambda: ds.batch(0),
        lambda: ds.map(3),
        lambda: ours.experimental.ThreadPrefetchIterDataset(ds, prefetch_buffer_size=-1),
    ):
        with pytest.raises(PlanError):
            wrong()


def test_prefetch_is_the_older_name():
    ds = ours.MapDataset.range(5).to_iter_dataset()
    with pytest.warns(DeprecationWarning, match="mp_prefetch"):
        assert ds.prefetch(ours.MultiprocessingOptions(num_workers=0)) is ds


# Worker processes: the stream is that of Grain without any


def in_workers(dataset: Any, **options: Any) -> Any:
    return dataset.mp_prefetch(ours.MultiprocessingOptions(num_workers=2), **options)


PARALLEL = {
    "map": lambda api: api.MapDataset.range(50).shuffle(3).map(double).to_iter_dataset(),
    "filter and batch": lambda api: (
        api.MapDataset.range(50).filter(passes(3)).to_iter_dataset().batch(4)
    ),
    "random": lambda api: api.MapDataset.range(50).seed(1).to_iter_dataset().random_map(jitter),
    "counted": lambda api: (
        api.MapDataset.range(50).to_iter_dataset().filter(passes(3)).map_with_index(number).batch(4)
    ),
    "own": lambda api: run_lengths(
        api, every_other(api, api.MapDataset.range(60)).to_iter_dataset()
    ).map(double),
    "pieces": lambda api: api.experimental.FlatMapIterDataset(
        api.MapDataset.range(50).to_iter_dataset(), splitting(api, 3)
    ),
}


@pytest.mark.parametrize("program", PARALLEL.values(), ids=PARALLEL.keys())
def test_workers_change_nothing(program: Any):
    expected = take(iter(program(SIDES[0])))
    with iter(in_workers(program(ours))) as iterator:
        taken = list(itertools.islice(iterator, 7))
        state = json.loads(json.dumps(iterator.get_state()))
        assert_same(taken + take(iterator), expected)
        iterator.set_state(state)
        assert_same(take(iterator), expected[7:])
    with iter(program(ours)) as alone:  # a state knows nothing of workers
        alone.set_state(state)
        assert_same(take(alone), expected[7:])


def test_steps_after_the_workers_run_here():
    here = os.getpid()
    ds = ours.MapDataset.range(8).map(lambda _: os.getpid()).to_iter_dataset()
    ds = in_workers(ds).map(lambda worker: (worker, os.getpid()))
    with iter(ds) as iterator:
        for worker, process in iterator:
            assert worker != here
            assert process == here


def test_what_is_below_a_dataset_of_the_users_own_runs_in_the_workers():
    below = ours.MapDataset.range(30).map(lambda x: (x, os.getpid())).to_iter_dataset()
    ds = in_workers(run_lengths(ours, below).map(lambda element: element))
    with iter(ds) as iterator:
        workers = {worker for _, worker in iterator}
    assert os.getpid() not in workers
    assert 1 <= len(workers) <= 2


def test_workers_get_their_number():
    def tell(index: int, count: int) -> None:
        os.environ["GRISTMILL_TEST_WORKER"] = f"{index} of {count}"

    def reported(_: int) -> Any:
        return os.environ.get("GRISTMILL_TEST_WORKER")

    ds = in_workers(ours.MapDataset.range(30).map(reported).to_iter_dataset(), worker_init_fn=tell)
    with iter(ds) as iterator:
        assert set(iterator) <= {"0 of 2", "1 of 2"}
