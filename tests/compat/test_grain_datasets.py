"""Datasets of Grain that are passed to ours: recognised, with their absent elements and states."""

import json
from typing import Any

import grain
import pytest

import gristmill as gm
from gristmill.experimental import RepeatIterDataset, WindowShuffleIterDataset


def even(dataset: Any) -> Any:
    return dataset.filter(lambda x: x % 2 == 0)


def test_a_map_dataset_of_grain_is_a_source_with_absent_elements():
    made: list[Any] = []
    for api in (grain, gm):
        ds = api.MapDataset.source(even(grain.MapDataset.range(9).seed(1).shuffle()))
        ds = ds.map(lambda x: x * 10)
        made.append((len(ds), [ds[i] for i in range(20)], list(ds), list(ds.repeat(2))))
    assert made[0] == made[1]


def test_map_datasets_of_both_can_be_mixed_and_concatenated():
    for method in ("mix", "concatenate"):
        expected = getattr(grain.MapDataset, method)(
            [even(grain.MapDataset.range(8)), grain.MapDataset.range(100, 108)]
        )
        made = getattr(gm.MapDataset, method)(
            [even(grain.MapDataset.range(8)), gm.MapDataset.range(100, 108)]
        )
        assert list(made) == list(expected)


def stream() -> Any:
    return even(grain.MapDataset.range(40).seed(3).shuffle().to_iter_dataset())


PROGRAMS: dict[str, Any] = {
    "window": lambda: WindowShuffleIterDataset(stream(), window_size=4, seed=1),
    "mix": lambda: gm.IterDataset.mix([stream(), gm.MapDataset.range(100, 140).to_iter_dataset()]),
    "repeat, batch": lambda: RepeatIterDataset(stream(), 2).batch(3, batch_fn=list),
    "map dataset": lambda: WindowShuffleIterDataset(
        even(grain.MapDataset.range(40)),  # type: ignore[arg-type]
        window_size=4,
        seed=1,
    ),
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_stream_of_grain_is_read_and_resumed_by_its_own_states(program: str):
    ds = PROGRAMS[program]()
    expected, iterator = list(ds), iter(ds)
    assert len(expected) > 5
    for number in range(len(expected) + 1):
        other = iter(ds)
        other.set_state(json.loads(json.dumps(iterator.get_state())))
        assert list(other) == expected[number:]
        next(iterator, None)


class Shifted(gm.MapDataset[Any]):
    def __len__(self) -> int:
        return len(self._parent)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.slice(index)
        element = self._parent[index]
        return None if element is None else element + 1


def test_a_subclass_of_ours_has_a_parent_of_grain():
    parent = even(grain.MapDataset.range(10))
    ds = Shifted(parent)
    assert ds._parent is parent
    assert ds.parents == (parent,)
    assert list(ds) == [1, 3, 5, 7, 9]
    batches = ds.map(lambda x: -x).to_iter_dataset().batch(2, batch_fn=list)
    assert next(iter(batches)) == [-1, -3]
    assert "Shifted" in str(ds)


class Negated(gm.IterDataset[Any]):
    def __iter__(self) -> Any:
        parent: Any = iter(self._parent)
        return NegatedIterator(parent)


class NegatedIterator(gm.DatasetIterator[Any]):
    def __next__(self) -> Any:
        return -next(self._parent)

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_stream_of_ours_has_a_parent_of_grain(num_workers: int):
    ds = Negated(stream())
    expected = [-x for x in stream()]
    options = gm.MultiprocessingOptions(num_workers=num_workers)
    with iter(ds.map(lambda x: x).mp_prefetch(options)) as iterator:
        assert list(iterator) == expected


def test_the_seed_of_a_parent_of_grain_counts():
    def shuffled(api: Any, parent: Any) -> Any:
        class Same(api.MapDataset):
            def __len__(self) -> int:
                return len(self._parent)

            def __getitem__(self, index: Any) -> Any:
                return self.slice(index) if isinstance(index, slice) else self._parent[index]

        return list(Same(parent).shuffle())

    parent = grain.MapDataset.range(20).seed(4).map(lambda x: x)
    assert shuffled(gm, parent) == shuffled(grain, parent)


def numbers_of(api: Any, start: int = 0) -> Any:
    """The same dataset of either side."""
    return api.MapDataset.range(start, start + 7).map(lambda x: x * 2)


def stream_of_numbers(api: Any, start: int = 0) -> Any:
    return numbers_of(api, start).to_iter_dataset(grain.ReadOptions(num_threads=0))


MAP_STEPS_OF_GRAIN: dict[str, Any] = {
    "window shuffle": lambda api: grain.experimental.WindowShuffleMapDataset(
        numbers_of(api), window_size=3, seed=1
    ),
    "zip": lambda api: grain.experimental.ZipMapDataset([numbers_of(grain), numbers_of(api)]),
    "mix": lambda api: grain.MapDataset.mix([numbers_of(api), numbers_of(grain, 50)], [1, 2]),
    "concatenate": lambda api: grain.MapDataset.concatenate([numbers_of(api), numbers_of(grain)]),
}
STREAM_STEPS_OF_GRAIN: dict[str, Any] = {
    "mix": lambda api: grain.IterDataset.mix(
        [stream_of_numbers(api), stream_of_numbers(grain, 50)]
    ),
    "a mix of Grain's and ours": lambda api: grain.IterDataset.mix(
        [stream_of_numbers(grain), stream_of_numbers(api, 50)]
    ),
    "window shuffle": lambda api: grain.experimental.WindowShuffleIterDataset(
        stream_of_numbers(api), window_size=3, seed=1
    ),
    "repeat": lambda api: grain.experimental.RepeatIterDataset(stream_of_numbers(api), 2),
    "prefetch": lambda api: grain.experimental.ThreadPrefetchIterDataset(
        stream_of_numbers(api), prefetch_buffer_size=2
    ),
    "interleave": lambda api: grain.experimental.InterleaveIterDataset(
        [stream_of_numbers(api), stream_of_numbers(grain, 50)], cycle_length=2
    ),
    "options": lambda api: grain.experimental.WithOptionsIterDataset(
        stream_of_numbers(api), grain.experimental.DatasetOptions()
    ),
}


@pytest.mark.parametrize("make", MAP_STEPS_OF_GRAIN.values(), ids=MAP_STEPS_OF_GRAIN.keys())
def test_a_step_of_grain_takes_a_map_dataset_of_ours(make: Any):
    expected, found = make(grain), make(gm)

    assert list(found) == list(expected)
    assert [found[index] for index in range(20)] == [expected[index] for index in range(20)]


@pytest.mark.parametrize("make", STREAM_STEPS_OF_GRAIN.values(), ids=STREAM_STEPS_OF_GRAIN.keys())
def test_a_step_of_grain_takes_a_stream_of_ours_and_resumes(make: Any):
    expected = list(make(grain))
    iterator = iter(make(gm))
    assert [next(iterator) for _ in range(3)] == expected[:3]
    state = json.loads(json.dumps(iterator.get_state()))
    assert list(iterator) == expected[3:]

    resumed = iter(make(gm))
    resumed.set_state(state)
    assert list(resumed) == expected[3:]
