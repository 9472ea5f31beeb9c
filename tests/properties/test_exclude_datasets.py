"""Records that are excluded from a dataset never come again, whatever holds elements above it."""

import json
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import (
    IterDataset,
    MapDataset,
    MultiprocessingOptions,
    ShardOptions,
    experimental,
    feed,
    load,
)
from gristmill.checkpoint import gather_states
from gristmill.errors import PlanError, StateError
from gristmill.transforms import BucketByLength
from tests.properties.dataset_plans import (
    BELOW,
    SIZES,
    dataset,
    documents_in,
    plans,
    total,
)

LAW = settings(deadline=None, print_blob=True, max_examples=60)


def exclude(iterator: Any, numbers: Iterable[int]) -> str | None:
    """Exclude some documents, and return the message of the error if that fails."""
    try:
        iterator.exclude(records=as_pairs(numbers))
    except PlanError as error:
        return str(error)
    return None


def as_pairs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    return [divmod(number - 1, 100) for number in numbers]


ALL = [100 * number + index + 1 for number in range(2) for index in range(SIZES[number])]


@given(
    plan=plans,
    taken=st.integers(0, 12),
    excluded=st.sets(st.sampled_from(ALL), min_size=1, max_size=8),
    later=st.integers(0, 3),
    more=st.sets(st.sampled_from(ALL), max_size=3),
)
@LAW
def test_excluded_records_never_come_again_and_no_other_is_lost(
    plan: tuple[str, list[str], str], taken: int, excluded: set[int], later: int, more: set[int]
):
    made = dataset(*plan)
    expected = list(made)
    iterator = iter(made)
    past = list(islice(iterator, taken))
    before = iterator.get_state()

    problem = exclude(iterator, excluded)
    if problem is not None:
        assert "cannot be excluded here" in problem
        assert "a step holds it" in problem
        assert excluded & total(expected[taken:]).keys()
        assert iterator.get_state() == before
        return
    past += islice(iterator, later)
    if exclude(iterator, more) is not None:
        more = set()
    state = json.loads(json.dumps(iterator.get_state()))
    rest = list(iterator)
    resumed = iter(made)
    resumed.set_state(state)

    np.testing.assert_equal(past[:taken], expected[:taken])
    np.testing.assert_equal(list(resumed), rest)
    assert not total(past[taken:]).keys() & excluded
    assert not total(rest).keys() & (excluded | more)
    missing = total(expected) - total([*past, *rest])
    assert total([*past, *rest]) <= total(expected)
    assert missing.keys() <= excluded | more


@given(
    below=st.sampled_from(sorted(BELOW)),
    between=st.lists(st.sampled_from(["nothing", "filter", "window", "map"]), max_size=2),
    above=st.sampled_from(["single", "first fit", "concatenated", "buckets", "padded"]),
    taken=st.lists(st.integers(0, 4), min_size=3, max_size=3),
    excluded=st.sets(st.sampled_from(ALL), min_size=1, max_size=6),
    old=st.integers(1, 3),
    counts=st.lists(st.integers(1, 3), min_size=1, max_size=2),
)
@LAW
def test_other_numbers_of_shards_leave_the_same_records_out(
    below: str,
    between: list[str],
    above: str,
    taken: list[int],
    excluded: set[int],
    old: int,
    counts: list[int],
):
    iterators = [iter(dataset(below, between, above, (index, old))) for index in range(old)]
    everything = total(
        element for index in range(old) for element in dataset(below, between, above, (index, old))
    )
    came = total(
        element
        for one, count in zip(iterators, taken, strict=False)
        for element in islice(one, count)
    )
    if any(exclude(iterator, excluded) is not None for iterator in iterators):
        return

    rest: Counter[int] = Counter()
    for number, count in enumerate(counts):
        state = gather_states([iterator.get_state() for iterator in iterators])
        iterators = [iter(dataset(below, between, above, (index, count))) for index in range(count)]
        for iterator in iterators:
            iterator.set_state(json.loads(json.dumps(state)))
            is_last = number == len(counts) - 1
            rest += total(islice(iterator, None if is_last else 1))

    assert not rest.keys() & excluded
    assert (everything - came - rest).keys() <= excluded
    assert rest <= everything - came


def test_the_origins_of_an_element_can_be_excluded():
    made = dataset("two sources", ["window"], "first fit")
    with iter(made) as spike:
        *_, element = islice(spike, 6)
        suspects = spike.provenance().records

    iterator = iter(made)
    next(iterator)
    iterator.exclude(records=suspects)

    assert not total(iterator).keys() & documents_in(element).keys()


def test_all_records_of_a_step_can_be_excluded():
    made = dataset("two sources", [], "padded")
    by_origin, by_step = iter(made), iter(made)
    with iter(made) as iterator:
        *_, _ = islice(iterator, 4)
        by_origin.exclude(records=iterator.provenance().records)

    by_step.exclude(steps=[3])

    np.testing.assert_equal(list(by_step), list(by_origin))


