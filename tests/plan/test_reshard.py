import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill import IterDataset, MapDataset, ShardOptions, from_generator
from gristmill._plan.nodes.base import Node
from gristmill._plan.reshard import reshard, reshard_plan
from gristmill.errors import StateError
from tests.plan.streams import elements_of, plan_of, take


def shards_of(count: int) -> list[Node]:
    return [plan_of(MapDataset.range(20).shuffle(seed=1)[i::count]) for i in range(count)]


def unchanged(plan: Node, run: int, shard: int) -> Node:
    return plan


@settings(deadline=None)  # on a busy machine too
@given(taken=st.lists(st.integers(0, 5), min_size=1, max_size=4), num_new=st.integers(1, 5))
def test_new_shards_read_what_the_earlier_ones_left(taken: list[int], num_new: int):
    shards = shards_of(len(taken))
    first = [take(plan, count) for plan, count in zip(shards, taken, strict=True)]
    cursors = [cursor for _, cursor in first]

    rest = [elements_of(reshard(shards, cursors, ShardOptions(i, num_new))) for i in range(num_new)]

    seen = [x for elements, _ in first for x in elements] + [x for shard in rest for x in shard]
    assert sorted(seen) == list(range(20))
    assert max(map(len, rest)) - min(map(len, rest)) <= 1


def test_a_shard_that_has_not_started_has_no_cursor():
    shards = shards_of(2)
    elements, cursor = take(shards[0], 10)

    rest = elements_of(reshard(shards, [cursor, None], ShardOptions(0, 1)))

    assert rest == elements_of(shards[1])
    assert sorted([*elements, *rest]) == list(range(20))


def test_runs_on_several_numbers_of_shards_follow_each_other():
    plan = shards_of(2)[0]
    elements: list[int] = []
    history: list[list[tuple[int, ...]]] = []
    for count in (2, 3, 1):
        cursors: list[tuple[int, ...]] = []
        for index in range(count):
            shard = ShardOptions(index, count)
            some, cursor = take(
                reshard_plan(plan, history, shard, is_contiguous=False, change=unchanged), 3
            )
            elements += some
            cursors.append(cursor)
        history.append(cursors)

    rest = elements_of(
        reshard_plan(plan, history, ShardOptions(0, 1), is_contiguous=False, change=unchanged)
    )

    assert sorted([*elements, *rest]) == list(range(20))


@pytest.mark.parametrize("position", [-1, "3", 1.5])
def test_a_position_that_no_shard_can_have_is_a_corrupt_state(position: object):
    cursors: list[tuple[object]] = [(position,), (0,)]

    with pytest.raises(StateError, match=r"^The state is corrupt: its shards are at \["):
        reshard(shards_of(2), cursors, ShardOptions(0, 1))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("num_new", [1, 2])
def test_a_stream_that_nothing_can_divide_continues_only_on_one_shard(num_new: int):
    streams = [MapDataset.range(9)[0::1].to_iter_dataset(), from_generator(lambda: range(100, 109))]
    plan = IterDataset.mix(streams)._plan_node
    elements, cursor = take(plan, 6)

    def rest() -> list[int]:
        shards = [reshard([plan], [cursor], ShardOptions(i, num_new)) for i in range(num_new)]
        return [x for shard in shards for x in elements_of(shard)]

    if num_new == 1:
        assert sorted([*elements, *rest()]) == [*range(9), *range(100, 109)]
    else:
        with pytest.raises(StateError, match=r"from_generator.* cannot be dist.*on 1 shard\.$"):
            rest()
