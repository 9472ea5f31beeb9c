"""Datasets in every way of running: the same elements, the same states, and those of Grain."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import grain
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gristmill
from gristmill import FlatMap, MultiprocessingOptions, ReadOptions
from tests.equivalence.executors import Run, by_value, exact
from tests.policies import DEFAULT_POLICY, EAGER, iterate

by_value(__name__)

CHEAP = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
DEAR = settings(parent=CHEAP, max_examples=5)


# Pipelines as data: a list of steps, which both libraries can run.


@dataclass(frozen=True)
class Do:
    """A step: a name and what it is called with."""

    name: str
    argument: Any = None

    def __repr__(self) -> str:
        return f"{self.name}({self.argument})"


def scaled(x: Any) -> Any:
    return x * 3 + 1


def is_kept(x: Any) -> bool:
    return bool(np.sum(x) % 3)


def or_nothing(x: Any) -> Any:
    return x if np.sum(x) % 5 else None


def drawn(x: Any, rng: np.random.Generator) -> Any:
    return x + int(rng.integers(1000))


def numbered(index: int, x: Any) -> Any:
    return x * 100 + index


class Pieces(FlatMap):
    """Zero to two pieces of each."""

    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return [element + piece for piece in range(int(np.sum(element)) % 3)]


class GrainPieces(grain.experimental.FlatMapTransform):
    """The same for Grain."""

    max_fan_out = 2

    def flat_map(self, element: Any) -> list[Any]:
        return Pieces().flat_map(element)


map_steps = st.one_of(
    st.builds(Do, st.just("shuffle"), st.integers(0, 9)),
    st.builds(Do, st.just("slice"), st.tuples(st.integers(0, 3), st.integers(1, 3))),
    st.builds(Do, st.just("repeat"), st.tuples(st.integers(1, 3), st.booleans())),
    st.builds(Do, st.sampled_from(["map", "filter", "map_to_none", "map_with_index", "split"])),
    st.builds(Do, st.just("random_map"), st.integers(0, 9)),
    st.builds(Do, st.just("window_shuffle"), st.tuples(st.integers(1, 7), st.integers(0, 9))),
)
stream_steps = st.one_of(
    st.builds(Do, st.sampled_from(["map", "filter", "map_with_index", "split"])),
    st.builds(Do, st.just("random_map"), st.integers(0, 9)),
    st.builds(Do, st.just("window_shuffle"), st.tuples(st.integers(1, 7), st.integers(0, 9))),
    st.builds(Do, st.just("limit"), st.integers(1, 30)),
    st.builds(Do, st.just("repeat"), st.integers(1, 3)),
)
batch_steps = st.builds(Do, st.just("batch"), st.tuples(st.integers(1, 5), st.booleans()))


@dataclass(frozen=True)
class Pipeline:
    """Some ranges with steps, combined, with more steps."""

    parts: tuple[tuple[int, tuple[Do, ...], tuple[Do, ...]], ...]
    combined: str
    above: tuple[Do, ...]
    batches: tuple[Do, ...]

    def build(self, api: Any, read: Any, workers: int = 0) -> Any:
        streams = [self._part(api, read, number) for number in range(len(self.parts))]
        if len(streams) == 1:
            dataset = streams[0]
        elif self.combined == "mix":
            dataset = api.IterDataset.mix(streams, [number + 1 for number in range(len(streams))])
        else:
            dataset = api.experimental.ZipIterDataset(streams, strict=False).map(sum)
        for step in (*self.above, *self.batches):
            dataset = _do(api, dataset, step, is_stream=True)
        if workers:
            dataset = dataset.mp_prefetch(MultiprocessingOptions(num_workers=workers))
        return dataset

    def _part(self, api: Any, read: Any, number: int) -> Any:
        size, below, above = self.parts[number]
        dataset = api.MapDataset.range(1000 * number, 1000 * number + size)
        for step in below:
            dataset = _do(api, dataset, step, is_stream=False)
        dataset = dataset.to_iter_dataset(read)
        for step in above:
            dataset = _do(api, dataset, step, is_stream=True)
        return dataset


def _do(api: Any, dataset: Any, step: Do, *, is_stream: bool) -> Any:  # noqa: C901 - a list
    experimental = api.experimental
    match step.name, step.argument:
        case "shuffle", seed:
            return dataset.shuffle(seed=seed)
        case "slice", (start, stride):
            return dataset[start::stride]
        case "repeat", (epochs, reseeds):
            return dataset.repeat(epochs, reseed_each_epoch=reseeds)
        case "repeat", epochs:
            return experimental.RepeatIterDataset(dataset, epochs)
        case "map", _:
            return dataset.map(scaled)
        case "filter", _:
            return dataset.filter(is_kept)
        case "map_to_none", _:
            return dataset.map(or_nothing)
        case "map_with_index", _:
            return dataset.map_with_index(numbered)
        case "random_map", seed:
            return dataset.random_map(drawn, seed=seed)
        case "split", _:
            pieces = Pieces() if api is gristmill else GrainPieces()
            kind = "FlatMapIterDataset" if is_stream else "FlatMapMapDataset"
            return getattr(experimental, kind)(dataset, pieces)
        case "window_shuffle", (size, seed):
            kind = "WindowShuffleIterDataset" if is_stream else "WindowShuffleMapDataset"
            return getattr(experimental, kind)(dataset, window_size=size, seed=seed)
        case "limit", count:
            return experimental.LimitIterDataset(dataset, count)
        case "batch", (size, drops):
            return dataset.batch(size, drop_remainder=drops)
        case other:
            raise AssertionError(other)


@st.composite
def pipelines(draw: st.DrawFn, *, most_parts: int = 3) -> Pipeline:
    parts = draw(
        st.lists(
            st.tuples(
                st.integers(1, 30),
                st.lists(map_steps, max_size=3).map(tuple),
                st.lists(stream_steps, max_size=2).map(tuple),
            ),
            min_size=1,
            max_size=most_parts,
        )
    )
    return Pipeline(
        tuple(parts),
        draw(st.sampled_from(["mix", "zip"])),
        draw(st.lists(stream_steps, max_size=3).map(tuple)),
        draw(st.lists(batch_steps, max_size=1).map(tuple)),
    )


# Ways of running


READS = {
    "inline": ReadOptions(num_threads=0),
    "ahead": ReadOptions(num_threads=1),
    "threads": ReadOptions(num_threads=4, prefetch_buffer_size=7),
}


POLICIES = {
    "inline": DEFAULT_POLICY,
    "ahead": EAGER,
    "threads": Run("threads").policy,
}


def run(dataset: Any, way: str = "inline") -> tuple[list[Any], list[str]]:
    """Return all elements, and the state before each and at the end."""
    with closing(iterate(dataset, POLICIES[way])) as iterator:
        states = [json.dumps(iterator.get_state())]
        elements: list[Any] = []
        for element in iterator:
            elements.append(exact(element))
            states.append(json.dumps(iterator.get_state()))
        return elements, states


def rest(dataset: Any, state: str, way: str = "inline") -> Iterator[Any]:
    with closing(iterate(dataset, POLICIES[way])) as iterator:
        iterator.set_state(json.loads(state))
        assert json.dumps(iterator.get_state()) == state
        yield from map(exact, iterator)


@pytest.mark.filterwarnings("ignore:There will be no batch")
@given(pipeline=pipelines())
@CHEAP
def test_the_elements_are_grains(pipeline: Pipeline):
    theirs = pipeline.build(grain, grain.ReadOptions(num_threads=0))
    ours = pipeline.build(gristmill, READS["inline"])

    assert list(map(exact, ours)) == list(map(exact, theirs))


@pytest.mark.filterwarnings("ignore:There will be no batch")
@given(pipeline=pipelines(), way=st.sampled_from(["ahead", "threads"]), cut=st.integers(0, 99))
@CHEAP
def test_threads_change_nothing_and_states_restore_anywhere(pipeline: Pipeline, way: str, cut: int):
    built = {one: pipeline.build(gristmill, READS[one]) for one in ("inline", way)}
    elements, states = run(built["inline"])

    assert run(built[way], way) == (elements, states)
    place = cut % len(states)
    for one, dataset in built.items():
        assert list(rest(dataset, states[place], one)) == elements[place:]


@pytest.mark.filterwarnings("ignore:There will be no batch")
@given(pipeline=pipelines(most_parts=2), cut=st.integers(0, 99))
@DEAR
def test_workers_change_nothing_and_states_restore_anywhere(pipeline: Pipeline, cut: int):
    inline = pipeline.build(gristmill, READS["inline"])
    other = pipeline.build(gristmill, READS["inline"], workers=2)
    elements, states = run(inline)

    assert run(other) == (elements, states)
    place = cut % len(states)
    assert list(rest(other, states[place])) == elements[place:]


@pytest.mark.filterwarnings("ignore:There will be no batch")
@given(pipeline=pipelines(most_parts=1))
@CHEAP
def test_every_state_restores(pipeline: Pipeline):
    dataset = pipeline.build(gristmill, READS["inline"])
    elements, states = run(dataset)

    for place, state in enumerate(states):
        assert list(rest(dataset, state)) == elements[place:]
