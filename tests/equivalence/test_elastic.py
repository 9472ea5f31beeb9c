"""Runs that are stopped and continue with other numbers of shards: each record exactly once.

Where the order is that of all shards together and they go in step, it continues to the letter.
"""

import json
import random
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill as grain
from gristmill.checkpoint import gather_states
from gristmill.errors import StateError

Make = Callable[[int, int], Any]
ShardOptions = grain.sharding.ShardOptions
experimental = grain.experimental
COUNT = 97


class Pieces(grain.transforms.FlatMap):
    max_fan_out = 5

    def flat_map(self, element: int) -> list[int]:
        return [1000 * piece + element for piece in range(element % 5)]


def loader(shard: int, count: int, *operations: Any, epochs: int = 1, workers: int = 0) -> Any:
    return iter(
        grain.DataLoader(
            data_source=range(COUNT),
            sampler=grain.samplers.IndexSampler(COUNT, shuffle=True, seed=1, num_epochs=epochs),
            operations=list(operations),
            shard_options=ShardOptions(shard, count),
            worker_count=workers,
        )
    )


def contiguous(shard: int, count: int) -> Any:
    sampler = grain.samplers.IndexSampler(
        COUNT, ShardOptions(shard, count), shuffle=True, num_epochs=2, seed=1
    )
    return iter(grain.DataLoader(data_source=range(COUNT), sampler=sampler))


def numbers(shard: int, count: int, first: int = 0) -> Any:
    ds = grain.MapDataset.range(first, first + COUNT).shuffle(seed=3)
    return ds[shard::count].to_iter_dataset()


def documents(shard: int, count: int) -> Any:
    return numbers(shard, count, first=1).map(lambda x: {"t": np.full(1 + x % 7, x)})


def shuffled_by_itself(shard: int, count: int) -> Any:
    ds = grain.MapDataset.range(COUNT)[shard::count].shuffle(seed=3).repeat(2)
    return ds.random_map(lambda x, rng: x + 1000 * int(rng.integers(9)), seed=3).to_iter_dataset()


def mixed(shard: int, count: int) -> Any:
    parts = {str(first): numbers(shard, count, first) for first in (0, 1000, 2000)}
    parts["1000"] = experimental.WindowShuffleIterDataset(parts["1000"], window_size=7, seed=1)
    return grain.IterDataset.mix(parts, {"0": 1.0, "1000": 2.0, "2000": 1.0})


def deep(shard: int, count: int) -> Any:
    """A window over pieces that passed a filter, packed, and batched."""
    ds = experimental.FlatMapIterDataset(numbers(shard, count), Pieces())
    ds = ds.filter(lambda x: x % 3 != 1)
    ds = experimental.WindowShuffleIterDataset(ds, window_size=5, seed=1)
    ds = ds.map(lambda x: {"t": np.full(1 + x % 4, x + 1)})
    return experimental.BestFitPackIterDataset(ds, length_struct={"t": 9}, num_packing_bins=3)


