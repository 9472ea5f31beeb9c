"""A task is done when it has a reply or an error, by itself or through its subtasks."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from gristmill._engine.executors.pools.task import Task

MakeReply = Callable[..., Any]


@pytest.mark.parametrize(
    ("position", "ranges"),
    [
        (2, [range(2), range(2, 3), range(3, 6)]),
        (0, [range(1), range(1, 6)]),
        (5, [range(5), range(5, 6)]),
    ],
)
def test_split_isolates_a_position_and_keeps_the_order(position: int, ranges: list[range]):
    task = Task(0, range(6), job=3, tries=1)

    single = task.split(position, count(1))

    assert [subtask.positions for subtask in task.subtasks] == ranges
    assert single.positions == range(position, position + 1)
    assert [subtask.tries for subtask in task.subtasks] == [
        int(subtask is single) for subtask in task.subtasks
    ]
    assert {subtask.job for subtask in task.subtasks} == {3}
    assert len({subtask.number for subtask in task.subtasks}) == len(ranges)


def test_a_split_task_is_done_when_all_subtasks_are(make_reply: MakeReply):
    task = Task(0, range(6))
    task.split(2, count(1))
    for subtask in reversed(task.subtasks):
        assert not task.is_done
        subtask.reply = make_reply(subtask.positions, num_bytes=10)

    assert task.is_done
    assert task.num_bytes == 30
    assert task.result().block.rows() == list(range(6))


def test_a_split_task_ends_with_the_first_error_and_needs_nothing_after_it(make_reply: MakeReply):
    task = Task(0, range(6))
    single = task.split(2, count(1))
    single.error = ValueError("two")
    assert not task.is_done

    task.subtasks[0].reply = make_reply(range(2))
    result = task.result()

    assert task.is_done
    assert result.block.rows() == [0, 1]
    assert result.error is single.error


def test_a_task_is_open_until_it_is_done_split_or_cancelled(make_reply: MakeReply):
    done, split, cancelled = (Task(number, range(6)) for number in range(3))
    assert done.is_open

    done.reply = make_reply(range(6))
    split.split(2, count(3))
    cancelled.cancel()

    assert [task.is_open for task in (done, split, cancelled)] == [False, False, False]


def test_cancelling_a_task_cancels_its_subtasks():
    task = Task(0, range(6))
    task.split(2, count(1))

    task.cancel()

    assert not any(subtask.is_open for subtask in task.subtasks)
