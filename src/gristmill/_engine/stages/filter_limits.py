"""Count how many elements filters drop: far too many are usually a mistake.

The readers and stages that run a filter report which elements reached it. They are counted here, in
the order of the stream, so that the position of an error does not depend on blocks, threads or
workers.
"""

import logging
import time
from dataclasses import replace
from typing import final

import numpy as np

from gristmill._engine.blocks.block import Block, BlockResult, FilterCounts
from gristmill._engine.stages.base import Stage, UpperStage
from gristmill._plan.nodes.hints import FilterLimits
from gristmill.errors import FilterError
from gristmill.types import Cursor

logger = logging.getLogger("gristmill")

NUM_WATCHED = 1000
"""The ratio is computed over at least this many elements, as in Grain."""

SECONDS_BETWEEN_WARNINGS = 60.0

_warned_at: dict[str, float] = {}


@final
class FilterLimitStage(UpperStage):
    """Counts for the filters below: `labels` are their labels by the number of steps above them."""

    def __init__(self, parent: Stage, labels: dict[int, str], limits: FilterLimits) -> None:
        super().__init__(parent)
        self._labels = labels
        self._limits = limits
        self._counts = self._new_counts()

    def pull(self) -> BlockResult | None:
        result = self.parent.pull()
        if result is None:
            return None
        errors = [
            found
            for filter_counts in result.filter_counts
            if (found := self._counts[filter_counts.num_above].add(filter_counts)) is not None
        ]
        if not errors:
            return replace(result, filter_counts=())
        position, error = min(errors, key=lambda found: found[0])
        return BlockResult(_up_to(position, result.block), error, step_times=result.step_times)

    def seek(self, cursor: Cursor) -> Cursor:
        self._counts = self._new_counts()
        return self.parent.seek(cursor)

    def _new_counts(self) -> dict[int, "_Count"]:
        return {number: _Count(label, self._limits) for number, label in self._labels.items()}


@final
class _Count:
    """Counts the elements that reach one filter."""

    def __init__(self, label: str, limits: FilterLimits) -> None:
        self._label = label
        self._limits = limits
        self._num_seen = 0
        self._num_passed = 0
        self._last = -1

    def add(self, filter_counts: FilterCounts) -> tuple[int, FilterError] | None:
        """Count more elements; if too few passed, return an error and the position before it."""
        # After a change of the executor, elements dropped since the last that passed come again.
        first = int(np.searchsorted(filter_counts.positions, self._last, side="right"))
        positions, has_passed = filter_counts.positions[first:], filter_counts.has_passed[first:]
        while len(positions):
            enough = min(len(positions), NUM_WATCHED - self._num_seen)
            # All elements of one record are counted together.
            last = int(positions[enough - 1])
            end = int(np.searchsorted(positions, last, side="right"))
            self._num_seen += end
            self._num_passed += int(np.count_nonzero(has_passed[:end]))
            self._last = last
            if self._num_seen >= NUM_WATCHED and (error := self._judge()) is not None:
                return last, error
            positions, has_passed = positions[end:], has_passed[end:]
        return None

    def _judge(self) -> FilterError | None:
        num_seen, num_passed = self._num_seen, self._num_passed
        self._num_seen = self._num_passed = 0
        share = (num_seen - num_passed) / num_seen
        fact = f"{self._label} skipped {100 * share:.2f} % of the last seen {num_seen} elements."
        if self._limits.raises_from and share >= self._limits.raises_from:
            return FilterError(
                f"{fact} `filter_raise_threshold_ratio` is {self._limits.raises_from}. Filter the "
                "data beforehand, or raise the ratio or set it to None in `DatasetOptions`."
            )
        if self._limits.warns_from and share >= self._limits.warns_from:
            _warn(self._label, fact)
        return None


def _up_to(position: int, block: Block) -> Block:
    """Return the elements that come from records up to a position."""
    if not len(block):
        return block
    origins = block.lineage.sparse().origins[:, 0]
    return block[: int(np.searchsorted(origins, position, side="right"))]


def _warn(label: str, fact: str) -> None:
    now = time.monotonic()
    if now - _warned_at.get(label, -SECONDS_BETWEEN_WARNINGS) < SECONDS_BETWEEN_WARNINGS:
        return
    _warned_at[label] = now
    logger.warning(
        "%s If that is intended, filter the data beforehand, or set "
        "`filter_warn_threshold_ratio=None` in `DatasetOptions`.",
        fact,
    )
