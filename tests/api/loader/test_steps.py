"""Steps of a loader: what the property tests do not cover."""

import json
from itertools import islice
from typing import Any

import pytest

from gristmill import (
    Batch,
    DataLoader,
    Filter,
    IndexSampler,
    ReadOptions,
    ShardOptions,
    SkipErrors,
    load,
)
from gristmill.errors import PlanError, PlanTypeError
from tests.policies import LAZY, fixed_blocks, with_policy


class Odd(Filter):
    def filter(self, element: int) -> bool:
        return element % 2 == 1


class Counting:
    def __init__(self, size: int) -> None:
        self.size, self.num_read = size, 0

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.num_read += 1
        return index


def filtered(source: Any, **options: Any) -> DataLoader:
    """Return a loader that reads as many records ahead however long they take."""
    loader = DataLoader(
        data_source=source,
        sampler=IndexSampler(len(source), num_epochs=1, seed=0),
        operations=[Odd(), Batch(2)],
        read_options=ReadOptions(num_threads=0),
        **options,
    )
    return with_policy(loader, fixed_blocks(64, LAZY))


def test_a_far_step_of_a_shuffled_loader_reads_one_batch():
    source = Counting(10**6)
    loader = load(source, shuffle=True, seed=0, batch_size=4)

    batch = loader.at(10**7)

    assert batch.tolist() == [loader.at(10**7).tolist()[row] for row in range(4)]
    assert source.num_read < 100


@pytest.mark.parametrize("shards", [1, 3, 64])
def test_the_steps_of_other_shards_make_up_the_global_batch(shards: int):
    loader = load(range(1000), shuffle=True, seed=0, num_epochs=1, batch_size=2)
    own = [
        load(
            range(1000),
            shuffle=True,
            seed=0,
            num_epochs=1,
            batch_size=2,
            shard_options=ShardOptions(shard, shards),
        )
        for shard in range(shards)
    ]

    for shard in range(shards):
        expected = list(own[shard])[5].tolist()
        assert loader.at(5, shard=(shard, shards)).tolist() == expected
        assert own[0].at(5, shard=ShardOptions(shard, shards)).tolist() == expected


def test_a_shard_must_be_two_numbers():
    with pytest.raises(PlanTypeError, match="`shard` must be a `ShardOptions`"):
        load(range(9)).at(0, shard=3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(PlanError):
        load(range(9)).at(0, shard=(3, 2))


def test_a_negative_step_is_an_error():
    with pytest.raises(PlanError, match="`step`"):
        load(range(9)).at(-1)


def test_bookmarks_make_a_second_call_start_further_on():
    source = Counting(40_000)
    loader = filtered(source)
    expected = [2 * (2 * 9_000) + 1, 2 * (2 * 9_000) + 3]

    assert loader.at(9_000).tolist() == expected
    first = source.num_read
    assert loader.at(9_000).tolist() == expected

    assert first >= 36_000
    assert source.num_read - first < first / 4


@pytest.mark.parametrize("num_bookmarks", [64, 5, 1, 0])
def test_no_more_bookmarks_are_kept_than_stated(num_bookmarks: int):
    loader = filtered(Counting(40_000), num_bookmarks=num_bookmarks)

    expected = [batch.tolist() for batch in loader][9_000]

    assert min(1, num_bookmarks) <= len(loader._bookmarks) <= num_bookmarks
    assert loader.at(9_000).tolist() == expected


def test_an_iteration_leaves_bookmarks_behind():
    source = Counting(40_000)
    loader = filtered(source)
    iterator = iter(loader)
    expected = [next(iterator).tolist() for _ in range(9_000)]
    before = source.num_read

    assert loader.at(8_500).tolist() == expected[8_500]
    assert source.num_read - before < 4_000


def test_restored_iterators_do_not_mislead_bookmarks():
    loader = filtered(Counting(40_000))
    with loader.from_position(10_001) as moved:
        moved.set_state(moved.get_state())
        for _ in islice(moved, 2_000):
            pass
    excluding = iter(loader)
    excluding.exclude(records=range(1, 20_000))
    for _ in islice(excluding, 2_000):
        pass

    assert loader.at(1_500).tolist() == [2 * 3_000 + 1, 2 * 3_000 + 3]


def test_bookmarks_of_other_shards_are_kept_apart():
    source = Counting(40_000)
    loader = filtered(source, shard_options=ShardOptions(0, 1))
    whole = list(filtered(Counting(40_000), shard_options=ShardOptions(1, 2)))

    assert loader.at(4_000, shard=(1, 2)).tolist() == whole[4_000].tolist()
    before = source.num_read
    assert loader.at(4_000, shard=(1, 2)).tolist() == whole[4_000].tolist()

    assert source.num_read - before < 8_000
    assert loader.at(4_000).tolist() == [16_001, 16_003]


def test_a_sparse_stream_that_ends_before_the_step_is_an_error():
    with pytest.raises(IndexError, match="no element at step 900: the stream has 5 elements"):
        filtered(range(20)).at(900)
    with pytest.raises(IndexError, match="no element at step 5: the stream has 5 elements"):
        filtered(range(20)).at(5)


def test_steps_with_skipped_records_are_counted():
    def picky(x: int) -> int:
        if x % 3 == 0:
            raise ValueError(x)
        return x

    loader = DataLoader(
        data_source=range(30),
        sampler=IndexSampler(30, num_epochs=1, seed=0),
        operations=[picky, Batch(4)],
        on_error=SkipErrors(20),
    )

    for step, batch in enumerate(loader):
        assert loader.at(step).tolist() == batch.tolist()
    steps = {record: step for step, batch in enumerate(loader) for record in batch.tolist()}
    for record in range(30):
        assert list(loader.steps_of(record)) == ([steps[record]] if record in steps else [])


def test_a_state_made_by_hand_is_that_of_the_iterator():
    loader = load(range(100), shuffle=True, seed=0, num_epochs=2, batch_size=8)
    iterator = iter(loader)
    for _ in range(9):
        next(iterator)

    made = loader.from_step(9).get_state()

    assert json.loads(made) == json.loads(iterator.get_state())


def test_workers_are_not_started_for_one_element():
    with load(range(100), num_epochs=1, batch_size=8, worker_count=2) as loader:
        assert loader.at(3).tolist() == list(range(24, 32))
        assert loader.stats().num_workers == 0


def test_the_permutation_is_inverted_for_large_epochs():
    size = 2**33 + 5
    loader = load(range(size), shuffle=True, seed=7, batch_size=1)

    for step in (0, 12_345, size - 1, size + 3):
        record = int(loader.at(step)[0])
        epoch, within = divmod(step, size)
        assert list(loader.epoch(epoch).steps_of(record)) == [within]


@pytest.mark.parametrize("is_in_sampler", [True, False])
def test_another_shard_is_cut_where_the_shards_of_the_loader_are(is_in_sampler: bool):
    def loader(shard: ShardOptions) -> DataLoader:
        in_sampler = shard if is_in_sampler else ShardOptions(0, 1)
        sampler = IndexSampler(100, in_sampler, shuffle=True, num_epochs=1, seed=0)
        options = None if is_in_sampler else shard
        return DataLoader(data_source=range(100), sampler=sampler, shard_options=options)

    for count in (1, 4):
        other = loader(ShardOptions(0, count)).map(lambda x: x)
        for index in range(7):
            expected = list(loader(ShardOptions(index, 7)))
            assert other.at(3, shard=(index, 7)) == expected[3]