def test_workers_and_feeds_leave_the_records_out():
    made = dataset("two sources", ["filter"], "first fit")
    expected = iter(made)
    next(expected)
    expected.exclude(records=[(0, 3), (1, 2)])
    wanted = list(expected)

    with iter(made.mp_prefetch(MultiprocessingOptions(num_workers=1))) as workers:
        next(workers)
        workers.exclude(records=[(0, 3), (1, 2)])
        np.testing.assert_equal(list(workers), wanted)
    with feed(made.map(lambda row: {"tokens": row["tokens"].astype(np.int32)})) as batches:
        next(batches)
        batches.exclude(records=[(0, 3), (1, 2)])
        found = [{"tokens": np.asarray(batch["tokens"])} for batch in batches]
    assert total(found) == total(wanted)


def test_a_record_below_a_cache_on_disk_stays_in_it(tmp_path: Path):
    made = MapDataset.range(10).map(lambda x: x + 1).cache(tmp_path)
    assert len(list(made)) == 10

    iterator = iter(made.to_iter_dataset())
    iterator.exclude(records=[4])

    assert list(iterator) == [1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert list(made) == list(range(1, 11))


def test_records_that_are_excluded_are_not_read():
    class Picky(list[int]):
        def __getitem__(self, index: Any) -> Any:
            if index == 4:
                raise OSError(index)
            return super().__getitem__(index)

    iterator = iter(MapDataset.source(Picky(range(8))).shuffle(seed=1).to_iter_dataset())
    iterator.exclude(records=[4])

    assert sorted(iterator) == [0, 1, 2, 3, 5, 6, 7]


def test_packing_in_a_loader_leaves_records_out():
    documents = [{"tokens": np.full(1 + i % 4, i + 1)} for i in range(30)]
    buckets = BucketByLength([2, 4], batch_sizes=2, length="tokens")
    iterator = iter(load(documents, shuffle=True, seed=1, num_epochs=2).map(buckets))
    for _ in range(5):
        next(iterator)
    held = set(range(30))
    for record in range(30):
        try:
            iterator.exclude(records=[record])
        except PlanError:
            continue
        held.discard(record)
        if len(held) < 25:
            break

    state = iterator.get_state()
    rest = total(iterator)
    iterator.set_state(state)
    assert {number - 1 for number in rest} <= held
    assert total(iterator) == rest


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: MapDataset.range(9).batch(3), "below Batch.*Call `to_iter_dataset"),
        (
            lambda: experimental.ZipMapDataset([MapDataset.range(9)]),
            r"fixed indices",
        ),
        (
            lambda: experimental.RepeatIterDataset(MapDataset.range(9).to_iter_dataset()),
            "cannot be excluded below Repeat",
        ),
        (
            lambda: experimental.InterleaveIterDataset(
                [MapDataset.range(9).to_iter_dataset()], cycle_length=1
            ),
            "cannot be excluded below Interleave",
        ),
        (
            lambda: MapDataset.range(9).filter(lambda x: x > 2).map(str)[1:].cache(),
            "Cache the records themselves",
        ),
        (
            lambda: IterDataset.mix(
                [MapDataset.range(9).to_iter_dataset(), MapDataset.range(3).to_iter_dataset()],
                [1, 1],
            ),
            "The pipeline has 2 sources",
        ),
    ],
)
def test_what_cannot_leave_records_out_is_explained(make: Any, message: str):
    iterator = iter(make())
    before = iterator.get_state()

    with pytest.raises(PlanError, match=message):
        iterator.exclude(records=[1])
    assert iterator.get_state() == before


def test_an_iterator_of_all_shards_at_once_keeps_all_records():
    iterator = iter(experimental.ElasticIterator(MapDataset.range(10), 2, ShardOptions(0, 1)))

    with pytest.raises(PlanError, match="whose states are of all shards"):
        iterator.exclude(records=[1])


@pytest.mark.parametrize("record", [(0, 20), (0, -1), (2, 0), (-1, 0)])
def test_a_record_that_is_not_in_the_data_is_an_error(record: tuple[int, int]):
    with pytest.raises((IndexError, PlanError)):
        iter(dataset("two sources", [], "single")).exclude(records=[record])


@pytest.mark.parametrize(
    "change",
    [
        {"records": {"0": [5, 3]}},
        {"records": {"x": [5]}},
        {"records": {"0": [500]}},
        {"records": {}},
        {"cursors": [[[[10**9], 0, 6]]]},
        {"cursors": []},
        {"cursors": 3},
        {"reshards": -1},
        {"reshards": "a"},
    ],
)
def test_exclusions_that_do_not_fit_are_refused(change: dict[str, Any]):
    from gristmill._checkpoint.state import _checksum  # noqa: PLC0415

    made = dataset("two sources", [], "first fit")
    iterator = iter(made)
    next(iterator)
    iterator.exclude(records=[(1, 5)])
    state = json.loads(json.dumps(iterator.get_state()))
    state["exclusions"][0] |= change
    del state["checksum"]
    state["checksum"] = _checksum(state)

    with pytest.raises(StateError):
        iter(made).set_state(state)
