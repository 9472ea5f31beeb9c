"""Keep the ledger of an iterator: one line for each step, as `ledger_file` describes it."""

import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from gristmill._base.call_site import warn_user
from gristmill._base.version import VERSION
from gristmill._checkpoint.ledger_file import (
    LedgerWriter,
    batch_digest,
    cursor_digest,
    find_ledgers,
    read_ledger,
    segment_line,
    shard_file,
    step_line,
    stream_digest,
)
from gristmill._engine.run import Run
from gristmill._plan.fingerprint import fingerprint_steps
from gristmill._plan.nodes.base import Node
from gristmill._plan.steps_of_records import may_lack_elements, step_at_cursor
from gristmill.errors import CorruptFileError, PlanError
from gristmill.types import Cursor, Element, JsonObject


class HandsOut(Protocol):
    """What an iterator hands out next."""

    @property
    def waiting(self) -> Sequence[Any]:
        """The elements that were not taken yet, the next one last."""
        ...


@final
class LedgerEntry(NamedTuple):
    """What the line of an element contains, besides the number of the step."""

    cursor: Cursor
    """The position after the element."""
    digest: str
    """The checksum of the element."""


@final
@dataclass(frozen=True, kw_only=True)
class _Line:
    """The line of a step, which is in the file or about to be."""

    step: int
    handout: HandsOut
    num_waiting: int
    """How many elements of `handout` wait until its element is taken."""
    data: bytes
    """The line, after the first line of the segment if it is the first step."""
    start: int
    """The size of the file before it."""

    def is_of(self, handout: HandsOut) -> bool:
        """Return whether it is the line of the next element that is handed out."""
        return handout is self.handout and len(handout.waiting) == self.num_waiting

    @property
    def next_step(self) -> int:
        """The number of the next step."""
        is_taken = len(self.handout.waiting) < self.num_waiting
        return self.step + 1 if is_taken else self.step


@final
@dataclass(kw_only=True)
class _Segment:
    """Steps that follow each other."""

    moved: object
    """The value of `Run.moved` for it."""
    first_step: int
    start: Callable[[], JsonObject]
    """Returns the state before the first step."""
    prefix: int = 0
    """The digest of the stream, once there is a line."""
    line: _Line | None = None
    """The last line."""

    @property
    def next_step(self) -> int:
        """The number of the next step."""
        return self.first_step if self.line is None else self.line.next_step


_VERSIONS = {
    "gristmill": VERSION,
    "numpy": np.__version__,
    "python": platform.python_version(),
}


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
        first_step = self._find_step(run, state) if step is None else step
        self._code = fingerprint_steps(plan)
        self._writer = LedgerWriter(self._path)
        self._has_failed = False
        self._segment = self._begin(run, first_step)

    def _begin(self, run: Run, step: int) -> "_Segment":
        run.stream.digest_elements(batch_digest)
        return _Segment(moved=run.moved, first_step=step, start=run.bookmark())

    def follow(self, run: Run) -> None:
        """Begin another segment if the iterator was restored, or excludes records, since the last.

        Ctrl-C may have come before a segment was begun, or after.
        """
        if self._segment.moved is not run.moved:
            step = self._known_step(run, run.state)
            self._segment = self._begin(run, self._segment.next_step if step is None else step)

    def write_next(self, run: Run) -> None:
        """Add the next element of an iterator, before it is taken."""
        self.follow(run)
        handout = run.stream.fill()
        num_waiting = len(handout.waiting) - 1
        digest = handout.digest_before(num_waiting) or batch_digest(handout.waiting[-1])
        self.write(handout, LedgerEntry(handout.cursor_before(num_waiting), digest))

    def entry_of_last(self, run: Run, element: Element) -> "LedgerEntry":
        """Return what the line of the last element contains, which was just taken."""
        return LedgerEntry(run.stream.cursor, run.stream.last_digest or batch_digest(element))

    def write(self, handout: "HandsOut", entry: "LedgerEntry") -> None:
        """Add the next element of `handout`, unless a call that Ctrl-C interrupted has added it."""
        segment = self._segment
        line = segment.line
        if self._has_failed:
            return
        try:
            if line is None or not line.is_of(handout):
                # Stored before it is written: if Ctrl-C comes then, the next call completes it.
                line = segment.line = self._next_line(segment, handout, entry)
            self._writer.write(line.data, line.start)
        except OSError as error:
            # A run of many days must not end because the disk for its log is full.
            self._has_failed = True
            warn_user(
                f"The ledger {self._path} ends at step {segment.next_step}: {error}. The run "
                "continues without it."
            )

    def _next_line(self, segment: "_Segment", handout: "HandsOut", entry: "LedgerEntry") -> "_Line":
        last, step = segment.line, segment.next_step
        prefix, head = self._head(segment) if last is None else (segment.prefix, b"")
        digest = cursor_digest(entry.cursor, prefix)
        data = head + step_line(step, digest, entry.digest, entry.cursor)
        return _Line(
            step=step,
            handout=handout,
            num_waiting=len(handout.waiting),
            start=self._writer.size,
            data=data,
        )

    def _head(self, segment: "_Segment") -> tuple[int, bytes]:
        """Return the digest of the stream of a segment, and its first line."""
        state = segment.start()
        segment.prefix = stream_digest(state)
        return segment.prefix, segment_line(segment.first_step, state, self._code, _VERSIONS)

    def close(self, run: Run) -> None:
        """Close the file. If no step was taken, it still contains where the shard began."""
        if self._writer.is_open:
            self.follow(run)
            segment = self._segment
            is_new = segment.line is None and not self._contains_stream(segment.start())
            if is_new and not self._has_failed:
                self._writer.write(self._head(segment)[1], self._writer.size)
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
