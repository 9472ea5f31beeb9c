r"""Read the random-access part of a plan by ranges of positions.

    sample > map > filter > batch > map        the plan, bottom up
    \_____________________/ \_________/
       read by ranges          runs above, in order

Where a plan is cut depends on who reads. A batch over a sparse parent is always above: what goes
into it is known only in order. For threads every batch is: they read records side by side.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._aligned import aligned_empty
from gristmill.execute._access import access_reader
from gristmill.execute._batch import batch_reader
from gristmill.execute._blame import step_name
from gristmill.execute._block import Block
from gristmill.execute._fetch import around_none
from gristmill.execute._filter import filter_step
from gristmill.execute._flat_map import flat_map_step
from gristmill.execute._map import map_step, map_with_index_step, random_map_step
from gristmill.execute._outcome import Outcome
from gristmill.execute._sample import sample_reader
from gristmill.execute._tolerate import tolerant_reader, tolerant_step
from gristmill.execute._track import Cursor
from gristmill.execute._waiting import Stopwatch
from gristmill.observe import named
from gristmill.plan import (
    AccessNode,
    BatchNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    Node,
    RandomMapNode,
    Step,
    base_of,
    steps_of,
)

Read: TypeAlias = Callable[[range], Outcome]
Allocate: TypeAlias = Callable[[Sequence[int], Any], NDArray[Any]]


@final
@dataclass(frozen=True, kw_only=True)
class Cut:
    """A plan, and how many of its steps are read by ranges."""

    plan: Node
    num_read: int
    skips_errors: bool
    """Whether records that raise are left out."""
    in_order: bool = False
    """Whether batches are formed in order, from wherever the stream stands."""

    @cached_property
    def steps(self) -> list[Step | BatchNode]:
        """All steps, bottom up."""
        return steps_of(self.plan)

    @property
    def num_flat_maps(self) -> int:
        """A cursor has a number for each."""
        return num_flat_maps(self.plan)

    @property
    def is_strict(self) -> bool:
        """Whether an absent element is in the way: batches are to begin at multiples."""
        batches = [step for step in self.steps if isinstance(step, BatchNode) and step.is_dense]
        return bool(batches) and not self.in_order

    @property
    def base(self) -> Node:
        """The node whose positions are read."""
        return self.steps[self.num_read - 1] if self.num_read else base_of(self.plan)


def cut_plan(
    plan: Node,
    *,
    skips_errors: bool,
    below_batches: bool,
    in_order: bool = False,
    most_read: int | None = None,
) -> Cut:
    """Cut a plan as high as it goes, or below the first batch; read at most so many steps."""
    steps = steps_of(plan)
    # A batch of what is left after skipping is formed in order, like one after a filter.
    low = below_batches or skips_errors or in_order
    is_above = [isinstance(step, BatchNode) and (low or not step.is_dense) for step in steps]
    num_read = is_above.index(True) if True in is_above else len(steps)
    if most_read is not None:
        num_read = min(num_read, most_read)
    return Cut(plan=plan, num_read=num_read, skips_errors=skips_errors, in_order=in_order)


def splits_batch(plan: Node, cursor: Cursor) -> bool:
    """Tell whether a cursor stands within a batch, as seen from the start of the stream.

    Where a bad record was skipped, the batches after it begin elsewhere.
    """
    cut = cut_plan(plan, skips_errors=False, below_batches=False)
    num_records = base_of(plan).length()
    return cursor[0] < num_records and cursor[0] % cut.base.records_per_position > 0


def open_reader(cut: Cut, allocate: Allocate = aligned_empty) -> Read:
    """Give the function that reads a range of positions of the cut's base.

    `allocate` makes the arrays of the batches that it gives.
    """
    base = base_of(cut.plan)
    num_splits = num_flat_maps(cut.plan)
    if isinstance(base, AccessNode):
        read = access_reader(
            base,
            np.empty if cut.num_read else allocate,
            num_flat_maps=num_splits,
            num_above=len(cut.steps),
            is_strict=cut.is_strict,
        )
    else:
        read = named(step_name(base), sample_reader(base, num_flat_maps=num_splits))
    if cut.skips_errors:
        read = tolerant_reader(base, read, num_flat_maps=num_splits)
    read = _timed(read)
    for number, step in enumerate(cut.steps[: cut.num_read], start=1):
        if isinstance(step, BatchNode):
            read = batch_reader(step, read, allocate if number == cut.num_read else np.empty)
            continue
        run = step_runner(step, cut.steps[number:])
        read = _then(read, tolerant_step(step, run) if cut.skips_errors else run)
    return _giving_rows(read)


def step_runner(step: Step, later: Sequence[Step | BatchNode]) -> Callable[[Block], Outcome]:
    """Give the function that runs a step on a block; `later` are the steps above it."""
    return named(step.label, _runner(step, later))


def _runner(step: Step, later: Sequence[Step | BatchNode]) -> Callable[[Block], Outcome]:
    match step:
        case MapNode():
            return partial(around_none, map_step(step)) if step.skips_none else map_step(step)
        case MapWithIndexNode():
            return map_with_index_step(step)
        case RandomMapNode():
            goes_on = any(isinstance(other, RandomMapNode) for other in later)
            return random_map_step(step, goes_on=goes_on)
        case FilterNode():
            return filter_step(step, num_above=len(later))
        case FlatMapNode():
            return flat_map_step(step, level=num_flat_maps(step))
        case _:
            raise TypeError(f"{type(step).__name__} is not a step that works on one element")


def num_flat_maps(plan: Node) -> int:
    """Count the flat maps of a plan: a cursor has a number for each."""
    return sum(isinstance(step, FlatMapNode) for step in steps_of(plan))


def _timed(read: Read) -> Read:
    def read_timed(positions: range) -> Outcome:
        start = time.perf_counter()
        made = read(positions)
        spent = (time.perf_counter() - start,)
        # Not by `dataclasses.replace`, which takes as long as some blocks.
        return Outcome(made.block, made.error, made.row, made.skips, spent, made.seen)

    return read_timed


def _then(read: Read, run: Callable[[Block], Outcome]) -> Read:
    return lambda positions: read(positions).then(run)


def _giving_rows(read: Read) -> Read:
    """Make the elements here, where it is timed and may be in parallel, not when they are used."""

    def read_rows(positions: range) -> Outcome:
        watch = Stopwatch()
        made = read(positions)
        start = time.perf_counter()
        block = made.block.with_rows(made.block.rows())
        last = made.spent[-1] + time.perf_counter() - start
        watch.stop()
        spent = (*made.spent[:-1], last)
        return Outcome(block, made.error, made.row, made.skips, spent, made.seen, watch.has_waited)

    return read_rows
