"""Task: a range of positions that a worker computes."""

from collections.abc import Iterator
from typing import Protocol, final

from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult, join_results


class Reply(Protocol):
    """The answer of a worker, which is decoded only when the consumer collects it."""

    @property
    def num_bytes(self) -> int:
        """Bytes of shared memory that the answer occupies."""
        ...

    def decode(self) -> BlockResult:
        """Return the block and the error that the worker sent."""
        ...


@final
class Task:
    """A range of positions, the number of workers that have it, and its reply or error."""

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
        if self.reply is not None:
            return self.reply.num_bytes
        return sum(subtask.num_bytes for subtask in self.subtasks)

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
