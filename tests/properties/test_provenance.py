"""The records that provenance names, read and transformed alone, are the rows of the element."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import (
    Batch,
    IterDataset,
    MapDataset,
    MultiprocessingOptions,
    RandomMap,
    ReadOptions,
    experimental,
)
from gristmill.checkpoint import gather_states
from gristmill.experimental import FlatMapIterDataset, FlatMapMapDataset
from gristmill.transforms import Filter, FlatMap, Map, MapWithIndex
from tests.properties.dataset_plans import ABOVE, BELOW, SIZES, dataset, plans
from tests.properties.pipelines import (
    AHEAD,
    INLINE,
    SOURCES,
    Jitter,
    KeepSome,
    Pipeline,
    Plus,
    PlusIndex,
    Split,
    samplers,
    shards,
)
from tests.properties.trees import plain, stacked

LAW = settings(deadline=None, print_blob=True, max_examples=100)


@st.composite
def loader_pipelines(draw: st.DrawFn) -> Pipeline:
    """Any sampler and shard, steps that depend on a record and its origin, and perhaps a batch."""
    num_records = draw(st.integers(1, 30))
    sampler = draw(samplers(num_records))
    own = getattr(sampler, "shard_options", None)
    shard = None if own and own.shard_count > 1 else draw(st.one_of(st.none(), shards()))
    has_seed = getattr(sampler, "seed", None) is not None
    steps: list[Any] = []
    for _ in range(draw(st.integers(0, 4))):
        # How the outputs of a flat map draw is not documented: no random step after it.
        can_draw = has_seed and not any(isinstance(step, FlatMap | RandomMap) for step in steps)
        kinds = [Plus(1), PlusIndex(), KeepSome(3), Split(2), *([Jitter(2)] if can_draw else [])]
        steps.append(draw(st.sampled_from(kinds)))
    if draw(st.booleans()):
        steps.append(Batch(draw(st.integers(1, 5)), drop_remainder=draw(st.booleans())))
    return Pipeline(draw(st.sampled_from(sorted(SOURCES))), num_records, sampler, shard, steps)


def transformed(record: Any, operations: Sequence[Any], origin: Any) -> Any:
    """Apply the steps to one record, with nothing but what its origin contains."""
    outputs = list(origin.outputs)
    for step in operations:
        match step:
            case Jitter():
                rng = np.random.Generator(np.random.Philox(key=origin.seed))
                record = step.random_map(record, rng)
            case Map():
                record = step.map(record)
            case MapWithIndex():
                record = step.map_with_index(origin.position, record)
            case Filter():
                assert step.filter(record)
            case FlatMap():
                record = step.flat_map(record)[outputs.pop(0)]
    assert not outputs
    return record


@given(pipeline=loader_pipelines(), read_options=st.sampled_from([INLINE, AHEAD]))
@LAW
def test_a_record_that_provenance_names_yields_its_row(
    pipeline: Pipeline, read_options: ReadOptions
):
    source, operations = pipeline.source(), pipeline.operations
    iterator = iter(pipeline.loader(read_options))

    for element in iterator:
        provenance = iterator.provenance()
        rows = []
        for (origin,) in provenance.rows:
            metadata = pipeline.sampler[origin.position]
            assert getattr(metadata, "record_key", metadata) == origin.index
            rows.append(transformed(source[origin.index], operations, origin))
        is_batch = bool(operations) and isinstance(operations[-1], Batch)
        expected = stacked(rows) if is_batch else rows[0]
        assert plain(expected) == plain(element)


# Datasets whose elements contain where they come from: number + 10^4 per step + draws + outputs.


def _plus(x: int) -> int:
    return x + 10**4


def _or_none(x: int) -> int | None:
    return x if x % 5 else None


def _is_kept(x: int) -> bool:
    return bool(x % 3)


def _drawn(x: int, rng: np.random.Generator) -> int:
    return x + 10**7 * int(rng.integers(100))


class _Outputs(FlatMap):
    max_fan_out = 3

    def flat_map(self, element: int) -> list[int]:
        return [element + 10**11 * output for output in range(element % 4)]


DATASET_STEPS: dict[str, Any] = {
    "shuffle": lambda ds: ds.shuffle(seed=3),
    "slice": lambda ds: ds[1::2],
    "repeat": lambda ds: ds.repeat(2),
    "same epochs": lambda ds: ds.repeat(2, reseed_each_epoch=False),
    "map": lambda ds: ds.map(_plus),
    "none": lambda ds: ds.map(_or_none),
    "filter": lambda ds: ds.filter(_is_kept),
    "draw": lambda ds: ds.random_map(_drawn, seed=5),
    "split": lambda ds: FlatMapMapDataset(ds, _Outputs()),
    "window": lambda ds: experimental.WindowShuffleMapDataset(ds, window_size=4, seed=1),
}
STREAM_STEPS: dict[str, Any] = {
    "map": lambda ds: ds.map(_plus),
    "filter": lambda ds: ds.filter(_is_kept),
    "draw": lambda ds: ds.random_map(_drawn, seed=7),
    "split": lambda ds: FlatMapIterDataset(ds, _Outputs()),
    "window": lambda ds: experimental.WindowShuffleIterDataset(ds, window_size=4, seed=1),
    "limit": lambda ds: experimental.LimitIterDataset(ds, 17),
    "repeat": lambda ds: experimental.RepeatIterDataset(ds, 2),
    "cache": lambda ds: experimental.CacheIterDataset(ds),
}
COMBINED: dict[str, Any] = {
    "mix": lambda all: MapDataset.mix(all, weights=list(range(1, 1 + len(all)))),
    "concatenate": MapDataset.concatenate,
}


def _part(number: int, size: int, steps: Sequence[str]) -> Any:
    part = MapDataset.source(range(1000 * number, 1000 * number + size))
    for step in steps:
        part = DATASET_STEPS[step](part)
    return part


@st.composite
def datasets(draw: st.DrawFn) -> Any:
    some_steps = st.lists(st.sampled_from(sorted(DATASET_STEPS)), max_size=3)
    parts = draw(st.lists(st.tuples(st.integers(2, 30), some_steps), min_size=1, max_size=3))
    made = [_part(number, size, steps) for number, (size, steps) in enumerate(parts)]
    made = [part for part in made if len(part)]
    below = draw(st.booleans())
    combined = draw(st.sampled_from(sorted(COMBINED)))
    if not made:
        made = [_part(0, 5, [])]
    if below:
        stream = COMBINED[combined](made).to_iter_dataset()
    else:
        stream = IterDataset.mix([one.to_iter_dataset() for one in made], [1] * len(made))
    for step in draw(st.lists(st.sampled_from(sorted(STREAM_STEPS)), max_size=3)):
        stream = STREAM_STEPS[step](stream)
    size = draw(st.integers(0, 4))
    return stream.batch(size) if size else stream


@given(made=datasets())
@LAW
def test_a_dataset_names_the_records_of_each_row(made: Any):
    iterator = iter(made)

    for element in iterator:
        provenance = iterator.provenance()
        values = np.atleast_1d(element).tolist()
        assert len(provenance.rows) == len(values)
        for value, (origin,) in zip(values, provenance.rows, strict=True):
            start = int(origin.source.removeprefix("range(").split(",")[0])
            assert value % 10**4 == start + origin.index
            assert value // 10**7 % 10**4 == sum(map(_draw, origin.draws))
            assert value // 10**11 == sum(origin.outputs)


def _draw(draw: Any) -> int:
    bits = np.random.Philox(draw.seed)
    state = bits.state
    state["state"]["counter"][3] = draw.index
    bits.state = state
    return int(np.random.Generator(bits).integers(100))


# Datasets of documents, with steps that hold elements: packing, windows, buckets, caches, mixes.


def check_rows(iterator: Any, above: str) -> int:
    """Compare each row with its documents, read again, and return the number of elements."""
    count = 0
    for element in iterator:
        count += 1
        rows = np.atleast_2d(element["tokens"])
        origins = iterator.provenance().rows
        assert len(origins) == len(rows)
        for row, found in zip(rows, origins, strict=True):
            documents = [DOCUMENTS[origin.source_number][origin.index] for origin in found]
            values = np.concatenate(documents)
            if above == "concatenated":  # the first and the last document may be in other rows too
                assert row[row > 0].tobytes() in values.tobytes()
                assert {*row[row > 0].tolist()} == {*values.tolist()}
            else:
                assert row[row > 0].tobytes() == values.tobytes()
    return count


DOCUMENTS = [
    [np.full(1 + index * 3 % 5, 100 * number + index + 1) for index in range(size)]
    for number, size in enumerate(SIZES)
]


@given(plan=plans, shard=st.sampled_from([(0, 1), (1, 2)]), taken=st.integers(0, 12))
@LAW
def test_the_documents_that_provenance_names_are_those_of_each_row(
    plan: tuple[str, list[str], str], shard: tuple[int, int], taken: int
):
    made = dataset(*plan, shard)
    *_, above = plan
    iterator = iter(made)
    for _ in islice(iterator, taken):
        pass
    resumed = iter(made)
    resumed.set_state(iterator.get_state())

    num_rest = check_rows(iterator, above)

    assert check_rows(resumed, above) == num_rest


@pytest.mark.parametrize("above", sorted(ABOVE))
def test_worker_processes_name_the_same_documents(above: str):
    made = dataset("two sources", ["filter", "window"], above)

    with iter(made.mp_prefetch(MultiprocessingOptions(num_workers=2))) as iterator:
        assert check_rows(iterator, above) == sum(1 for _ in made)


@given(
    below=st.sampled_from(sorted(BELOW)),
    between=st.lists(st.sampled_from(["filter", "window", "map"]), max_size=2),
    above=st.sampled_from(["single", "padded", "first fit", "concatenated", "buckets"]),
    taken=st.integers(0, 4),
    counts=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
@settings(LAW, max_examples=50)
def test_documents_are_named_after_a_change_of_the_number_of_shards(
    below: str, between: list[str], above: str, taken: int, counts: tuple[int, int]
):
    old, new = counts
    iterators = [iter(dataset(below, between, above, (index, old))) for index in range(old)]
    for iterator in iterators:
        for _ in islice(iterator, taken):
            pass
    state = gather_states([iterator.get_state() for iterator in iterators])

    for index in range(new):
        resumed = iter(dataset(below, between, above, (index, new)))
        resumed.set_state(state)
        check_rows(resumed, above)
