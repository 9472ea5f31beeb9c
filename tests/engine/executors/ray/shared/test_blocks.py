"""Which blocks of a shared pool are kept: those that a reader needs, the next ones first."""

from hypothesis import given
from hypothesis import strategies as st

from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.ray.shared.blocks import BlockKey, SharedBlock, SharedBlocks


class Reply:
    """A reply of some bytes."""

    def __init__(self, num_bytes: int) -> None:
        self.num_bytes = num_bytes

    def decode(self) -> None:
        raise AssertionError


def key(number: int) -> BlockKey:
    return BlockKey(0, 10 * number, 10 * number + 10)


def read(blocks: SharedBlocks, reader: str, number: int, num_bytes: int = 100) -> SharedBlock:
    """Let a reader read a block, which is computed if it has to be."""
    block = blocks.request(reader, key(number))
    for each in blocks.unsubmitted():
        each.task = Task(0, range(each.key.start, each.key.stop))
    for each in blocks.pending():
        assert each.task is not None
        each.task.reply = Reply(num_bytes)  # pyright: ignore[reportAttributeAccessIssue]
        blocks.complete(each, [each.key])
    assert block.parts == [key(number)]
    return block


def test_a_block_is_computed_once_for_readers_that_follow_each_other():
    blocks = SharedBlocks(10_000)
    for reader in "abc":
        blocks.add_reader(reader)
    for number in range(5):
        for reader in "abc":
            read(blocks, reader, number)

    assert blocks.num_computed == 5


def test_a_reader_that_joins_later_gets_what_is_still_there():
    blocks = SharedBlocks(10_000)
    for number in range(5):
        read(blocks, "a", number)
    for number in range(5):
        read(blocks, "b", number)

    assert blocks.num_computed == 5


def test_blocks_that_no_reader_needs_are_dropped_first():
    blocks = SharedBlocks(500)
    blocks.add_reader("slow")
    blocks.request("slow", key(2))  # which continues with the blocks after it
    for number in range(6):
        read(blocks, "a", number)

    for number in range(3, 6):
        read(blocks, "slow", number)
    assert blocks.num_computed == 6
    read(blocks, "b", 0)
    assert blocks.num_computed == 7


def test_a_reader_that_leaves_needs_nothing():
    blocks = SharedBlocks(500)
    blocks.add_reader("gone")
    for number in range(5):
        read(blocks, "a", number)
    blocks.remove_reader("gone")

    read(blocks, "a", 5)

    read(blocks, "a", 4)
    assert blocks.num_computed == 6


def test_a_slow_reader_holds_nobody_up_and_memory_stays_within_its_limit():
    blocks = SharedBlocks(500)
    blocks.add_reader("slow")
    for number in range(100):
        read(blocks, "fast", number)
        assert blocks.num_bytes <= 500

    # What the slow reader needs next was kept, what it needs last is computed again.
    for number in range(4):
        read(blocks, "slow", number)
    assert blocks.num_computed == 100
    read(blocks, "slow", 50)
    assert blocks.num_computed == 101


def test_a_block_whose_memory_was_lost_is_computed_again():
    blocks = SharedBlocks(500)
    blocks.add_reader("other")
    read(blocks, "a", 0)

    blocks.forget(key(0))
    read(blocks, "a", 0)

    assert blocks.num_computed == 2


@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3, 3)), max_size=60),
    max_bytes=st.integers(1, 1000),
)
def test_every_request_is_answered_with_its_block_within_the_limit(
    steps: list[tuple[str, int]], max_bytes: int
):
    blocks = SharedBlocks(max_bytes)
    places = dict.fromkeys("abc", 0)
    for reader, step in steps:
        places[reader] = max(0, places[reader] + step)
        read(blocks, reader, places[reader])
        assert blocks.num_bytes <= max_bytes
