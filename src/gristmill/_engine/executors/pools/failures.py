"""Limits on the deaths of workers, and the errors when a limit is exceeded."""

from typing import final

from gristmill._base.format_numbers import count_of
from gristmill._engine.access.cut import Cut
from gristmill._engine.blocks.error_notes import record_name
from gristmill.errors import WorkerError

MAX_FAILED_STARTS = 3
"""After this many workers in a row that died while they started, no other is started."""


@final
class RestartLimit:
    """Counts the deaths of workers, and decides whether to start another worker.

    >>> limit = RestartLimit(max_restarts=1)
    >>> limit.record_death(was_ready=True, reason="exit code 1")
    >>> print(limit.record_death(was_ready=True, reason="exit code 1"))
    More than 1 worker died (last cause: exit code 1). Raise `max_restarts` in `WorkerOptions`.
    """

    def __init__(self, max_restarts: int) -> None:
        self._max_restarts = max_restarts
        self._num_restarts = 0
        self._num_failed_starts = 0

    def record_start(self) -> None:
        """Note that a worker has started."""
        self._num_failed_starts = 0

    def record_death(self, *, was_ready: bool, reason: str) -> WorkerError | None:
        """Note that a worker died; return an error if no other is to be started.

        Args:
            was_ready: Whether it had started.
            reason: What it died of.
        """
        self._num_restarts += 1
        self._num_failed_starts += not was_ready
        if self._num_failed_starts >= MAX_FAILED_STARTS:
            return WorkerError(
                f"{self._num_failed_starts} workers in a row died while they started: {reason}."
            )
        if self._num_restarts > self._max_restarts:
            return WorkerError(
                f"More than {count_of(self._max_restarts, 'worker')} died (last cause: {reason}). "
                "Raise `max_restarts` in `WorkerOptions`."
            )
        return None


def fatal_records_error(
    cut: Cut, positions: range, record: int | None, *, tries: int, reason: str
) -> WorkerError:
    """Return the error for positions that have killed too many workers.

    Args:
        cut: The plan that the positions belong to.
        positions: Positions that were computed together.
        record: Position of the record that was being read, if that is known.
        tries: How many workers died.
        reason: What the last one died of.
    """
    name = records_name(cut, positions, record)
    if record is not None or len(positions) * cut.base.records_per_position == 1:
        subject = f"{name[0].upper()}{name[1:]}"
    else:
        subject = f"Something in {name}, though none of them by itself,"
    return WorkerError(
        f"{subject} killed its worker {tries} times, the last time by {reason}. Leave it out of "
        "the source, or fix the code that reads it."
    )


def records_name(cut: Cut, positions: range, record: int | None = None) -> str:
    """Return a description of the records that positions are computed from.

    Args:
        cut: The plan that the positions belong to.
        positions: Positions that are computed together.
        record: Position of the one record that is meant, if that is known.
    """
    records_per_position = cut.base.records_per_position
    first = positions.start * records_per_position
    last = positions.stop * records_per_position - 1
    if record is not None or first == last:
        return record_name(cut.plan, first if record is None else record)
    return f"the records from {record_name(cut.plan, first)} to position {last}"
