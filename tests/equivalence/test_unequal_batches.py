"""Batches of unequal elements, and steps over the order of a stream, however they are run.

One stream whatever the executor, states that restore at any point, and shards that continue each
other: each law for each of the steps.
"""

import json
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gristmill as grain
from gristmill import MultiprocessingOptions, ReadOptions
from gristmill.checkpoint import gather_states
from gristmill.transforms import PadBatch
from tests.equivalence.executors import Run, by_value, exact
from tests.policies import DEFAULT_POLICY, EAGER, iterate

by_value(__name__)

CHEAP = settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
COUNT = 61
RNG_LENGTHS = np.random.default_rng(7).integers(1, 17, COUNT)
READS = {
    "inline": (ReadOptions(num_threads=0), DEFAULT_POLICY),
    "ahead": (ReadOptions(num_threads=1), EAGER),
    "threads": (ReadOptions(num_threads=4, prefetch_buffer_size=7), Run("threads").policy),
}


def document(number: int) -> dict[str, Any]:
    return {"tokens": np.full(RNG_LENGTHS[number], number + 1), "id": number}


def is_kept(x: Any) -> bool:
    return bool(np.sum(x["id"]) % 5)


def total(carried: dict[str, Any], x: Any) -> tuple[dict[str, Any], Any]:
    carried["sum"] += x["id"]
    carried["last"][:] = x["tokens"][:1]
    return carried, {**x, "sum": carried["sum"], "last": carried["last"].copy()}


def documents(shard: int = 0, count: int = 1, read: ReadOptions | None = None) -> Any:
    ds = grain.MapDataset.range(COUNT).shuffle(seed=5)[shard::count].map(document)
    return ds.to_iter_dataset(read)


Build = Callable[[Any], Any]

STEPS: dict[str, Build] = {
    "pad": lambda ds: ds.pad_batch(4, multiple_of=8, add_mask=True),
    "pad after a filter": lambda ds: ds.filter(is_kept).pad_batch(3, length={"tokens": 16}),
    "buckets": lambda ds: ds.bucket_by_length([4, 8, 16], batch_sizes=[5, 3, 2], length="tokens"),
    "buckets after a filter": lambda ds: ds.filter(is_kept).bucket_by_length(
        [3, 16], batch_sizes=7, length="tokens"
    ),
    "tokens": lambda ds: ds.bucket_by_length(
        [5, 16], max_tokens=32, length="tokens", remainder="pad", pad=PadBatch(add_lengths=True)
    ),
    "dropped": lambda ds: ds.bucket_by_length(
        [5, 10], batch_sizes=4, length="tokens", remainder="drop", drop_longer=True
    ),
    "unbatch": lambda ds: ds.pad_batch(4, length={"tokens": 16}).unbatch(),
    "overlapping windows": lambda ds: ds.map(lambda x: x["id"]).window(5, stride=2),
    "windows with gaps": lambda ds: ds.map(lambda x: x["id"]).window(2, stride=5),
    "windows": lambda ds: ds.map(lambda x: x["id"]).window(7, stride=3, drop_remainder=True),
    "scan": lambda ds: ds.scan(total, {"sum": 0, "last": np.zeros(1)}),
    "numbered": lambda ds: ds.filter(is_kept).enumerate(start=3),
    "skip": lambda ds: ds.filter(is_kept).skip(10),
    "take": lambda ds: ds.filter(is_kept).take(10),
    "repeat": lambda ds: ds.take(9).repeat(3),
    "shuffle": lambda ds: ds.shuffle(8, seed=3),
    "sum": lambda ds: ds.take(9) + ds.skip(50) + ds.filter(is_kept),
    "buckets of windows of a scan": lambda ds: (
        ds.scan(total, {"sum": 0, "last": np.zeros(1)})
        .shuffle(6, seed=1)
        .bucket_by_length([8, 16], batch_sizes=[3, 2], length="tokens")
        .window(2, stride=1, batch_fn=list)
        .enumerate()
    ),
}
EACH = pytest.mark.parametrize("name", STEPS)


def run(dataset: Any, policy: Any) -> tuple[list[Any], list[str]]:
    """Return all elements, and the state before each and at the end."""
    with closing(iterate(dataset, policy)) as iterator:
        states = [json.dumps(iterator.get_state())]
        elements: list[Any] = []
        for element in iterator:
            elements.append(exact(element))
            states.append(json.dumps(iterator.get_state()))
        return elements, states


def rest(dataset: Any, state: str, policy: Any) -> list[Any]:
    with closing(iterate(dataset, policy)) as iterator:
        iterator.set_state(json.loads(state))
        assert json.dumps(iterator.get_state()) == state
        return list(map(exact, iterator))


@EACH
def test_threads_change_nothing_and_states_restore_at_any_point(name: str):
    built = {way: STEPS[name](documents(read=read)) for way, (read, _) in READS.items()}
    elements, states = run(built["inline"], DEFAULT_POLICY)

    assert len(elements) > 2
    for way, (_, policy) in READS.items():
        assert run(built[way], policy) == (elements, states)
        for position, state in enumerate(states):
            assert rest(built[way], state, policy) == elements[position:]


@EACH
def test_workers_change_nothing_and_states_restore_with_them_and_without(name: str):
    inline = STEPS[name](documents(read=ReadOptions(num_threads=0)))
    workers = STEPS[name](documents()).mp_prefetch(MultiprocessingOptions(num_workers=2))
    elements, states = run(inline, DEFAULT_POLICY)

    assert run(workers, DEFAULT_POLICY) == (elements, states)
    middle = len(elements) // 2
    assert rest(workers, states[middle], DEFAULT_POLICY) == elements[middle:]


def ids(element: Any) -> list[int]:
    """Return the records that an element is made of."""
    if isinstance(element, tuple):
        return ids(element[1])
    if not isinstance(element, dict):
        return [int(number) for number in np.ravel(element)]
    if "tokens_length" in element:  # rows without tokens are padding
        return [int(number) for number in element["id"][element["tokens_length"] > 0]]
    return [int(number) for number in np.ravel(element["id"])]


ELASTIC = ["pad", "buckets", "buckets after a filter", "tokens", "scan", "shuffle", "numbered"]


@given(
    name=st.sampled_from(ELASTIC),
    counts=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    data=st.data(),
)
@CHEAP
def test_each_record_comes_once_when_the_number_of_shards_changes(
    name: str, counts: list[int], data: st.DataObject
):
    kept = [n for n in range(COUNT) if "filter" not in name or is_kept(document(n))]
    if name == "numbered":
        kept = [n for n in range(COUNT) if is_kept(document(n))]
    seen: list[int] = []
    states: Any = None
    for number, count in enumerate(counts):
        iterators = [iter(STEPS[name](documents(shard, count))) for shard in range(count)]
        for iterator in iterators:
            if states is not None:
                iterator.set_state(states)
        is_last = number + 1 == len(counts)
        for iterator in iterators:
            most = COUNT if is_last else data.draw(st.integers(0, 4))
            for _ in range(most):
                element = next(iterator, None)
                if element is None:
                    break
                seen += ids(element)
        states = gather_states([iterator.get_state() for iterator in iterators])

    assert sorted(seen) == kept
