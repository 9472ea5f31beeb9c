"""Keep the ledger of an iterator: one line for each step, as `ledger_file` describes it."""

import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np

from gristmill._base.call_site import warn_user
from gristmill._base.version import VERSION
from gristmill._checkpoint.ledger_file import (
    LedgerWriter,
    batch_digest,
    cursor_digest,
    find_ledgers,
    read_ledger,
    shard_file,
    stream_digest,
)
from gristmill._engine.run import Run
from gristmill._plan.fingerprint import fingerprint_steps
from gristmill._plan.nodes.base import Node
from gristmill._plan.steps_of_records import may_lack_elements, step_at_cursor
from gristmill.errors import CorruptFileError, PlanError
from gristmill.types import Cursor, Element, JsonObject


@final
class LedgerKeeper:
    """Writes the steps of one iterator to the ledger of its shard."""

    def __init__(self, folder: Path, run: Run, plan: Node, *, step: int | None) -> None:
        """Open the ledger of a shard in the folder of a run, or create it.

        Args:
            folder: The folder of the run.
            run: What the iterator runs.
            plan: The plan of the iterator.
            step: The number of the next step, if it cannot be found out.
        """
        state = run.state
        shard = state.get("shard")
        if shard is None:
            raise PlanError(
                "A ledger needs an iterator of one shard, but the states of this one are of all "
                "shards. Keep the ledger of a dataset or loader of which each process reads a "
                "shard."
            )
        self._plan = plan
        self._path = shard_file(folder, (shard[0], shard[1]))
        self._step = self._find_step(run, state) if step is None else step
        self._code = fingerprint_steps(plan)
        self._writer = LedgerWriter(self._path)
        self._start: Callable[[], JsonObject] | None = run.bookmark()
        run.stream.digest_elements(batch_digest)
        self._prefix = 0
        self._has_failed = False

    def restart(self, run: Run) -> None:
        """Begin another segment: the iterator was restored, or excludes records."""
        run.stream.digest_elements(batch_digest)
        step = self._known_step(run, run.state)
        self._step = self._step if step is None else step
        self._start = run.bookmark()

    def capture(self, run: Run, element: Element) -> Callable[[], None]:
        """Return a function that adds a step, with the element and the position of now."""
        start, self._start = self._start, None
        digest, cursor = run.stream.last_digest, run.stream.cursor
        digest = batch_digest(element) if digest is None else digest

        def add() -> None:
            if self._has_failed:
                return
            try:
                if start is not None:
                    self._write_start(start())
                self._writer.add(self._step, cursor_digest(cursor, self._prefix), digest, cursor)
            except OSError as error:
                # A run of many days must not end because the disk for its log is full.
                self._has_failed = True
                warn_user(
                    f"The ledger {self._path} ends at step {self._step}: {error}. The run "
                    "continues without it."
                )
            self._step += 1

        return add

    def close(self) -> None:
        """Close the file. If no step was taken, it still contains where the shard began."""
        start, self._start = self._start, None
        if start is not None and not self._has_failed:
            state = start()
            if not self._contains_stream(state):
                self._write_start(state)
        self._writer.close()

    def _contains_stream(self, state: JsonObject) -> bool:
        """Return whether the file has a segment of the stream of a state, or is damaged."""
        if not self._path.stat().st_size:
            return False
        wanted = stream_digest(state)
        try:
            segments = read_ledger(self._path).segments
        except CorruptFileError:
            return True
        return any(stream_digest(segment.state) == wanted for segment in segments)

    def _write_start(self, state: JsonObject) -> None:
        self._prefix = stream_digest(state)
        versions = {
            "gristmill": VERSION,
            "numpy": np.__version__,
            "python": platform.python_version(),
        }
        self._writer.start(self._step, state, self._code, versions)

    def _find_step(self, run: Run, state: JsonObject) -> int:
        step = self._known_step(run, state)
        if step is None:
            reason = (
                "records were excluded"
                if state.get("excluded")
                else "bad records may have been skipped"
                if _skips_errors(run)
                else "a step of the pipeline drops, splits or packs elements"
            )
            raise PlanError(
                f"The number of the next step is not known: {reason}, and {self._path} does not "
                "contain the state that the iterator is at. Pass `step`."
            )
        return step

    def _known_step(self, run: Run, state: JsonObject) -> int | None:
        """Return the number of the next step, from the position or from the ledger."""
        cursor = run.stream.cursor
        is_counted = state.get("excluded") or _skips_errors(run)
        step = None if is_counted else _steps_of_runs(self._plan, (*run.shard_history, (cursor,)))
        if step is not None and not may_lack_elements(self._plan):
            return step
        if not state.get("taken") and run.is_at_start:
            return 0
        digest = cursor_digest(cursor, stream_digest(state))
        try:
            steps: Any = [step for path in find_ledgers(self._path) for step in _steps_in(path)]
        except (FileNotFoundError, CorruptFileError):
            return step
        return next((number for number, found in reversed(steps) if found == digest), step)


def _skips_errors(run: Run) -> bool:
    _, settings, _ = run.pipeline
    return settings.on_error is not None


def _steps_of_runs(plan: Node, runs: Sequence[Sequence[Cursor]]) -> int | None:
    """Return the number of steps of runs on some numbers of shards, one after the other.

    The shards of a run are at the same step, unless the last one of a shard is missing.

    Args:
        plan: The plan of any shard.
        runs: For each run, the cursors of its shards.
    """
    total = 0
    for cursors in runs:
        steps = [step_at_cursor(plan, cursor) for cursor in cursors]
        if None in steps:
            return None
        total += max(step for step in steps if step is not None)
    return total


def _steps_in(path: Path) -> list[tuple[int, str]]:
    """Return the number of the step that follows each state in a ledger."""
    ledger = read_ledger(path)
    starts = [(segment.first_step, segment.digest) for segment in ledger.segments]
    return starts + [(line.step + 1, line.state) for line in ledger.steps]
