r"""The cut: the line through a plan below which any range of positions is computed by itself.

    sample > map > filter > batch > map        the plan, bottom up
    \_____________________/ \_________/
       read by ranges          runs above, in order

Where a plan is cut depends on the executor. A batch over a sparse parent is always above the cut:
which elements go into it is known only in order. For threads every batch is above the cut, so that
they read records concurrently.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import final

from gristmill._engine.access.nested_clock import base_step_names
from gristmill._plan.nodes.base import Node, Step
from gristmill._plan.nodes.steps import RandomMapNode
from gristmill._plan.traverse import base_of, bottom_of, num_flat_maps, steps_of
from gristmill.types import Cursor


@final
@dataclass(frozen=True, kw_only=True)
class Cut:
    """A plan, and the number of its steps that are below the cut."""

    plan: Node
    num_read: int
    skips_errors: bool
    """Whether records that raise are skipped."""
    in_order: bool = False
    """Whether batches are formed in order, from wherever the stream is."""

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, bottom up."""
        return steps_of(self.plan)

    @cached_property
    def num_measured(self) -> int:
        """The number of steps whose time a result has: those of the bottom, and `num_read`."""
        return len(base_step_names(bottom_of(self.plan))) + self.num_read

    @property
    def num_flat_maps(self) -> int:
        """The number of flat maps: a cursor has an entry for each."""
        return num_flat_maps(self.plan)

    @property
    def stops_at_absent(self) -> bool:
        """Whether each position has to hold an element, as batches start at multiples of a size."""
        has_batches = any(step.combines_elements and step.is_dense for step in self.steps)
        return has_batches and not self.in_order

    @cached_property
    def draws_above(self) -> bool:
        """Whether a step above the cut draws random numbers, and so needs the generators."""
        return any(isinstance(step, RandomMapNode) for step in self.steps[self.num_read :])

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
    max_read: int | None = None,
) -> Cut:
    """Cut a plan as high as possible.

    Args:
        plan: The plan.
        skips_errors: Whether records that raise are skipped.
        below_batches: Whether to cut below the first batch.
        in_order: Whether batches are formed in order.
        max_read: The largest number of steps below the cut.
    """
    steps = steps_of(plan)
    # A batch of the elements left after skipping is formed in order, like one after a filter.
    low = below_batches or skips_errors or in_order
    is_above = [step.combines_elements and (low or not step.is_dense) for step in steps]
    num_read = is_above.index(True) if True in is_above else len(steps)
    if max_read is not None:
        num_read = min(num_read, max_read)
    return Cut(plan=plan, num_read=num_read, skips_errors=skips_errors, in_order=in_order)


def splits_batch(plan: Node, cursor: Cursor) -> bool:
    """Return whether a cursor is within a batch, counted from the start of the stream.

    After a skipped record, batches no longer start at multiples of their size.
    """
    cut = cut_plan(plan, skips_errors=False, below_batches=False)
    num_records = base_of(plan).length()
    return cursor[0] < num_records and cursor[0] % cut.base.records_per_position > 0
