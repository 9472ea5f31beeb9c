"""Every way to make and change a `MapDataset`: the elements that Grain yields."""

import itertools
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gristmill.errors import PlanError, PlanTypeError
from tests.compat.both_sides import (
    BASES,
    MAP_CHAINS,
    SIDES,
    STEADY,
    assert_resumes,
    assert_same,
    assert_same_access,
    assert_same_stream,
    build_map,
    double,
    every_other,
    jitter,
    number,
    ours,
    passes,
    picking,
    splitting,
)


@STEADY
@given(chain=MAP_CHAINS)
def test_any_chain_yields_grains_elements_at_every_index(chain: Any):
    assert_same_access(lambda api: build_map(api, *chain))


@pytest.mark.filterwarnings("ignore:There will be no batch")
@STEADY
@given(chain=MAP_CHAINS)
def test_any_chain_iterates_as_grains(chain: Any):
    assert_same_stream(lambda api: build_map(api, *chain))


STEPS = {
    "seed and shuffle": (("seed", 3), ("shuffle", None)),
    "shuffle": (("shuffle", 42),),
    "two seeds": (("seed", 3), ("map",), ("seed", 4), ("map",), ("shuffle", None)),
    "seeds below mix": (("seed", 3), ("mix", 4, None, 5), ("shuffle", None)),
    "random maps": (("seed", 1), ("random_map", None), ("random_map", None)),
    "epochs": (("shuffle", 1), ("repeat", 3, True)),
    "one epoch again": (("shuffle", 1), ("repeat", 3, False)),
    "negative slice": (("item", None, None, -1), ("slice", 1, -1, 2)),
    "pieces": (("flat", 3), ("filter", 2), ("map_with_index",)),
    "batches": (("shuffle", 7), ("batch", 3, False), ("map",)),
    "windows": (("window", 4, 9), ("repeat", 2, True)),
    "zipped gaps": (("filter", 3), ("zip",)),
    "mixed with weights": (("mix", 9, [0.7, 0.3], None), ("mix", 3, [1, 5], None)),
    "concatenated": (("shuffle", 3), ("concatenate", 3), ("random_map", 4)),
    "selected": (("select", 9), ("map",)),
    "own": (("shuffle", 3), ("custom",), ("random_map", 4)),
}


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("ops", STEPS.values(), ids=STEPS.keys())
def test_each_step_over_each_base(base: str, ops: Any):
    assert_same_access(lambda api: build_map(api, base, ops))
    assert_same_stream(lambda api: build_map(api, base, ops))


def test_the_index_may_be_negative_or_of_any_integer_type():
    for ops in ((), (("shuffle", 1),), (("batch", 2, False),), (("flat", 2),)):
        grains, own = (build_map(api, "range", ops) for api in SIDES)
        for index in (-1, -7, np.int64(3), np.uint8(2)):
            np.testing.assert_equal(own[index], grains[int(index)])


def test_an_endless_dataset_is_read_far_out_and_cut():
    def program(api: Any) -> Any:
        return api.MapDataset.range(7).seed(2).shuffle().repeat().random_map(jitter)

    grains, own = (program(api) for api in SIDES)
    assert len(own) == len(grains)
    for index in (0, 6, 7, 10_000, 2**40):
        assert_same(own[index], grains[index])
    assert_same([*own[3:40:4]], [*grains[3:40:4]])
    taken = list(itertools.islice(own, 20))
    assert_same(taken, list(itertools.islice(grains, 20)))


def test_endless_parts_are_mixed_and_batched_and_split():
    assert_same_stream(
        lambda api: api.MapDataset.mix(
            [api.MapDataset.range(3).repeat(), api.MapDataset.range(10, 15).shuffle(3).repeat()],
            [0.2, 0.8],
        ),
        most=50,
    )
    assert_same_stream(lambda api: api.MapDataset.range(3).repeat().batch(2), most=20)
    assert_same_stream(
        lambda api: api.experimental.FlatMapMapDataset(
            api.MapDataset.range(3).repeat(), splitting(api, 2)
        ),
        most=20,
    )