PLANS: dict[str, Make] = {
    "loader": loader,
    "loader of batches": lambda s, n: loader(s, n, grain.transforms.Batch(3), epochs=2),
    "loader of pieces": lambda s, n: loader(s, n, Pieces()),
    "contiguous shards": contiguous,
    "batches": lambda s, n: iter(numbers(s, n).batch(4)),
    "filter": lambda s, n: iter(numbers(s, n).filter(lambda x: x % 3 != 0).batch(2)),
    "absent": lambda s, n: iter(
        grain.MapDataset.range(COUNT)[s::n].filter(lambda x: x % 3 != 0).to_iter_dataset()
    ),
    "pieces": lambda s, n: iter(
        experimental.FlatMapIterDataset(numbers(s, n), Pieces()).filter(lambda x: x % 7 != 1)
    ),
    "shuffled by itself": lambda s, n: iter(shuffled_by_itself(s, n)),
    "window": lambda s, n: iter(
        experimental.WindowShuffleIterDataset(numbers(s, n), window_size=7, seed=1).batch(2)
    ),
    "first fit": lambda s, n: iter(
        experimental.FirstFitPackIterDataset(
            documents(s, n), length_struct={"t": 11}, num_packing_bins=3
        )
    ),
    "concat, split": lambda s, n: iter(
        experimental.ConcatThenSplitIterDataset(documents(s, n), length_struct={"t": 5})
    ),
    "concat, split, full ones pass": lambda s, n: iter(
        experimental.ConcatThenSplitIterDataset(
            documents(s, n), length_struct={"t": 5}, split_full_length_features=False
        )
    ),
    "unbatch": lambda s, n: loader(
        s, n, grain.transforms.Batch(7), grain.transforms.Unbatch(), epochs=2
    ),
    "unbatch, batch": lambda s, n: iter(numbers(s, n).batch(5).map(lambda x: x).unbatch().batch(2)),
    "rebatch": lambda s, n: iter(experimental.RebatchIterDataset(numbers(s, n).batch(5), 3)),
    "numbered": lambda s, n: iter(numbers(s, n).map_with_index(lambda _, x: x)),
    "deep": lambda s, n: iter(deep(s, n)),
    "repeated stream": lambda s, n: iter(
        experimental.RepeatIterDataset(numbers(s, n), num_epochs=2)
    ),
    "zip": lambda s, n: iter(experimental.ZipIterDataset([numbers(s, n), numbers(s, n)])),
    "elastic filter": lambda s, n: iter(
        experimental.ElasticIterator(
            grain.MapDataset.range(COUNT).filter(lambda x: x % 3 != 0), n, ShardOptions(s, n)
        )
    ),
}


def records_of(element: Any) -> list[int]:
    if isinstance(element, dict):
        return element["t"][element["t_segment_ids"] > 0].tolist()
    return np.asarray(element).ravel().tolist()


def some_of(iterator: Iterator[Any], count: int) -> list[int]:
    return [
        record
        for _, element in zip(range(count), iterator, strict=False)
        for record in records_of(element)
    ]


def run_in_phases(make: Make, rng: random.Random, phases: int) -> list[int]:
    """Run with some shards, stop, continue with others, and so on; return all records that came."""
    count = rng.randint(1, 5)
    iterators = [make(shard, count) for shard in range(count)]
    seen: list[int] = []
    for _ in range(phases):
        for iterator in iterators:
            seen += some_of(iterator, rng.choice([0, 1, 2, 3, 5, 40]))
        states = [iterator.get_state() for iterator in iterators]
        rng.shuffle(states)
        state = through_json(gather_states(states))
        count = rng.randint(1, 5)
        iterators = [make(shard, count) for shard in range(count)]
        for iterator in iterators:
            iterator.set_state(state)
        if rng.random() < 0.5:  # and once more on as many
            described = [through_json(iterator.get_state()) for iterator in iterators]
            iterators = [make(shard, count) for shard in range(count)]
            for iterator, own in zip(iterators, described, strict=True):
                iterator.set_state(own)
    for iterator in iterators:
        seen += some_of(iterator, 10**6)
    return sorted(seen)


def through_json(state: Any) -> Any:
    return json.loads(json.dumps(state)) if isinstance(state, dict) else state


@pytest.mark.parametrize("name", PLANS)
def test_each_record_comes_exactly_once(name: str):
    make = PLANS[name]
    expected = None
    for seed in range(12):
        seen = run_in_phases(make, random.Random(seed), phases=1 + seed % 4)
        if name == "shuffled by itself":  # what was drawn depends on the first number of shards
            seen = sorted(record % 1000 for record in seen)
        if expected is None:
            whole = sorted(some_of(make(0, 1), 10**6))
            expected = sorted(x % 1000 for x in whole) if "by itself" in name else whole
        assert seen == expected, f"seed {seed}"


