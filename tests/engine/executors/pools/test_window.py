"""The tasks of a stream are collected in order, within the limits of the look-ahead."""

from collections.abc import Callable
from typing import Any

import pytest

from gristmill._engine.executors.pools.task import Task
from gristmill._engine.executors.pools.window import TaskWindow
from gristmill._engine.tuning.policy import DEFAULT_POLICY
from gristmill.errors import PlanError

MakeReply = Callable[..., Any]


def window_of(num_workers: int = 2, budget: int | None = None) -> TaskWindow:
    return TaskWindow(
        lambda: num_workers,
        max_blocks=2 * num_workers,
        buffer_size=1,
        memory_budget_bytes=budget,
        typical_s=1.0,
        policy=DEFAULT_POLICY,
    )


def fill(window: TaskWindow, first: int = 0, size: int = 10) -> int:
    """Submit tasks as long as there is room; return the position after the last."""
    while window.has_room:
        window.append(Task(first, range(first, first + size)))
        first += size
    return first


def pop(window: TaskWindow, make_reply: MakeReply, **arguments: Any) -> Any:
    """Let the first task get its reply, and collect it."""
    window.tasks[0].reply = make_reply(window.tasks[0].positions, **arguments)
    return window.pop()


def test_results_are_collected_in_the_order_of_submission(make_reply: MakeReply):
    window = window_of()
    fill(window)
    for task in reversed(window.tasks):
        task.reply = make_reply(task.positions)

    rows = [row for _ in range(4) for row in window.pop().block.rows()]

    assert rows == list(range(40))


def test_a_late_task_extends_the_look_ahead_by_one_task_for_each_worker():
    window = window_of()
    position = fill(window)
    assert len(window.tasks) == 4
    assert window.late_timeout_s(elapsed_s=0.5) == DEFAULT_POLICY.late_factor - 0.5

    assert window.extend()
    fill(window, position)

    assert len(window.tasks) == 6


def test_the_look_ahead_is_not_extended_beyond_the_budget(make_reply: MakeReply):
    window = window_of(budget=1000)
    position = fill(window)
    pop(window, make_reply, num_bytes=250)  # 25 for each position

    position = fill(window, position)
    assert len(window.tasks) == 4
    assert not window.extend()


def test_the_look_ahead_shrinks_after_a_while_without_a_late_task(make_reply: MakeReply):
    window = window_of()
    position = fill(window)
    window.extend()
    position = fill(window, position)
    sizes: list[int] = []
    for _ in range(3 * DEFAULT_POLICY.shrink_after_blocks):
        pop(window, make_reply)
        position = fill(window, position)
        sizes.append(len(window.tasks))

    assert (sizes[0], sizes[DEFAULT_POLICY.shrink_after_blocks], sizes[-1]) == (6, 5, 4)
    assert sizes == sorted(sizes, reverse=True)


def test_large_elements_make_blocks_smaller_at_once_and_larger_slowly(make_reply: MakeReply):
    window = window_of(budget=4000)
    fill(window)
    assert window.max_positions is None

    pop(window, make_reply, num_bytes=1000)
    assert window.max_positions == 10
    pop(window, make_reply, num_bytes=2000)
    assert window.max_positions == 5
    pop(window, make_reply, num_bytes=1000)
    assert window.max_positions == 5
    pop(window, make_reply, num_bytes=1000)
    assert window.max_positions == 6


@pytest.mark.parametrize(("num_used", "num_tasks"), [(0, 4), (1, 3), (2, 2), (9, 2)])
def test_large_blocks_that_are_in_use_count_but_those_that_are_kept_do_not(
    make_reply: MakeReply, num_used: int, num_tasks: int
):
    window = window_of()
    position = fill(window, size=1)
    for _ in range(4):
        pop(window, make_reply, num_bytes=200 << 20)
    assert window.has_large_blocks

    window.num_used = num_used
    fill(window, position, size=1)

    assert len(window.tasks) == num_tasks


def test_what_is_late_follows_the_time_that_blocks_take(make_reply: MakeReply):
    window = window_of()
    position = fill(window)
    for _ in range(100):
        pop(window, make_reply, seconds=5.0)
        position = fill(window, position)

    assert window.late_timeout_s(elapsed_s=0.0) == pytest.approx(
        5 * DEFAULT_POLICY.late_factor, rel=0.01
    )


def test_an_element_larger_than_the_budget_is_an_error(make_reply: MakeReply):
    window = window_of(budget=1000)
    fill(window, size=1)

    error = pop(window, make_reply, num_bytes=2000).error

    assert isinstance(error, PlanError)
    assert str(error) == (
        "`memory_budget_bytes` is 1,000, but one element takes 2,000. Set it to at least that; "
        "4 times as much keeps 2 workers busy."
    )
