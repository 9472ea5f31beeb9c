"""Records that are excluded never come again, and the others keep their order."""

import json
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import (
    Batch,
    DataLoader,
    Filter,
    IndexSampler,
    MapDataset,
    ReadOptions,
    ShardOptions,
    SkipErrors,
)
from gristmill.checkpoint import gather_states
from gristmill.errors import PlanError, PlanTypeError, StateError
from tests.properties.pipelines import AHEAD, INLINE, Jitter

LAW = settings(deadline=None, print_blob=True, max_examples=100)


class NotThird(Filter):
    def filter(self, element: tuple[int, int]) -> bool:
        return element[0] % 3 != 0


def pair(x: int) -> tuple[int, int]:
    return x, 0


def loader_of(
    steps: list[Any],
    *,
    size: int = 40,
    shard: ShardOptions | None = None,
    read: ReadOptions = INLINE,
    on_error: Any = "raise",
) -> DataLoader:
    return DataLoader(
        data_source=range(size),
        sampler=IndexSampler(size, shuffle=True, num_epochs=2, seed=3),
        operations=[pair, *steps],
        shard_options=shard,
        read_options=read,
        on_error=on_error,
    )


def rows_of(batches: Iterable[Any]) -> list[tuple[int, ...]]:
    return [
        row for batch in batches for row in zip(*(leaf.tolist() for leaf in batch), strict=True)
    ]


@given(
    taken=st.integers(0, 30),
    excluded=st.sets(st.integers(0, 39), max_size=40),
    steps=st.sampled_from([[], [NotThird()], [Jitter(2)], [Jitter(1), NotThird()]]),
    size=st.integers(1, 5),
    read=st.sampled_from([INLINE, AHEAD]),
)
@LAW
def test_the_past_stays_and_the_rest_keeps_its_order(
    taken: int, excluded: set[int], steps: list[Any], size: int, read: ReadOptions
):
    plain = list(loader_of(steps))
    origins = iter(loader_of(steps))
    plain_indices = [origins.provenance().records[0].index for _ in origins]
    iterator = iter(loader_of([*steps, Batch(size)], read=read))
    past = rows_of(islice(iterator, taken // size))

    iterator.exclude(records=excluded)
    state = iterator.get_state()
    rest = rows_of(iterator)
    resumed = iter(loader_of([*steps, Batch(size)]))
    resumed.set_state(state)
    again = rows_of(resumed)

    kept = [
        row
        for row, index in list(zip(plain, plain_indices, strict=True))[len(past) :]
        if index not in excluded
    ]
    assert past == plain[: len(past)]
    assert rest == kept
    assert again == kept


@pytest.mark.parametrize("new_count", [1, 2, 3, 5])
def test_another_number_of_shards_leaves_the_same_records_out(new_count: int):
    excluded = {0, 7, 13, 39}
    old = [iter(loader_of([], shard=ShardOptions(index, 3))) for index in range(3)]
    past = [next(iterator)[0] for iterator in old for _ in range(5)]
    for iterator in old:
        iterator.exclude(records=excluded)
    state = gather_states([iterator.get_state() for iterator in old])

    rest: list[int] = []
    for index in range(new_count):
        resumed = iter(loader_of([], shard=ShardOptions(index, new_count)))
        resumed.set_state(state)
        rest += [element[0] for element in resumed]

    full = [element[0] for element in loader_of([])]
    for record in past:
        full.remove(record)
    assert sorted(rest) == sorted(record for record in full if record not in excluded)


def test_shards_that_exclude_different_records_are_not_one_run():
    iterators = [iter(loader_of([], shard=ShardOptions(index, 2))) for index in range(2)]
    iterators[0].exclude(records=[3])

    with pytest.raises(StateError, match="exclude different records"):
        gather_states([iterator.get_state() for iterator in iterators])


def test_records_that_raise_are_still_skipped():
    def picky(element: tuple[int, int]) -> tuple[int, int]:
        if element[0] % 5 == 0:
            raise ValueError(element)
        return element

    iterator = iter(loader_of([picky], on_error=SkipErrors(100)))
    iterator.exclude(records=[1, 2, 10])

    records = [element[0] for element in iterator]

    assert set(records) == {x for x in range(40) if x % 5 and x not in (1, 2, 10)}
    assert {skip.record for skip in iterator.skipped} == set(range(0, 40, 5)) - {10}


def test_an_earlier_state_brings_the_records_back():
    iterator = iter(loader_of([]))
    before = iterator.get_state()
    expected = list(iterator)
    iterator.set_state(before)
    iterator.exclude(records=range(20))
    assert len(list(iterator)) == 40

    iterator.set_state(before)

    assert list(iterator) == expected
    assert "excluded" not in json.loads(before)


def test_all_records_of_a_stream_without_end_cannot_be_excluded():
    endless = DataLoader(data_source=range(4), sampler=IndexSampler(4))
    repeated = MapDataset.range(4).repeat().to_iter_dataset()
    for iterator in (iter(endless), iter(repeated), iter(repeated.shuffle(3, seed=1))):
        iterator.exclude(records=[0, 1, 2])
        with pytest.raises(PlanError, match=r"All records of .* would be excluded"):
            iterator.exclude(records=range(4))
        assert next(iterator) == 3


def test_excluding_twice_leaves_both_out():
    iterator = iter(loader_of([]))
    iterator.exclude(records=[1])
    iterator.exclude(records=[2, 2])

    assert {element[0] for element in iterator} == set(range(40)) - {1, 2}


@pytest.mark.parametrize("record", [-1, 40])
def test_a_record_that_is_not_in_the_data_changes_nothing(record: int):
    iterator = iter(loader_of([]))

    with pytest.raises((IndexError, PlanError)):
        iterator.exclude(records=[record])

    assert list(iterator) == list(loader_of([]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"records": 5}, "`records` must be a list"),
        ({"records": None}, "`records` must be a list"),
        ({"records": "12"}, "`records` must be a list"),
        ({"records": [(0,)]}, "pairs of a source's number and an index"),
        ({"records": [(0, 1, 2)]}, "pairs of a source's number and an index"),
        ({"records": ["a"]}, "`records` must be an integer"),
        ({"steps": 5}, "`steps` must be a list"),
    ],
)
def test_what_is_no_list_of_records_is_an_error(arguments: dict[str, Any], message: str):
    with pytest.raises(PlanTypeError, match=message):
        iter(loader_of([])).exclude(**arguments)