def test_transformations_are_applied_as_objects():
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

        ds = api.MapDataset.range(20).seed(1)
        ds = ds.apply([Double(), Jitter(), Number()]).apply(api.transforms.Batch(3))
        return ds.apply(Odd()).apply(splitting(api, 2)).apply(())

    assert_same_access(program)
    assert_same_stream(program)


def test_a_batch_function_makes_the_batch():
    assert_same_access(lambda api: api.MapDataset.range(7).batch(3, batch_fn=list))


def test_batches_of_trees_are_stacked_leaf_by_leaf():
    def program(api: Any) -> Any:
        ds = api.MapDataset.range(7)
        ds = ds.map(lambda x: {"a": np.full((2,), x, np.float32), "b": (x, str(x))})
        return ds.batch(3)

    assert_same_access(program)
    assert_same_stream(program)


def test_pipe_calls_a_function_with_the_dataset():
    def add(dataset: Any, count: int, *, by: int) -> Any:
        return dataset.map(lambda x: x + count * by)

    assert_same_stream(lambda api: api.MapDataset.range(5).pipe(add, 2, by=10))


def test_parents_are_the_datasets_it_is_made_of():
    for api in SIDES:
        one, other = api.MapDataset.range(3), api.MapDataset.range(4)
        assert api.MapDataset.mix([one, other]).parents == (one, other)
        assert one.map(double).parents == (one,)
        assert one.parents == ()


def test_where_the_seed_stands_matters_as_in_grain():
    def program(*places: int) -> Any:
        def build(api: Any) -> Any:
            ds, other = api.MapDataset.range(9), api.MapDataset.range(50, 59)
            for place, step in enumerate(
                (
                    lambda ds: ds.map(double),
                    lambda ds: api.MapDataset.mix([ds, other.seed(9)]),
                    lambda ds: ds.filter(passes(2)),
                    lambda ds: ds.repeat(2),
                )
            ):
                if place in places:
                    ds = ds.seed(100 + place)
                ds = step(ds)
            return ds.shuffle().random_map(jitter)

        return build

    for places in itertools.chain.from_iterable(
        itertools.combinations(range(4), size) for size in range(4)
    ):
        assert_same_stream(program(*places))


# What is refused


REFUSED = {
    "unseeded shuffle": lambda api: api.MapDataset.range(3).shuffle(),
    "unseeded random map": lambda api: api.MapDataset.range(3).random_map(jitter),
    "mix with an empty one": lambda api: api.MapDataset.mix(
        [api.MapDataset.range(3), api.MapDataset.range(0)]
    ),
    "weight of zero": lambda api: api.MapDataset.mix(
        [api.MapDataset.range(3), api.MapDataset.range(3)], [1, 0]
    ),
    "batch after filter": lambda api: api.MapDataset.range(9).filter(bool).map(double).batch(2),
    "batch after filter below mix": lambda api: api.MapDataset.mix(
        [api.MapDataset.range(9).filter(bool), api.MapDataset.range(9)]
    ).batch(2),
    "batch after flat map": lambda api: api.experimental.FlatMapMapDataset(
        api.MapDataset.range(9), splitting(api, 2)
    ).batch(2),
    "batch of none": lambda api: api.MapDataset.range(9).batch(0),
    "repeat of none": lambda api: api.MapDataset.range(9).repeat(0),
    "endless twice": lambda api: api.MapDataset.range(9).repeat().repeat(),
    "endless before others": lambda api: api.MapDataset.concatenate(
        [api.MapDataset.range(9).repeat(), api.MapDataset.range(9)]
    ),
    "zip of unequal lengths": lambda api: api.experimental.ZipMapDataset(
        [api.MapDataset.range(3), api.MapDataset.range(4)]
    ),
    "zip of nothing": lambda api: api.experimental.ZipMapDataset([]),
    "seed too large to shuffle with": lambda api: api.MapDataset.range(3).shuffle(2**32),
    "negative seed": lambda api: api.MapDataset.range(3).shuffle(-1),
    "not a slice": lambda api: api.MapDataset.range(3).slice(3),
}