STEPS: dict[str, Callable[[Any], Any]] = {
    "map": lambda ds: ds.map(lambda x: 3 * x + 1),
    "filter": lambda ds: ds.filter(lambda x: x % 5 != 2),
    "pieces": lambda ds: experimental.FlatMapIterDataset(ds, Pieces()),
    "window": lambda ds: experimental.WindowShuffleIterDataset(ds, window_size=6, seed=4),
    "numbered": lambda ds: ds.map_with_index(lambda _, x: x),
    "batched": lambda ds: experimental.FlatMapIterDataset(ds.batch(3), Rows()),
    "batched anew": lambda ds: experimental.FlatMapIterDataset(
        experimental.RebatchIterDataset(ds.batch(3), 4), Rows()
    ),
}
ENDS: dict[str, Callable[[Any], Any]] = {
    "elements": lambda ds: ds,
    "batches": lambda ds: ds.batch(3),
    "packed": lambda ds: experimental.FirstFitPackIterDataset(
        ds.map(lambda x: {"t": np.full(1 + x % 7, x)}), length_struct={"t": 9}, num_packing_bins=2
    ),
    "cut": lambda ds: experimental.ConcatThenSplitIterDataset(
        ds.map(lambda x: {"t": np.full(1 + x % 7, x)}), length_struct={"t": 5}
    ),
}


class Rows(grain.transforms.FlatMap):
    max_fan_out = 4

    def flat_map(self, element: Any) -> list[int]:
        return element.tolist()


@settings(max_examples=120, deadline=None, derandomize=True, database=None)
@given(
    steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=4),
    end=st.sampled_from(sorted(ENDS)),
    seed=st.integers(0, 10**6),
)
def test_of_random_pipelines_each_record_comes_exactly_once(steps: list[str], end: str, seed: int):
    def make(shard: int, count: int) -> Any:
        ds = numbers(shard, count)
        for step in steps:
            ds = STEPS[step](ds)
        return iter(ENDS[end](ds))

    try:
        seen = run_in_phases(make, random.Random(seed), phases=1 + seed % 3)
    except StateError as error:
        if "between two outputs of a flat map" not in str(error):
            raise
        return
    assert seen == sorted(some_of(make(0, 1), 10**6))


def test_within_a_batch_whose_end_is_not_known_no_other_shard_continues():
    def make(shard: int, count: int) -> Any:
        return iter(numbers(shard, count).filter(lambda x: x % 3 > 0).batch(4).unbatch())

    old = [make(shard, 2) for shard in range(2)]
    some_of(old[0], 2)
    new = make(0, 3)
    state = gather_states([iterator.get_state() for iterator in old])
    with pytest.raises(StateError, match=r"^A shard is between two outputs of a flat map"):
        new.set_state(state)


