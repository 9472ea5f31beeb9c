"""What is made with Grain passes straight into ours: sources, samplers, datasets, steps."""

from typing import Any

import numpy as np
import pytest
from grain import MapDataset as GrainMapDataset
from grain import python as typed_grain
from grain._src.python.dataset import stats as typed_stats
from hypothesis import given, settings
from hypothesis import strategies as st

import gristmill
from gristmill._data.sampling.grain_samplers import own_sampler
from gristmill.errors import PlanTypeError

grain_python: Any = typed_grain  # its classes are not ours to a type checker
grain_stats: Any = typed_stats


class AddOne(grain_python.MapTransform):
    def map(self, element: int) -> int:
        return element + 1


class AddDraw(grain_python.RandomMapTransform):
    def random_map(self, element: int, rng: np.random.Generator) -> int:
        return element + int(rng.integers(1000))


class IsEven(grain_python.FilterTransform):
    def filter(self, element: int) -> bool:
        return element % 2 == 0


class Twice(grain_python.experimental.FlatMapTransform):
    max_fan_out = 2

    def flat_map(self, element: int) -> list[int]:
        return [element, -element]


class Backwards:
    """A sampler of the user's own."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < 5:
            raise IndexError(index)
        return grain_python.RecordMetadata(index=index, record_key=4 - index)


def stream_of(loader: Any) -> list[Any]:
    return [np.asarray(element).tolist() for element in loader]


@settings(deadline=None, max_examples=50)
@given(
    num_records=st.integers(1, 100),
    shard=st.sampled_from([(0, 1), (0, 3), (2, 3)]),
    shuffle=st.booleans(),
    num_epochs=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_an_index_sampler_of_grain_yields_its_stream(
    num_records: int, shard: tuple[int, int], shuffle: bool, num_epochs: int, seed: int
):
    theirs = grain_python.IndexSampler(
        num_records=num_records,
        shard_options=grain_python.ShardOptions(*shard, drop_remainder=True),
        shuffle=shuffle,
        num_epochs=num_epochs,
        seed=seed,
    )
    if num_records < shard[1]:
        return  # no record for each shard
    source = list(range(num_records))

    ours = gristmill.DataLoader(data_source=source, sampler=theirs)
    total = num_records // shard[1] * shard[1] * num_epochs
    expected = [theirs[index].record_key for index in range(shard[0], total, shard[1])]

    assert repr(own_sampler(theirs)) == repr(theirs)
    assert list(ours) == expected


def test_a_sequential_sampler_of_grain_yields_its_stream():
    theirs = grain_python.SequentialSampler(
        num_records=7, shard_options=grain_python.ShardOptions(1, 2)
    )
    loader = gristmill.DataLoader(data_source=list(range(7)), sampler=theirs)
    assert list(loader) == [1, 3, 5]
    assert isinstance(own_sampler(theirs), gristmill.SequentialSampler)


def test_the_shard_options_of_grain_are_taken():
    sampler = gristmill.IndexSampler(num_records=6, num_epochs=1)
    loader = gristmill.DataLoader(
        data_source=list(range(6)),
        sampler=sampler,
        shard_options=grain_python.ShardOptions(1, 2),
    )
    assert list(loader) == [1, 3, 5]
    assert isinstance(
        gristmill.IndexSampler(6, shard_options=grain_python.NoSharding()).shard_options,
        gristmill.NoSharding,
    )


def test_a_sampler_of_the_users_own_stays_what_it_is():
    loader = gristmill.DataLoader(data_source=list("abcde"), sampler=Backwards())  # pyright: ignore[reportArgumentType]
    assert list(loader) == list("edcba")


@pytest.mark.parametrize("worker_count", [0, 1])
def test_steps_of_grain_are_taken_by_the_loader(worker_count: int):
    arguments: dict[str, Any] = {
        "data_source": list(range(10)),
        "sampler": grain_python.IndexSampler(
            num_records=10,
            shard_options=grain_python.NoSharding(),
            shuffle=True,
            num_epochs=1,
            seed=3,
        ),
        "operations": [AddOne(), AddDraw(), IsEven(), grain_python.Batch(2)],
    }
    ours = gristmill.DataLoader(**arguments, worker_count=worker_count)
    expected = grain_python.DataLoader(**arguments, worker_count=0)

    assert stream_of(ours) == stream_of(expected)
    assert len(stream_of(ours)) > 1


def test_steps_of_grain_are_taken_by_datasets():
    steps = [AddOne(), AddDraw(), grain_python.Batch(3, drop_remainder=True)]
    ours = gristmill.MapDataset.range(10).seed(5).apply(steps)
    expected = GrainMapDataset.range(10).seed(5).apply(steps)

    assert stream_of(ours) == stream_of(expected)
    assert list(gristmill.MapDataset.range(4).map(AddOne()).filter(IsEven())) == [2, 4]
    assert list(gristmill.MapDataset.range(1, 3).apply(Twice())) == [1, -1, 2, -2]


def test_the_class_of_a_step_instead_of_an_instance_is_refused():
    with pytest.raises(PlanTypeError, match=r"the class AddOne. Pass an instance of it: `AddOne"):
        gristmill.MapDataset.range(3).map(AddOne)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("worker_count", [0, 2])
def test_a_map_dataset_of_grain_is_a_source(worker_count: int):
    theirs = GrainMapDataset.range(20).shuffle(seed=1).map(AddOne())
    loader = gristmill.DataLoader(
        data_source=theirs,  # pyright: ignore[reportArgumentType]
        sampler=gristmill.SequentialSampler(len(theirs)),
        operations=[gristmill.Batch(6)],
        worker_count=worker_count,
    )
    assert np.concatenate(list(loader)).tolist() == list(theirs)


def test_what_a_dataset_of_grain_filters_out_is_left_out():
    theirs: Any = GrainMapDataset.range(10).filter(IsEven())
    ours = gristmill.MapDataset.source(theirs)
    assert ours[1] is None
    assert list(ours) == list(theirs) == [0, 2, 4, 6, 8]


def test_a_source_of_grain_is_a_source():
    theirs = grain_python.RangeDataSource(3, 9, 2)
    assert list(gristmill.MapDataset.source(theirs)) == [3, 5, 7]


class Reported(gristmill.DatasetIterator[int]):
    @grain_stats.record_next_duration_if_output
    @grain_stats.trace_input_pipeline_next(stage_category=grain_stats.IPL_CAT_READ)
    def __next__(self) -> int:
        timer = grain_stats.Timer()
        with timer:
            element = next(self._parent)
        with self._stats.record_self_time(offset_ns=timer.value()):
            return self._stats.record_output_spec(element + 1)

    def get_state(self) -> Any:
        return self._parent.get_state()

    def set_state(self, state: Any) -> None:
        self._parent.set_state(state)


def test_an_iterator_with_decorators_of_grains_statistics_runs():
    stream = gristmill.MapDataset.range(3).to_iter_dataset()

    assert list(Reported(iter(stream))) == [1, 2, 3]
