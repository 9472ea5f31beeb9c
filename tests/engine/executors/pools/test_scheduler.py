"""Which worker gets which task, with plain numbers as workers and a fake clock."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gristmill._engine.executors.pools.scheduler import MAX_TRIES, Scheduler
from gristmill._engine.executors.pools.task import Assignment, Order, Task, Withdrawal

MakeReply = Callable[..., Any]


def all_but_the_first(max_count: int) -> int:
    """Stand for a worker that has begun only the first task of its queue."""
    return max_count


def scheduler_of(
    num_workers: int, take_back: Callable[[int], int] = all_but_the_first, **arguments: Any
) -> Scheduler:
    """Return a scheduler with workers that have started."""
    scheduler = Scheduler(**arguments)
    for worker in range(num_workers):
        scheduler.add_worker(worker, take_back)
        scheduler.mark_ready(worker)
    return scheduler


def submit(scheduler: Scheduler, count: int) -> list[Task]:
    return [scheduler.submit(range(10 * n, 10 * n + 10)) for n in range(count)]


def shown(orders: Sequence[Order]) -> list[tuple[str, int, int]]:
    """Return orders as (kind, worker, task)."""
    return [(type(order).__name__[0], order.worker, order.task.number) for order in orders]


def refuse(task: Task, record: int | None) -> BaseException:
    raise AssertionError("no task should be given up")


def test_every_worker_gets_one_task_before_any_gets_two():
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 5)

    orders = scheduler.assign(max_per_worker=2)

    assert orders == [
        Assignment(0, tasks[0]),
        Assignment(1, tasks[1]),
        Assignment(0, tasks[2]),
        Assignment(1, tasks[3]),
    ]
    assert scheduler.has_pending
    assert scheduler.assign(max_per_worker=2) == []


def test_results_that_are_in_use_count_like_tasks_of_their_worker():
    scheduler = scheduler_of(3)
    tasks = submit(scheduler, 4)

    orders = scheduler.assign(max_per_worker=2, num_held={0: 2, 1: 1})

    assert shown(orders) == [("A", 2, 0), ("A", 1, 1), ("A", 2, 2)]
    assert not scheduler.has_idle_worker  # 0 may have no task
    assert scheduler.assign(max_per_worker=2, num_held={0: 1, 1: 1}) == [Assignment(0, tasks[3])]


def test_an_idle_worker_whose_results_are_in_use_takes_no_task_over():
    scheduler = scheduler_of(2)
    submit(scheduler, 2)

    assert shown(scheduler.assign(max_per_worker=2, num_held={0: 2})) == [("A", 1, 0), ("A", 1, 1)]
    orders = scheduler.assign(max_per_worker=2, num_held={0: 1})

    assert shown(orders) == [("W", 1, 1), ("A", 0, 1)]


def test_one_worker_has_a_task_however_many_results_are_in_use():
    scheduler = scheduler_of(2)
    submit(scheduler, 2)

    orders = scheduler.assign(max_per_worker=2, num_held={0: 5, 1: 4})

    assert shown(orders) == [("A", 1, 0)]
    assert scheduler.assign(max_per_worker=2, num_held={0: 5, 1: 4}) == []
    assert shown(scheduler.assign(max_per_worker=2)) == [("A", 0, 1)]


def test_a_worker_that_replies_gets_the_next_task(make_reply: MakeReply):
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 3)
    scheduler.assign(max_per_worker=1)

    scheduler.complete(1, tasks[1].number, make_reply(tasks[1].positions))

    assert tasks[1].is_done
    assert scheduler.assign(max_per_worker=1) == [Assignment(1, tasks[2])]


def test_an_idle_worker_takes_over_the_first_task_that_waits_behind_a_slow_one(
    make_reply: MakeReply,
):
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 4)
    scheduler.assign(max_per_worker=2)  # 0 and 2, 1 and 3
    scheduler.complete(1, 1, make_reply(tasks[1].positions))
    scheduler.complete(1, 3, make_reply(tasks[3].positions))
    assert scheduler.has_idle_worker

    assert scheduler.assign(max_per_worker=2) == [Withdrawal(0, tasks[2]), Assignment(1, tasks[2])]
    assert not scheduler.has_idle_worker
    assert scheduler.assign(max_per_worker=2) == []


def test_tasks_of_any_job_can_be_taken_over(make_reply: MakeReply):
    scheduler = scheduler_of(2)
    first = scheduler.submit(range(5), job=0)
    other = [scheduler.submit(range(5), job=1) for _ in range(3)]
    scheduler.assign(max_per_worker=2)
    scheduler.complete(1, other[0].number, make_reply(range(5)))
    scheduler.complete(1, other[2].number, make_reply(range(5)))

    assert scheduler.assign(max_per_worker=2) == [Withdrawal(0, other[1]), Assignment(1, other[1])]
    assert not first.is_done


def test_a_task_that_the_slow_worker_has_begun_is_not_taken_over(make_reply: MakeReply):
    scheduler = scheduler_of(2, take_back=lambda max_count: 0)
    tasks = submit(scheduler, 4)
    scheduler.assign(max_per_worker=2)
    for number in (1, 3):
        scheduler.complete(1, number, make_reply(tasks[number].positions))

    assert scheduler.assign(max_per_worker=2) == []
    assert scheduler.has_idle_worker
    for number in (0, 2):
        scheduler.complete(0, number, make_reply(tasks[number].positions))
    assert all(task.is_done for task in tasks)


def test_the_last_tasks_of_a_queue_are_taken_over_as_far_as_they_have_not_begun(
    make_reply: MakeReply,
):
    scheduler = scheduler_of(2, take_back=lambda max_count: min(max_count, 2))
    tasks = submit(scheduler, 8)
    scheduler.assign(max_per_worker=4)  # 0, 2, 4 and 6; 1, 3, 5 and 7
    for number in (1, 3, 5, 7):
        scheduler.complete(1, number, make_reply(tasks[number].positions))

    assert shown(scheduler.assign(max_per_worker=3)) == [
        ("W", 0, 4),
        ("W", 0, 6),
        ("A", 1, 4),
        ("A", 1, 6),
    ]


def test_cancelled_tasks_are_not_taken_over(make_reply: MakeReply):
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 4)
    scheduler.assign(max_per_worker=2)
    for number in (1, 3):
        scheduler.complete(1, number, make_reply(tasks[number].positions))

    scheduler.cancel(tasks)

    assert scheduler.assign(max_per_worker=2) == []


def test_a_task_is_assigned_again_if_the_worker_that_took_it_over_died(make_reply: MakeReply):
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 4)
    scheduler.assign(max_per_worker=2)
    for number in (1, 3):
        scheduler.complete(1, number, make_reply(tasks[number].positions))
    scheduler.assign(max_per_worker=2)  # worker 1 takes over 2

    scheduler.remove_worker(1, explain=refuse)

    assert shown(scheduler.assign(max_per_worker=2)) == [("A", 0, 2)]


def test_the_end_of_a_session_withdraws_what_has_not_begun():
    scheduler = scheduler_of(2, take_back=lambda max_count: min(max_count, 1))
    tasks = submit(scheduler, 6)
    scheduler.assign(max_per_worker=2)  # 0 and 2, 1 and 3

    assert shown(scheduler.withdraw_all()) == [("W", 0, 2), ("W", 1, 3)]
    assert all(task.is_cancelled for task in tasks[:4])
    assert not scheduler.has_pending


def test_the_tasks_of_a_dead_worker_come_before_those_that_wait():
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 6)
    scheduler.assign(max_per_worker=2)  # 0 and 2, 1 and 3

    scheduler.remove_worker(0, explain=refuse)
    scheduler.add_worker(0, all_but_the_first)

    assert shown(scheduler.assign(max_per_worker=2)) == [("A", 0, 0), ("A", 0, 2)]
    assert [task.tries for task in tasks] == [1, 0, 0, 0, 0, 0]


def test_a_worker_that_dies_while_it_starts_does_not_count_against_its_tasks():
    scheduler = Scheduler()
    (task,) = submit(scheduler, 1)
    for _ in range(2 * MAX_TRIES):
        scheduler.add_worker(0, all_but_the_first)
        assert scheduler.assign(max_per_worker=1) == [Assignment(0, task)]
        scheduler.remove_worker(0, explain=refuse)

    assert task.tries == 0


def kill(scheduler: Scheduler, *progress: tuple[int, int | None]) -> list[Task]:
    """Let the only worker die of its first task; return the tasks that its successor gets."""
    for position, record in progress:
        scheduler.report_progress(0, position, record)
    scheduler.remove_worker(
        0, explain=lambda task, record: RuntimeError(f"{task.positions}, record {record}")
    )
    scheduler.add_worker(0, all_but_the_first)
    scheduler.mark_ready(0)
    return [order.task for order in scheduler.assign(max_per_worker=10)]


def test_a_task_that_kills_three_workers_gets_an_error():
    scheduler = scheduler_of(1)
    first, second = submit(scheduler, 2)
    scheduler.assign(max_per_worker=2)

    assert kill(scheduler) == [first, second]
    assert kill(scheduler) == [first, second]
    assert kill(scheduler) == [second]

    assert str(first.error) == "range(0, 10), record None"
    assert (first.tries, second.tries) == (3, 0)


def test_the_position_that_a_worker_died_of_is_computed_by_itself(make_reply: MakeReply):
    scheduler = scheduler_of(1)
    (task,) = submit(scheduler, 1)
    scheduler.assign(max_per_worker=1)
    kill(scheduler)

    before, single, after = kill(scheduler, (3, 3), (4, None), (4, 4))
    assert (before.positions, single.positions, after.positions) == (
        range(4),
        range(4, 5),
        range(5, 10),
    )
    assert [part.tries for part in (before, single, after)] == [0, 2, 0]

    scheduler.complete(0, before.number, make_reply(before.positions))
    assert kill(scheduler, (4, 4)) == [after]
    assert task.is_done
    result = task.result()
    assert result.block.rows() == [0, 1, 2, 3]
    assert str(result.error) == "range(4, 5), record 4"


def test_progress_is_forgotten_with_the_reply(make_reply: MakeReply):
    scheduler = scheduler_of(1)
    first, second = submit(scheduler, 2)
    scheduler.assign(max_per_worker=2)
    scheduler.report_progress(0, 4, None)
    scheduler.complete(0, first.number, make_reply(first.positions))

    assert kill(scheduler) == [second]  # as a whole: no position of it was reported


def test_cancelled_tasks_are_not_assigned_nor_assigned_again(make_reply: MakeReply):
    scheduler = scheduler_of(1)
    tasks = submit(scheduler, 4)
    scheduler.assign(max_per_worker=2)

    scheduler.cancel(tasks[1:3])

    assert scheduler.assign(max_per_worker=3) == [Assignment(0, tasks[3])]
    assert kill(scheduler) == [tasks[0], tasks[3]]


def test_a_task_of_another_stream_survives_a_cancellation():
    scheduler = scheduler_of(1)
    mine, other = scheduler.submit(range(3), job=0), scheduler.submit(range(3), job=1)

    scheduler.cancel([mine])

    assert scheduler.assign(max_per_worker=2) == [Assignment(0, other)]


# Time


def test_seconds_on_a_task_run_from_when_a_worker_begins_it(clock: Any, make_reply: MakeReply):
    scheduler = scheduler_of(1, clock=clock)
    first, second = submit(scheduler, 2)
    scheduler.assign(max_per_worker=2)

    clock.now += 5
    assert scheduler.seconds_on(first) == 5
    assert scheduler.seconds_on(second) == 0
    scheduler.complete(0, first.number, make_reply(first.positions))
    clock.now += 2
    assert scheduler.seconds_on(second) == 2


def test_a_worker_that_exceeds_the_limit_is_overdue(clock: Any):
    scheduler = scheduler_of(2, clock=clock, block_timeout_s=10.0)
    submit(scheduler, 1)
    assert scheduler.seconds_to_timeout is None  # no worker has a task
    scheduler.assign(max_per_worker=1)
    scheduler.resume_timers()

    clock.now += 4
    assert scheduler.seconds_to_timeout == 6
    clock.now += 6.5
    assert scheduler.seconds_to_timeout == 0
    scheduler.pause_timers()
    assert scheduler.overdue_workers() == [0]


def test_time_in_which_the_pool_does_not_listen_does_not_count(clock: Any):
    scheduler = scheduler_of(1, clock=clock, block_timeout_s=10.0)
    submit(scheduler, 1)
    scheduler.assign(max_per_worker=1)
    for _ in range(4):
        scheduler.resume_timers()
        clock.now += 2
        scheduler.pause_timers()
        clock.now += 1000

    scheduler.resume_timers()
    assert scheduler.seconds_to_timeout == 2
    scheduler.pause_timers()
    assert scheduler.overdue_workers() == []


def test_a_worker_that_starts_has_no_limit(clock: Any):
    scheduler = Scheduler(clock=clock, block_timeout_s=10.0)
    scheduler.add_worker(0, all_but_the_first)
    submit(scheduler, 1)
    scheduler.assign(max_per_worker=1)
    clock.now += 1000

    assert scheduler.seconds_to_timeout is None
    scheduler.mark_ready(0)
    assert scheduler.seconds_to_timeout == 10


def test_a_task_that_killed_a_worker_may_take_three_times_as_long(clock: Any):
    scheduler = scheduler_of(1, clock=clock, block_timeout_s=10.0)
    submit(scheduler, 1)
    scheduler.assign(max_per_worker=1)

    kill(scheduler)

    assert scheduler.seconds_to_timeout == 30


def test_a_worker_that_does_not_report_a_slow_task_is_silent_and_again_after_twice_the_time(
    clock: Any,
):
    scheduler = scheduler_of(1, clock=clock)
    scheduler.slow_task_s = 60.0
    (task,) = submit(scheduler, 1)
    scheduler.assign(max_per_worker=1)
    scheduler.resume_timers()
    assert scheduler.seconds_to_timeout == 120

    seen: list[float] = []
    for _ in range(500):
        clock.now += 1
        scheduler.pause_timers()
        seen += [elapsed_s for _, slow, elapsed_s in scheduler.silent_workers() if slow is task]
        scheduler.resume_timers()

    assert seen == [120, 240, 480]


def test_a_worker_that_reports_its_slow_task_is_not_silent(clock: Any, make_reply: MakeReply):
    scheduler = scheduler_of(1, clock=clock)
    scheduler.slow_task_s = 60.0
    first, second = submit(scheduler, 2)
    scheduler.assign(max_per_worker=2)
    scheduler.resume_timers()
    clock.now += 70
    assert scheduler.report_slow(0, first.number, 70.0) is first
    clock.now += 60
    scheduler.pause_timers()
    assert scheduler.silent_workers() == []

    scheduler.complete(0, first.number, make_reply(first))
    assert scheduler.report_slow(0, first.number, 130.0) is None  # it was late
    scheduler.resume_timers()
    assert scheduler.seconds_to_timeout == 120  # for the second one
    clock.now += 121
    scheduler.pause_timers()
    assert [slow for _, slow, _ in scheduler.silent_workers()] == [second]


def test_without_a_limit_no_worker_is_overdue(clock: Any):
    scheduler = scheduler_of(1, clock=clock)
    submit(scheduler, 1)
    scheduler.assign(max_per_worker=1)
    scheduler.resume_timers()
    clock.now += 1e6
    scheduler.pause_timers()

    assert scheduler.seconds_to_timeout is None
    assert scheduler.overdue_workers() == []


@pytest.mark.parametrize("num_workers", [1, 2, 3])
@pytest.mark.parametrize("max_per_worker", [1, 2, 5])
def test_every_task_is_computed_once_whichever_worker_is_slow(
    num_workers: int, max_per_worker: int, make_reply: MakeReply
):
    queues: list[deque[Task]] = [deque() for _ in range(num_workers)]
    num_begun = [0] * num_workers

    def take_back_from(worker: int) -> Callable[[int], int]:
        return lambda max_count: min(max_count, len(queues[worker]) - num_begun[worker])

    scheduler = Scheduler()
    for worker in range(num_workers):
        scheduler.add_worker(worker, take_back_from(worker))
    tasks = submit(scheduler, 20)
    computed: list[int] = []
    for turn in range(1000):
        for order in scheduler.assign(max_per_worker=max_per_worker):
            if isinstance(order, Assignment):
                queues[order.worker].append(order.task)
            else:
                assert queues[order.worker].index(order.task) >= num_begun[order.worker]
                queues[order.worker].remove(order.task)
        if all(task.is_done for task in tasks):
            break
        worker = turn % num_workers
        queue = queues[worker]
        if queue and not num_begun[worker]:
            num_begun[worker] = 1
        elif queue and (worker > 0 or turn % 7 == 0):  # worker 0 is slow
            task = queue.popleft()
            num_begun[worker] = int(bool(queue) and turn % 2)  # it may begin the next at once
            computed.append(task.number)
            scheduler.complete(worker, task.number, make_reply(task.positions))

    assert sorted(computed) == [task.number for task in tasks]
    assert [task.result().block.rows() for task in tasks] == [
        list(task.positions) for task in tasks
    ]


def test_a_task_moves_to_a_certain_worker_unless_another_one_has_it(make_reply: MakeReply):
    scheduler = scheduler_of(3)
    tasks = submit(scheduler, 3)
    scheduler.assign(max_per_worker=1)

    assert scheduler.move(0, tasks[0].number, to=2) == [Assignment(2, tasks[0])]
    scheduler.duplicate(tasks[1])
    assert scheduler.move(1, tasks[1].number, to=2) == []

    scheduler.complete(2, tasks[0].number, make_reply(tasks[0].positions))
    assert tasks[0].is_done


def test_a_task_that_is_done_or_cancelled_does_not_move():
    scheduler = scheduler_of(2)
    tasks = submit(scheduler, 2)
    scheduler.assign(max_per_worker=1)
    scheduler.cancel(tasks)

    assert scheduler.move(0, tasks[0].number, to=1) == []
    assert scheduler.is_idle(0)