def test_records_of_a_users_own_sampler_cannot_be_excluded():
    class Own:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return range(4)[index]

    iterator = iter(DataLoader(data_source=range(4), sampler=Own()))

    with pytest.raises(PlanError, match="Records cannot be excluded from"):
        iterator.exclude(records=[1])


def test_a_million_records_can_be_excluded():
    size = 2_000_000
    sampler = IndexSampler(size, shuffle=True, num_epochs=1, seed=3)
    iterator = iter(DataLoader(data_source=range(size), sampler=sampler, operations=[Batch(1000)]))
    iterator.exclude(records=range(0, size, 2))

    assert all((batch % 2 == 1).all() for batch in islice(iterator, 5))
    assert len(iterator.get_state()) < 10 * size / 2


@pytest.mark.parametrize("steps", [[], [NotThird()], [Jitter(2)]])
def test_the_records_of_steps_never_come_again(steps: list[Any]):
    loader = loader_of([*steps, Batch(3)])
    suspects = {row[0] for number in (2, 5) for row in _records_at(loader, number)}

    iterator = iter(loader)
    past = list(islice(iterator, 2))
    iterator.exclude(steps=[5, 2])

    direct = iter(loader)
    for _ in past:
        next(direct)
    direct.exclude(records=suspects)
    assert suspects
    assert iterator.get_state() == direct.get_state()
    assert rows_of(iterator) == rows_of(direct)


def _records_at(loader: DataLoader, step: int) -> list[tuple[int]]:
    with loader.from_step(step) as iterator:
        next(iterator)
        return [(origin.index,) for origin in iterator.provenance().records]


@pytest.mark.parametrize("steps", [[], [NotThird()]])
def test_the_records_of_a_step_past_the_end_cannot_be_excluded(steps: list[Any]):
    iterator = iter(loader_of([*steps, Batch(3)]))

    with pytest.raises(IndexError, match="There is no element at step 99"):
        iterator.exclude(steps=[99])
