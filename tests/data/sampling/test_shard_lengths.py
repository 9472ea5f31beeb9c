import pytest

from gristmill import ShardOptions
from gristmill._data.sampling.shard_lengths import ENDLESS, contiguous_range, strided_length

SIZES = [(total, shards) for total in (0, 1, 5, 10, 12) for shards in (1, 2, 3, 7, 13)]


@pytest.mark.parametrize(("total", "shards"), SIZES)
def test_contiguous_ranges_follow_each_other_over_all_records(total: int, shards: int):
    pieces = [contiguous_range(total, ShardOptions(s, shards)) for s in range(shards)]
    assert [record for piece in pieces for record in piece] == list(range(total))
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 1


@pytest.mark.parametrize(("total", "shards"), SIZES)
def test_contiguous_ranges_without_the_remainder_are_equally_long(total: int, shards: int):
    pieces = [contiguous_range(total, ShardOptions(s, shards, True)) for s in range(shards)]
    kept = total // shards * shards
    assert [record for piece in pieces for record in piece] == list(range(kept))
    assert {len(piece) for piece in pieces} == {total // shards}


@pytest.mark.parametrize(("total", "shards"), SIZES)
def test_strided_lengths_are_the_lengths_of_strides(total: int, shards: int):
    lengths = [strided_length(total, ShardOptions(s, shards)) for s in range(shards)]
    assert lengths == [len(range(total)[s::shards]) for s in range(shards)]


@pytest.mark.parametrize(("total", "shards"), SIZES)
def test_strided_lengths_without_the_remainder_are_equal(total: int, shards: int):
    lengths = {strided_length(total, ShardOptions(s, shards, True)) for s in range(shards)}
    assert lengths == {total // shards}


def test_a_shard_of_an_endless_stream_is_endless():
    assert strided_length(ENDLESS, ShardOptions(1, 3)) == ENDLESS
