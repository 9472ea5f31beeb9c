"""Tasks, each a range of positions, the queue of one worker, and the orders of the scheduler."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, final

from gristmill._engine.blocks.block import Block, BlockResult, join_results
from gristmill._metrics.timeline import Work

FindHolder: TypeAlias = Callable[[], int | None]
"""Returns the worker whose memory a block is in; `None` once that worker may reuse it."""


def no_holder() -> int | None:
    """Return `None`: the block is in no worker's memory."""
    return None


class Reply(Protocol):
    """The answer of a worker, which is decoded only when the consumer collects it."""

    @property
    def work(self) -> Sequence[Work]:
        """What the worker did, as the parent records it."""
        ...

    @property
    def num_bytes(self) -> int:
        """Bytes of shared memory that the answer occupies."""
        ...

    @property
    def find_holder(self) -> FindHolder:
        """Whose memory it is. The function does not keep the answer alive."""
        ...

    def decode(self) -> BlockResult:
        """Return the block and the error that the worker sent."""
        ...


@final
class Task:
    """A range of positions, and its reply or error."""

    __slots__ = (
        "error",
        "is_cancelled",
        "job",
        "num_holders",
        "number",
        "positions",
        "reply",
        "subtasks",
        "tries",
    )

    def __init__(self, number: int, positions: range, *, job: int = 0, tries: int = 0) -> None:
        self.number = number
        self.job = job
        """Which of the plans of a pool the positions belong to."""
        self.positions = positions
        self.reply: Reply | None = None
        self.error: BaseException | None = None
        """Why the task will never have a reply."""
        self.num_holders = 0
        """How many workers have the task in their queue."""
        self.tries = tries
        """How many workers died while they computed the task."""
        self.is_cancelled = False
        self.subtasks: list[Task] = []
        """Tasks that replace this one: the position that kills workers is computed by itself."""

    @property
    def is_done(self) -> bool:
        """Whether `result` can be called."""
        if self.reply is not None or self.error is not None:
            return True
        for subtask in self.subtasks:
            if subtask.error is not None or not subtask.is_done:
                return subtask.is_done  # the result ends with the first error
        return bool(self.subtasks)

    @property
    def is_open(self) -> bool:
        """Whether a worker has to compute the task as a whole."""
        return not (self.is_done or self.is_cancelled or self.subtasks)

    @property
    def num_bytes(self) -> int:
        """Bytes of shared memory that the reply occupies."""
        return sum([reply.num_bytes for reply in self.replies])

    def find_holders(self, min_bytes: int) -> list[FindHolder]:
        """Return whose memory the replies are in that occupy at least `min_bytes`."""
        return [reply.find_holder for reply in self.replies if reply.num_bytes >= min_bytes]

    @property
    def replies(self) -> list[Reply]:
        """The replies to the task or its subtasks so far."""
        if self.reply is not None:
            return [self.reply]
        return [reply for subtask in self.subtasks for reply in subtask.replies]

    @property
    def work(self) -> list[Work]:
        """What workers did for the task."""
        own = [] if self.reply is None else list(self.reply.work)
        return [*own, *(work for subtask in self.subtasks for work in subtask.work)]

    def cancel(self) -> None:
        """Mark the task and its subtasks as no longer needed."""
        self.is_cancelled = True
        for subtask in self.subtasks:
            subtask.cancel()

    def split(self, position: int, numbers: Iterator[int]) -> "Task":
        """Split the task into subtasks so that `position` is computed by itself.

        Args:
            position: The position that killed a worker.
            numbers: Supplies the numbers of the subtasks.

        Returns:
            The subtask of `position`, which inherits `tries`.
        """
        start, stop = self.positions.start, self.positions.stop
        for positions in (range(start, position), range(position + 1, stop)):
            if positions:
                self.subtasks.append(Task(next(numbers), positions, job=self.job))
        single = Task(next(numbers), range(position, position + 1), job=self.job, tries=self.tries)
        self.subtasks.insert(position > start, single)
        return single

    def result(self) -> BlockResult:
        """Return the elements up to the first error, and that error."""
        if self.reply is not None:
            return self.reply.decode()
        if self.error is not None:
            return BlockResult(Block.empty(), self.error)
        results: list[BlockResult] = []
        for subtask in self.subtasks:
            results.append(subtask.result())
            if results[-1].error is not None:
                break
        return join_results(results)


@final
@dataclass(frozen=True, slots=True)
class Assignment:
    """A worker has to compute a task, after those that it already has."""

    worker: int
    task: Task


@final
@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A worker has to drop a task that it has not begun, and no longer may begin."""

    worker: int
    task: Task


Order: TypeAlias = Assignment | Withdrawal


@final
class WorkerQueue:
    """The tasks of one worker, in the order in which it computes them."""

    __slots__ = (
        "busy_since",
        "is_ready",
        "num_held",
        "progress",
        "reported_s",
        "take_back",
        "tasks",
    )

    def __init__(self, now: float, take_back: Callable[[int], int]) -> None:
        self.tasks: deque[Task] = deque()
        self.take_back = take_back
        """See `Scheduler.add_worker`."""
        self.is_ready = False
        self.num_held = 0
        """Results of this worker that are in use, and count like tasks."""
        self.busy_since = now
        """When it began with the first of its tasks."""
        self.reported_s = 0.0
        """For how long it has reported that it computes the first of its tasks."""
        self.progress: tuple[int, int | None] | None = None
        """The position it computes, and the record of it, for a task that killed a worker."""

    @property
    def is_behind(self) -> bool:
        """Whether another worker has replied to the task that it computes."""
        return bool(self.tasks) and self.tasks[0].is_done

    @property
    def current(self) -> Task | None:
        """The first task that has no reply yet."""
        return next((task for task in self.tasks if not task.is_done), None)

    def remove(self, number: int) -> tuple[Task, bool]:
        """Remove a task; return it, and whether it was the first."""
        for index, task in enumerate(self.tasks):
            if task.number == number:
                del self.tasks[index]
                task.num_holders -= 1
                return task, index == 0
        raise KeyError(number)

    def limit_s(self, block_timeout_s: float | None) -> float | None:
        """Return for how many seconds the worker may compute its first task."""
        if block_timeout_s is None or not self.tasks or not self.is_ready:
            return None
        # After a death a worker computes each record, then each element, then the whole range.
        factor = 3 if self.tasks[0].tries else 1
        return factor * block_timeout_s

    def report_limit_s(self, slow_task_s: float) -> float:
        """Return after how many seconds the worker should have reported its first task.

        It looks at its clock only from time to time, and then reports each doubling.
        """
        return 2 * max(slow_task_s, self.reported_s)
