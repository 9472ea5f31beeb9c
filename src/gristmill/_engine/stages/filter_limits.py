"""Watch how many elements filters leave out: far too many is mostly a mistake.

Whoever runs a filter reports what came to it; here it is counted, in the order of the stream. So
where an error stands depends on no block, no thread and no worker.
"""

import logging
import time
from dataclasses import replace
from typing import final

import numpy as np

from gristmill._engine.blocks.block import Block
from gristmill._engine.blocks.block_result import BlockResult, FilterCounts
from gristmill._engine.stages.base import Stage, UpperStage
from gristmill._plan.nodes.hints import FilterLimits
from gristmill.errors import FilterError
from gristmill.types import Cursor

logger = logging.getLogger("gristmill")

NUM_WATCHED = 1000
"""The share is of at least this many elements, as in Grain."""

SECONDS_BETWEEN_WARNINGS = 60.0

_warned_at: dict[str, float] = {}


@final
class FilterLimitStage(UpperStage):
    """Some steps with filters among them: `labels`, by the number of steps that stand on each."""

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
        return BlockResult(_up_to(position, result.block), error, step_seconds=result.step_seconds)

    def seek(self, cursor: Cursor) -> Cursor:
        self._counts = self._new_counts()
        return self.parent.seek(cursor)

    def _new_counts(self) -> dict[int, "_Count"]:
        return {number: _Count(label, self._limits) for number, label in self._labels.items()}


@final
class _Count:
    """Counts what comes to one filter."""

    def __init__(self, label: str, limits: FilterLimits) -> None:
        self._label = label
        self._limits = limits
        self._num_seen = 0
        self._num_passed = 0
        self._last = -1

    def add(self, filter_counts: FilterCounts) -> tuple[int, FilterError] | None:
        """Count on; where too few passed, give the error and the position it stands after."""
        # Who takes over from another reads again what did not pass since the last that did.
        first = int(np.searchsorted(filter_counts.positions, self._last, side="right"))
        positions, has_passed = filter_counts.positions[first:], filter_counts.has_passed[first:]
        while len(positions):
            enough = min(len(positions), NUM_WATCHED - self._num_seen)
            # All pieces of a record are seen together.
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
        filter_counts, passed = self._num_seen, self._num_passed
        self._num_seen = self._num_passed = 0
        share = (filter_counts - passed) / filter_counts
        told = f"{self._label} left out {100 * share:.2f} % of the last {filter_counts} elements."
        if self._limits.raises_from and share >= self._limits.raises_from:
            return FilterError(
                f"{told} `filter_raise_threshold_ratio` is {self._limits.raises_from}. Filter the "
                "data beforehand, or raise the ratio or set it to None in `DatasetOptions`."
            )
        if self._limits.warns_from and share >= self._limits.warns_from:
            _warn(self._label, told)
        return None


def _up_to(position: int, block: Block) -> Block:
    """Give the elements that are made of records up to a position."""
    if not len(block):
        return block
    origins = block.lineage.sparse().origins[:, 0]
    return block[: int(np.searchsorted(origins, position, side="right"))]


def _warn(label: str, told: str) -> None:
    now = time.monotonic()
    if now - _warned_at.get(label, -SECONDS_BETWEEN_WARNINGS) < SECONDS_BETWEEN_WARNINGS:
        return
    _warned_at[label] = now
    logger.warning(
        "%s If that is as meant, filter the data beforehand, or set "
        "`filter_warn_threshold_ratio=None` in `DatasetOptions`.",
        told,
    )
