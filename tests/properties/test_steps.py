"""Any step of a stream can be computed by itself, and each record comes where it is predicted."""

from collections import defaultdict
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import Batch, IndexSampler, MapDataset, NoSharding, ReadOptions, ShardOptions
from gristmill.errors import PlanError
from tests.properties.pipelines import (
    AHEAD,
    INLINE,
    KeepSome,
    OwnSampler,
    Pipeline,
    Plus,
    pipelines,
    samplers,
    shards,
)
from tests.properties.runs import outcome
from tests.properties.test_provenance import loader_pipelines
from tests.properties.trees import plain

LAW = settings(deadline=None, print_blob=True, max_examples=100)


@given(
    pipeline=pipelines(fails=False),
    steps=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    read_options=st.sampled_from([INLINE, AHEAD]),
)
@LAW
def test_the_element_at_a_step_is_that_of_a_full_run(
    pipeline: Pipeline, steps: list[int], read_options: ReadOptions
):
    expected = outcome(iter(pipeline.loader()))
    if "BatchError" in expected or "ValueError" in expected:
        return
    loader = pipeline.loader(read_options)

    for step in steps:
        if step < len(expected):
            assert [plain(loader.at(step))] == expected[step : step + 1]
            with loader.from_step(step) as rest:
                assert outcome(islice(rest, 3)) == expected[step : step + 3]
        else:
            with pytest.raises(IndexError, match=f"no element at step {step}"):
                loader.at(step)


@st.composite
def dense_pipelines(draw: st.DrawFn) -> Pipeline:
    num_records = draw(st.integers(1, 30))
    sampler = draw(samplers(num_records))
    own = getattr(sampler, "shard_options", None)
    shard = None if own and own.shard_count > 1 else draw(st.one_of(st.none(), shards()))
    batch = Batch(draw(st.integers(1, 5)), drop_remainder=draw(st.booleans()))
    return Pipeline("list of ints", num_records, sampler, shard, [Plus(0), batch])


@given(pipeline=dense_pipelines(), epoch=st.one_of(st.none(), st.integers(0, 2)))
@LAW
def test_a_record_comes_at_its_steps_and_at_no_others(pipeline: Pipeline, epoch: int | None):
    loader = pipeline.loader()
    if isinstance(pipeline.sampler, OwnSampler):
        with pytest.raises(PlanError, match=r"order of .* is not known"):
            loader.steps_of(0)
        return
    if epoch is not None:
        loader = loader.epoch(epoch)
    steps: dict[int, list[int]] = defaultdict(list)
    for step, batch in enumerate(loader):
        for record in set(batch.tolist()):
            steps[record].append(step)

    found = {record: list(loader.steps_of(record)) for record in range(pipeline.num_records)}

    assert found == {record: steps[record] for record in range(pipeline.num_records)}


def test_a_record_that_is_not_in_the_data_is_an_error():
    loader = Pipeline("range", 5, IndexSampler(5), None, []).loader()

    with pytest.raises(IndexError, match=r"Record 5 is not in the data: range\(0, 5\) has 5"):
        loader.steps_of(5)


@given(pipeline=loader_pipelines(), record=st.integers(0, 29))
@LAW
def test_the_steps_of_a_record_are_those_whose_provenance_has_it(pipeline: Pipeline, record: int):
    if record >= pipeline.num_records or isinstance(pipeline.sampler, OwnSampler):
        return
    loader = pipeline.loader()
    with iter(loader) as iterator:
        expected = [
            step
            for step, _ in enumerate(iterator)
            if record in [origin.index for origin in iterator.provenance().records]
        ]

    assert list(loader.steps_of(record)) == expected


def test_the_steps_of_a_record_of_a_dataset():
    first, second = MapDataset.range(20), MapDataset.range(100, 120)
    dataset = MapDataset.mix([first, second], weights=[2, 1]).shuffle(seed=3).repeat(2)
    stream = dataset.to_iter_dataset().filter(_is_even).batch(3).shuffle(buffer_size=4, seed=1)
    batches = [batch.tolist() for batch in stream]

    for number, offset in ((0, 0), (1, 100)):
        for index in range(10):
            expected = [step for step, batch in enumerate(batches) if offset + index in batch]
            assert list(stream.steps_of((number, index))) == expected
    with stream.from_step(2) as iterator:
        next(iterator)
        (origin, *_) = iterator.provenance().records
    assert 2 in stream.steps_of(origin)


def _is_even(number: int) -> bool:
    return number % 2 == 0


def test_a_record_of_a_dataset_that_is_not_in_the_data_is_an_error():
    stream = MapDataset.range(5).to_iter_dataset()

    with pytest.raises(IndexError, match=r"Record 5 is not in the data: .* has 5 records"):
        stream.steps_of(5)
    with pytest.raises(IndexError, match="There is no source 1: the pipeline has 1"):
        stream.steps_of((1, 0))
    with pytest.raises(PlanError, match="The pipeline has 2 sources"):
        MapDataset.concatenate(
            [MapDataset.range(5), MapDataset.range(3)]
        ).to_iter_dataset().steps_of(1)


@given(
    shard=st.tuples(st.integers(0, 3), st.just(4)),
    epoch=st.integers(0, 2),
    position=st.integers(0, 17),
    contiguous=st.booleans(),
    keeps=st.booleans(),
)
@LAW
def test_a_position_made_by_hand_is_where_a_run_of_all_shards_comes_by(
    shard: tuple[int, int], epoch: int, position: int, contiguous: bool, keeps: bool
):
    options = ShardOptions(*shard)
    sampler = IndexSampler(
        17, options if contiguous else NoSharding(), shuffle=True, num_epochs=3, seed=5
    )
    steps = [Plus(0)] if keeps else [KeepSome(2)]
    loader = Pipeline("range", 17, sampler, None if contiguous else options, steps).loader()
    size = sampler.epoch_size
    whole = iter(loader)
    expected = []
    for element in whole:
        (origin,) = whole.provenance().records
        index = origin.position
        assert index is not None
        if index >= epoch * size * (4 if contiguous else 1) + position:
            expected.append(plain(element))

    with loader.from_position(position, epoch=epoch) as iterator:
        assert outcome(iterator) == expected


def test_a_position_that_does_not_exist_is_an_error():
    loader = Pipeline("range", 5, IndexSampler(5, num_epochs=2), None, []).loader()

    with pytest.raises(IndexError, match="There is no position 1 in epoch 2"):
        loader.from_position(1, epoch=2)
    with pytest.raises(PlanError, match="at least 0"):
        loader.from_position(-1)


@pytest.mark.parametrize("num_shards", [1, 3, 4])
def test_the_global_batch_is_that_of_all_shards(num_shards: int):
    loader = Pipeline("ArraySource", 40, IndexSampler(40, shuffle=True, seed=1), None, [Batch(3)])
    found = loader.loader().at(2, num_shards=num_shards)

    shards = [loader.loader().at(2, shard=(index, num_shards)) for index in range(num_shards)]
    assert found["x"].tolist() == [row for batch in shards for row in batch["x"].tolist()]
    assert found["rest"][0].shape == (3 * num_shards,)
    with pytest.raises(PlanError, match="not both"):
        loader.loader().at(2, shard=(0, 2), num_shards=2)
