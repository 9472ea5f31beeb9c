"""The workers of one stream: started, given tasks, listened to, and replaced when they die.

All of it runs in the thread that pulls, which no Ctrl-C hits. Other threads may only `wake` it and
`close`, which takes no lock: it sets a flag, and kills.
"""

import contextlib
import math
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, final

from gristmill.errors import ClosedError, WorkerError
from gristmill.execute._blame import record_name
from gristmill.execute._handle import WorkerHandle
from gristmill.execute._ipc._errors import load_error
from gristmill.execute._ipc._explain import explain_unsendable, explain_unsendable_value
from gristmill.execute._ipc._package import Package
from gristmill.execute._ipc._pickle import dump_plan
from gristmill.execute._ipc._relay import deliver, relay_settings
from gristmill.execute._reader import Cut
from gristmill.execute._task import Answer, Task
from gristmill.observe import Counters
from gristmill.options import ReadOptions, WorkerOptions

MOST_TRIES = 3
"""A range that kills a worker this many times is not tried again, nor is starting one."""

LONGEST_NAP_SECONDS = 3600.0
"""More is too much for the system call; it is asked again."""

FREED_AT_ONCE = 1000
"""Slots given back with one task, so that the message never fills the socket."""


@final
class Crew:
    """Worker processes and what they are at. Tasks that a dead one had go back to `todo`."""

    def __init__(
        self,
        *,
        num_workers: int,
        options: WorkerOptions,
        todo: deque[Task],
        numbers: Iterator[int],
        counters: Counters,
    ) -> None:
        self._jobs: list[tuple[Cut, ReadOptions]] = []
        self._num_workers = num_workers
        self._options = options
        self._todo = todo
        self._numbers = numbers
        self._counters = counters
        self._package: Package | None = None
        self._workers: list[WorkerHandle] = []
        self._num_restarts = 0
        self._num_stillborn = 0
        self._failure: BaseException | None = None
        self._is_closed = False
        self._listened_at = time.monotonic()
        self._waker, self._wakened = socket.socketpair()
        for end in (self._waker, self._wakened):
            end.setblocking(False)

    def add_job(self, cut: Cut, read: ReadOptions) -> int:
        """Take on a plan, and give its number; not once the workers have been told theirs."""
        assert self._package is None
        self._jobs.append((cut, read))
        return len(self._jobs) - 1

    @property
    def has_started(self) -> bool:
        """Whether the workers have been told what there is to do."""
        return self._package is not None

    def start(self) -> None:
        """Start the workers that are missing, and do not wait for them."""
        numbers = {worker.number for worker in self._workers}
        if len(numbers) < self._num_workers:
            missing = [number for number in range(self._num_workers) if number not in numbers]
            for number in missing:
                self._workers.append(self._spawn(number))
        for worker in self._workers:
            if not worker.is_greeted:
                self._greet(worker)

    @property
    def is_ready(self) -> bool:
        """Whether all workers are up, or never will be."""
        self.wait(0.0)
        return self._failure is not None or all(worker.is_ready for worker in self._workers)

    def take_failure(self) -> BaseException | None:
        """Give the reason why nothing more will come, if there is one. After that, try anew.

        It is not kept here: once raised, it holds the frames that it went through.
        """
        failure, self._failure = self._failure, None
        return failure

    @property
    def has_idle(self) -> bool:
        """Whether a worker has nothing to do."""
        return not all(worker.tasks for worker in self._workers)

    def seconds_at(self, task: Task) -> float:
        """Say for how long a worker has been at a task."""
        began = [
            worker.busy_since
            for worker in self._workers
            if worker.is_ready and worker.tasks and worker.tasks[0] is task
        ]
        return time.monotonic() - min(began) if began else 0.0

    @property
    def shared_bytes(self) -> int:
        """How much shared memory is mapped."""
        return sum(worker.shelf.num_bytes for worker in self._workers)

    def hand_out(self, under_way: Iterable[Task], *, most: int) -> None:
        """Give every worker something to do, and more, up to `most`, so that it need not wait.

        When there is nothing left, who is free takes over what waits behind a slow one, of the
        tasks that are `under_way`. Should the slow one get to it all the same, the first to finish
        counts.
        """
        for number in range(1, most + 1):
            for worker in self._workers:
                if len(worker.tasks) < number and self._todo:
                    self._give(worker, self._todo.popleft())
        idle = [worker for worker in self._workers if not worker.tasks]
        if self._todo or not idle:
            return
        begun = {worker.tasks[0].number for worker in self._workers if worker.tasks}
        waiting = [
            task
            for task in under_way
            if not task.is_done and task.num_holders == 1 and task.number not in begun
        ]
        for worker, task in zip(idle, waiting, strict=False):
            (slow,) = [other for other in self._workers if task in other.tasks]
            _send(slow, ("forget", task.number))
            self._give(worker, task)

    def wait(self, seconds: float | None = None) -> None:
        """Listen until a worker says something, one is too slow, `wake`, or `seconds`."""
        now = time.monotonic()
        for worker in self._workers:  # while nobody listens they may have to wait, too
            worker.busy_since += now - self._listened_at
        poll = select.poll()
        poll.register(self._wakened, select.POLLIN)
        by_line = {worker.channel.fileno(): worker for worker in self._workers}
        for line in by_line:
            poll.register(line, select.POLLIN)
        limit = self._seconds_left()
        if limit is not None:
            seconds = limit if seconds is None else min(seconds, limit)
        for line, _ in poll.poll(
            None if seconds is None else math.ceil(1000 * min(seconds, LONGEST_NAP_SECONDS))
        ):
            if line in by_line:
                self._listen(by_line[line])
            else:
                self._wakened.recv(4096)
        self._listened_at = time.monotonic()
        self._end_the_slow(self._listened_at)

    def wake(self) -> None:
        """Make `wait` in another thread return."""
        with contextlib.suppress(OSError):  # full: it wakes up anyhow; closed: it need not
            self._waker.send(b"\0")

    def close(self) -> None:
        """End the workers. What they made stays as long as somebody holds it."""
        self._is_closed = True
        self.wake()
        for end in (WorkerHandle.kill, WorkerHandle.wait):  # all die first, and are waited for then
            for worker in list(self._workers):
                end(worker)

    def dispose(self) -> None:
        """Close all descriptors: only when no other thread is listening to them."""
        while self._workers:
            self._workers.pop().bury()
        package, self._package = self._package, None
        if package is not None:
            os.close(package.descriptor)
        for line in (self._waker, self._wakened):
            line.close()

    def _spawn(self, number: int) -> WorkerHandle:
        worker = WorkerHandle(number)
        if self._is_closed:  # while this thread was starting it
            worker.bury()
            raise ClosedError("The workers were told to end.")
        return worker

    def _greet(self, worker: WorkerHandle) -> None:
        """Send a worker its orders; it has been starting meanwhile."""
        package = self._package = self._package or self._pack()
        _send(
            worker,
            (
                "boot",
                worker.number,
                self._num_workers,
                package.sizes,
                package.pytrees,
                relay_settings(),
            ),
            [package.descriptor],
        )
        worker.is_greeted = True

    def _pack(self) -> Package:
        try:
            return Package.pack(self._options.worker_init_fn, self._jobs)
        except OSError as error:
            raise WorkerError(f"The pipeline cannot be laid into memory: {error}.") from error
        except Exception as error:
            try:
                dump_plan(self._options.worker_init_fn)
            except Exception as reason:
                raise explain_unsendable_value(
                    "worker_init_fn", self._options.worker_init_fn, reason
                ) from reason
            for cut, _ in self._jobs[:-1]:
                try:
                    dump_plan(cut)
                except Exception as reason:
                    raise explain_unsendable(cut.plan, reason) from reason
            raise explain_unsendable(self._jobs[-1][0].plan, error) from error

    def _give(self, worker: WorkerHandle, task: Task) -> None:
        if not worker.tasks:
            worker.busy_since = time.monotonic()
        worker.tasks.append(task)
        task.num_holders += 1
        freed = worker.shelf.take_freed(FREED_AT_ONCE)
        message = ("task", task.number, task.job, task.positions, task.tries > 0, freed)
        _send(worker, message)

    def _listen(self, worker: WorkerHandle) -> None:
        try:
            messages = worker.channel.receive_ready()
        except OSError:
            worker.kill()  # it cannot be understood any more; its work is done again
            raise
        for message in messages:
            match message:
                case ("done", number, *rest):
                    self._take_answer(worker, number, *rest)
                case ("forgot", number):
                    self._take_back(worker, number)
                case ("news", news):
                    deliver(news, worker.number)
                case ("at", position, record):
                    worker.place = position, record
                case ("ready",):
                    worker.is_ready = True
                    worker.busy_since = time.monotonic()
                    self._num_stillborn = 0
                case ("failed", error):
                    self._failure = load_error(error)
                case _:
                    raise AssertionError(f"worker {worker.number} said {message!r}")
        if worker.channel.has_ended and worker in self._workers:
            self._replace(worker)

    def _take_answer(
        self,
        worker: WorkerHandle,
        number: int,
        payload: bytes | None,
        places: list[Any],
        opened: list[Any],
        closed: list[int],
        error: bytes | None,
        spent: tuple[float, ...],
    ) -> None:
        shelf = worker.shelf
        for slot, size in opened:
            shelf.open(slot, size, worker.channel.take_descriptor())
        shelf.drop(closed)
        memory = {slot: shelf.lease(slot) for slot in {place[0] for place in places}}
        buffers: list[Any] = [memory[slot][offset : offset + size] for slot, offset, size in places]
        task: Task = worker.tasks.popleft()
        assert task.number == number
        task.num_holders -= 1
        worker.busy_since, worker.place = time.monotonic(), None
        if not task.is_done:
            task.answer = Answer(
                buffers.pop() if payload is None else payload, buffers, error, spent
            )
            task.num_bytes = sum(place[2] for place in places)

    def _take_back(self, worker: WorkerHandle, number: int) -> None:
        """Take note that a worker will not do what another has taken over."""
        (task,) = [task for task in worker.tasks if task.number == number]
        worker.tasks.remove(task)
        worker.busy_since = time.monotonic()
        task.num_holders -= 1
        if task.is_open and not task.num_holders:  # the other one died of it meanwhile
            self._todo.appendleft(task)

    def _seconds_left(self) -> float | None:
        """Say when the first worker will have been at it for too long."""
        limits = [
            worker.busy_since + limit - time.monotonic()
            for worker in self._workers
            if (limit := self._limit(worker)) is not None
        ]
        return max(0.0, min(limits)) if limits else None

    def _limit(self, worker: WorkerHandle) -> float | None:
        seconds = self._options.block_timeout_s
        if seconds is None or not worker.tasks or not worker.is_ready:
            return None
        # A range that has killed a worker is computed three times: by record, element, and whole.
        return 3 * seconds if worker.tasks[0].tries else seconds

    def _end_the_slow(self, now: float) -> None:
        for worker in self._workers:
            limit = self._limit(worker)
            if limit is not None and now - worker.busy_since > limit:
                worker.was_too_slow = True
                worker.kill()

    def _replace(self, dead: WorkerHandle) -> None:
        """Put another worker in the place of a dead one, and its tasks back in line."""
        reason = dead.bury()
        tasks: list[Task] = list(dead.tasks)
        for task in tasks:
            task.num_holders -= 1
        if dead.is_ready and tasks and tasks[0].is_open:
            tasks[:1] = self._blame(tasks[0], dead, reason)
        self._todo.extendleft(
            task for task in reversed(tasks) if task.is_open and not task.num_holders
        )
        self._workers.remove(dead)
        if self._failure is not None:  # it said why before it went
            return
        self._num_restarts += 1
        self._num_stillborn += not dead.is_ready
        self._counters.restarts += 1
        if self._num_stillborn >= MOST_TRIES:
            self._failure = WorkerError(
                f"{self._num_stillborn} workers in a row died while they started: {reason}."
            )
        elif self._num_restarts > self._options.max_restarts:
            self._failure = WorkerError(
                f"More than {self._options.max_restarts} workers died, the last of {reason}. "
                "Raise `max_restarts` in `WorkerOptions` if that is to be expected."
            )
        else:
            self.start()

    def _blame(self, task: Task, worker: WorkerHandle, reason: str) -> list[Task]:
        """Take note that a task has killed its worker, and give what is left to do of it."""
        task.tries += 1
        left = [task]
        position, record = worker.place or (None, None)
        if position is not None and len(task.positions) > 1:
            left, task = task.split(position, self._numbers)
        if task.tries < MOST_TRIES:
            return left
        cut, _ = self._jobs[task.job]
        records = cut.base.records_per_position
        first, last = task.positions.start * records, task.positions.stop * records - 1
        if record is not None or first == last:
            name = record_name(cut.plan, first if record is None else record)
            told = f"{name[0].upper()}{name[1:]}"
        else:
            told = (
                f"Something in the records from {record_name(cut.plan, first)} to position "
                f"{last}, though none of them by itself,"
            )
        task.error = WorkerError(
            f"{told} killed its worker {task.tries} times, the last time by {reason}. Leave it "
            "out of the source, or mend the code that reads it."
        )
        return left


def _send(worker: WorkerHandle, message: tuple[Any, ...], descriptors: Any = ()) -> None:
    """Tell a worker something; that it is dead is seen when it is listened to."""
    with contextlib.suppress(ConnectionError):
        worker.channel.send(message, descriptors)