def test_of_a_mix_no_record_comes_twice():
    for seed in range(12):
        seen = run_in_phases(lambda s, n: iter(mixed(s, n)), random.Random(seed), phases=2)
        assert len(seen) == len(set(seen)), f"seed {seed}"


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    old=st.integers(1, 6),
    new=st.integers(1, 6),
    steps=st.integers(0, 8),
    size=st.integers(1, 3),
)
def test_in_step_it_goes_on_as_if_nothing_had_been(old: int, new: int, steps: int, size: int):
    """The records of the first global batches are the first of the order, and so on."""
    order = some_of(loader(0, 1), COUNT)
    batch = grain.transforms.Batch(size)
    iterators = [loader(shard, old, batch) for shard in range(old)]
    seen = [some_of(iterator, min(steps, COUNT // (old * size))) for iterator in iterators]
    done = len(seen[0]) * old
    assert sorted(chain(*seen)) == sorted(order[:done])
    state = gather_states([iterator.get_state() for iterator in iterators])
    assert len(state) < 500  # alike for all shards: reported once
    for shard in range(new):
        iterator = loader(shard, new, batch)
        iterator.set_state(state)
        assert some_of(iterator, COUNT) == order[done + shard :: new]


def test_random_steps_draw_what_they_would_have_drawn():
    def draw(element: int, rng: np.random.Generator) -> float:
        return element + rng.random()

    class Draw(grain.transforms.RandomMap):
        def random_map(self, element: int, rng: np.random.Generator) -> float:
            return draw(element, rng)

    whole = [float(x) for x in loader(0, 1, Draw())]
    iterators = [loader(shard, 3, Draw()) for shard in range(3)]
    before = [float(next(iterator)) for iterator in iterators for _ in range(4)]
    state = gather_states([iterator.get_state() for iterator in iterators])
    after: list[float] = []
    for shard in range(2):
        iterator = loader(shard, 2, Draw())
        iterator.set_state(state)
        after += map(float, iterator)
    assert sorted(before + after) == sorted(whole)


def test_with_workers_it_is_the_same():
    iterators = [loader(shard, 3, Pieces(), workers=0) for shard in range(3)]
    for iterator in iterators:
        some_of(iterator, 10)
    state = gather_states([iterator.get_state() for iterator in iterators])
    rests: list[list[int]] = []
    for workers in (0, 2):
        iterator = loader(1, 2, Pieces(), workers=workers)
        with iterator:
            iterator.set_state(state)
            rests.append(some_of(iterator, 10**6))
    assert rests[0] == rests[1]


def test_what_is_packed_goes_on_with_workers():
    iterators = [iter(deep(shard, 2)) for shard in range(2)]
    seen = [some_of(iterator, 5) for iterator in iterators]
    state = gather_states([iterator.get_state() for iterator in iterators])
    for shard in range(3):
        ds = deep(shard, 3).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
        with iter(ds) as iterator:
            iterator.set_state(state)
            seen.append(some_of(iterator, 10**6))
    assert sorted(chain(*seen)) == sorted(some_of(iter(deep(0, 1)), 10**6))


def test_only_the_states_of_all_shards_of_one_run_are_gathered():
    states = [loader(shard, 3).get_state() for shard in range(3)]
    with pytest.raises(StateError, match=r"shards 0 of 3, 1 of 3\. Pass one of each"):
        gather_states(states[:2])
    with pytest.raises(StateError, match="Pass one of each"):
        gather_states([states[0], states[1], states[1]])
    with pytest.raises(StateError, match="another order"):
        gather_states([*states[:2], contiguous(2, 3).get_state()])
    with pytest.raises(StateError, match="There is no state"):
        gather_states([])
    with pytest.raises(StateError, match="None of the states belongs to a shard"):
        gather_states([loader(0, 1).get_state()] * 2)
    assert gather_states([gather_states(states)]) == gather_states(states)


def test_the_state_of_another_shard_is_refused_with_the_remedy():
    with pytest.raises(
        StateError, match=r"1 of 3 there, 0 of 2 here\..*`gristmill.checkpoint.gath"
    ):
        loader(0, 2).set_state(loader(1, 3).get_state())
    sampler = grain.samplers.IndexSampler(COUNT, shuffle=True, num_epochs=2, seed=1)
    strided = grain.DataLoader(
        data_source=range(COUNT), sampler=sampler, shard_options=ShardOptions(0, 2)
    )
    with pytest.raises(StateError, match="each shard is a range of the records"):
        iter(strided).set_state(contiguous(0, 2).get_state())


def test_a_source_that_is_no_shard_is_reported():
    whole = iter(grain.MapDataset.range(9).to_iter_dataset())
    with pytest.raises(
        StateError, match=r"another order: \[\] there, \[Shard\] here.*`ds\[0::1\]`"
    ):
        iter(grain.MapDataset.range(9)[0::2].to_iter_dataset()).set_state(whole.get_state())