@pytest.mark.parametrize("program", REFUSED.values(), ids=REFUSED.keys())
def test_grain_and_gristmill_refuse_it(program: Any):
    for api in SIDES:
        with pytest.raises(ValueError, match=r"\w"):
            program(api)


def test_a_refusal_reports_what_to_do():
    ds = ours.MapDataset.range(3)
    with pytest.raises(
        PlanError, match=r"`shuffle` requires a seed. Call `ds.seed\(0\)` before it"
    ):
        ds.shuffle()
    with pytest.raises(PlanError, match=r"Call `to_iter_dataset.*` before `batch`"):
        ds.filter(bool).batch(2)
    with pytest.raises(PlanTypeError, match="Pass an instance of it"):
        ds.map(ours.transforms.Map)
    with pytest.raises(PlanTypeError, match="takes a function or a Map, got 3"):
        ds.map(3)
    with pytest.raises(PlanTypeError, match=r"^Transformation type: .* is not supported\."):
        ds.apply([double])
    with pytest.raises(PlanTypeError, match="must be an integer, a slice"):
        ds["x"]
    with pytest.raises(IndexError, match="empty"):
        ours.MapDataset.range(0)[0]


def test_too_many_pieces_are_refused_when_they_are_met():
    def program(api: Any) -> Any:
        class Three(api.experimental.FlatMapTransform):
            max_fan_out = 2

            def flat_map(self, element: Any) -> Any:
                return [element] * element

        return api.experimental.FlatMapMapDataset(api.MapDataset.range(5), Three())

    assert_same_access(program)
    assert_same_stream(program)
    with pytest.raises(PlanError, match="`max_fan_out`"):
        list(program(ours))


def test_the_users_exception_comes_at_its_element_and_names_the_step():
    def fail(element: int) -> int:
        if element == 3:
            raise KeyError("three")
        return element

    ds = ours.MapDataset.range(6).map(fail)
    assert [ds[index] for index in (0, 1, 2, 4, 5)] == [0, 1, 2, 4, 5]
    with pytest.raises(KeyError) as caught:
        ds[3]
    assert "In Map " in caught.value.__notes__[0]
    iterator = iter(ds)
    assert [next(iterator) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError):
        next(iterator)


# States


@pytest.mark.filterwarnings("ignore:There will be no batch")
@STEADY
@given(chain=MAP_CHAINS)
def test_any_chain_goes_on_from_any_state(chain: Any):
    try:
        dataset = build_map(ours, *chain)
        list(dataset)
    except (ValueError, IndexError):
        return
    assert_resumes(dataset)


def test_a_pickled_dataset_is_the_same():
    ds = ours.MapDataset.range(9).seed(3).shuffle().map(double)
    assert ds[2] is not None
    assert list(pickle.loads(pickle.dumps(ds))) == list(ds)


def test_a_list_of_indices_picks_them():
    ds = ours.MapDataset.range(9).map(double)
    assert list(ds[[4, 0, 4]]) == [9, 1, 9]
    assert ds[np.array([1, 2])][3] == ds[2 + 9]


def test_a_selection_map_may_be_any_sequence_of_pairs():
    pairs = [(0, 2), (1, 0), (1, 5)]
    datasets = [ours.MapDataset.range(3), ours.MapDataset.range(10, 14)]
    assert list(ours.MapDataset.select_from_datasets(datasets, pairs)) == [2, 10, 11]
    assert len(ours.MapDataset.select_from_datasets(datasets, picking(ours, 5))) == 5


def test_a_dataset_of_the_users_own_seeds_what_comes_after_it():
    assert_same_stream(lambda api: every_other(api, api.MapDataset.range(9).seed(4)).shuffle())
