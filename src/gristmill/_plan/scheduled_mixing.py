"""The arithmetic of mixing with weights that change: which dataset each element comes from.

With constant weights, of the first n elements the datasets after the first get their share, rounded
down (see `mixing.choose`). Here the stream consists of segments with constant weights. Each
continues with the fraction that rounding left in the one before, at every level. So a segment whose
weights are those of the one before changes nothing, and the shares are right however short the
segments are: even if the weights change with each element.
"""

import threading
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from gristmill._base.indices import as_indices, exact_up_to
from gristmill._data.sampling.shard_lengths import ENDLESS
from gristmill._plan.mix_schedule import MixSchedule, label_of
from gristmill.errors import PlanError
from gristmill.types import Indices

_MIN_TOTAL = 2**20
"""The weights of a segment add up to at least this, so that its fractions are that fine."""

MAX_STEPS = 2**21
"""A function is not asked for the weights of later steps: that would take half a minute."""

_CHUNK = 1024
"""The number of steps for which a function is called at a time."""


@final
class ScheduledMix:
    """Which dataset each element of a mix comes from, by a schedule.

    >>> mix = ScheduledMix(MixSchedule({0: [1, 0], 3: [1, 1]}), None, 2)
    >>> numbers, within = mix.choose(np.arange(8))
    >>> numbers.tolist(), within.tolist()
    ([0, 0, 0, 0, 1, 0, 1, 0], [0, 1, 2, 3, 0, 4, 1, 5])
    """

    def __init__(self, schedule: MixSchedule, names: Sequence[Any] | None, count: int) -> None:
        self._schedule = schedule
        self._names = names
        self._count = count
        self._lock = threading.Lock()
        self._segments = _Segments(count)
        """All segments of a table, or those of a function that are known. Only grows."""
        known = {} if schedule.steps is None else {step: self._at(step) for step in schedule.steps}
        self.label: str = label_of(schedule, known)
        """The weights, for the label of a node."""
        for step, shares in known.items():
            self._segments.add(step * schedule.step_size, shares)
        if schedule.steps is None:
            self._extend(1)  # so that a function that fails does so where the user wrote the mix

    def __reduce__(self) -> Any:  # without what is known, so that it is the same before and after
        return ScheduledMix, (self._schedule, self._names, self._count)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ScheduledMix) and self.__reduce__()[1] == other.__reduce__()[1]

    def __hash__(self) -> int:
        return hash((self.label, self._count))

    def choose(self, indices: Indices) -> tuple[Indices, Indices]:
        """Return the number of the dataset of each mixed element, and the element's index there."""
        if len(indices):
            self._extend(int(indices.max()) + 1)
        return self._segments.choose(indices)

    def choose_run(self, indices: range) -> tuple[Indices, Indices]:
        """Return the same for consecutive indices."""
        return self.choose(as_indices(indices))

    def length(self, lengths: Sequence[int]) -> int:
        """Return the number of mixed elements up to the first that its dataset does not have.

        Args:
            lengths: The length of each dataset.
        """
        if min(lengths) >= ENDLESS:
            return ENDLESS
        end = _CHUNK * self._schedule.step_size
        while True:
            self._extend(end)
            found = self._segments.length(lengths, end)
            if found is not None:
                return min(found, ENDLESS)
            if self._schedule.steps is not None and end > 2**63:
                return ENDLESS  # what is left has no share
            end *= 4

    def _extend(self, end: int) -> None:
        """Find the weights of all elements before `end`."""
        schedule = self._schedule
        if schedule.steps is not None or end <= self._segments.end:
            return
        size = schedule.step_size
        num_steps = -(-end // size)
        if num_steps > MAX_STEPS:
            raise PlanError(
                f"The weights of {num_steps} steps are needed, for which the function would be "
                f"called as often. Pass a table of steps and weights, or a larger `step_size`."
            )
        with self._lock:  # threads may read at the same time
            first = self._segments.end // size
            for step in range(first, -(-num_steps // _CHUNK) * _CHUNK):
                try:
                    shares = self._at(step)
                except Exception:
                    if step < num_steps:
                        raise
                    break  # a step that is not needed yet, perhaps never
                self._segments.add(step * size, shares, until=(step + 1) * size)

    def _at(self, step: int) -> tuple[int, ...]:
        shares = self._schedule.proportions(step, self._names, self._count)
        scale = -(-_MIN_TOTAL // sum(shares))
        return tuple(share * scale for share in shares)


@final
class _Segments:
    """Segments with constant weights: where each starts, and what was taken before.

    Level d divides what the datasets before d left between dataset d and those after it.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: list[tuple[int, tuple[int, ...], list[int], list[int]]] = []
        """Of each segment: start, shares, phases by level, and elements taken of each dataset."""
        self._arrays: tuple[int, tuple[Indices, ...]] = (0, ())
        self._fractions = [(0, 1)] * count
        """What rounding left at each level so far."""
        self.end = 0
        """The end of the segments that are known."""

    def add(self, start: int, shares: tuple[int, ...], *, until: int | None = None) -> None:
        """Add the next segment, or extend the last one if it has the same weights."""
        self.end = start if until is None else until
        if self._rows and self._rows[-1][1] == shares:
            return
        taken = [0] * self._count
        if self._rows:
            taken = self._taken_until(start)
        phases: list[int] = []
        for level, (part, whole) in enumerate(self._fractions):
            total = sum(shares[level:])
            phases.append(min((2 * part * total + whole) // (2 * whole), max(total - 1, 0)))
        self._rows.append((start, shares, phases, taken))

    def _taken_until(self, end: int) -> list[int]:
        """Return the elements of each dataset before `end`, and note what rounding leaves there."""
        start, shares, phases, before = self._rows[-1]
        left, taken = end - start, list(before)
        for level, share in enumerate(shares):
            total = sum(shares[level:])
            if not total:
                break
            others, rest = divmod(left * (total - share) + phases[level], total)
            self._fractions[level] = (rest, total)
            taken[level] += left - others
            left = others
        return taken

    def choose(self, indices: Indices) -> tuple[Indices, Indices]:
        starts, shares, totals, phases, taken = self._as_arrays()
        segments = np.maximum(np.searchsorted(starts, indices, side="right") - 1, 0)
        before = indices - starts[segments]
        before = exact_up_to(before, 2**61 // int(totals.max()))
        after = before + 1
        numbers = np.zeros(len(indices), dtype=np.int64)
        within = np.zeros(len(indices), dtype=before.dtype)
        rows = np.arange(len(indices))
        for level in range(self._count):
            total = np.maximum(totals[segments, level], 1)
            rest = total - shares[segments, level]
            phase = phases[segments, level]
            others_before = (before * rest + phase) // total
            others_after = (after * rest + phase) // total
            is_here = others_before == others_after
            chosen = rows[is_here]
            numbers[chosen] = level
            within[chosen] = (before - others_before)[is_here] + taken[segments[is_here], level]
            is_later = ~is_here
            rows, segments = rows[is_later], segments[is_later]
            before, after = others_before[is_later], others_after[is_later]
        return numbers, as_indices(within)

    def length(self, lengths: Sequence[int], end: int) -> int | None:
        """Return the length of the mix if it is below `end`."""

        def fits(count: int) -> bool:
            number = max(int(np.searchsorted(starts, count, side="right")) - 1, 0)
            start, shares, phases, taken = self._rows[number]
            left = count - start
            for level, share in enumerate(shares):
                total = sum(shares[level:])
                others = (left * (total - share) + phases[level]) // total if total else left
                if taken[level] + left - others > lengths[level]:
                    return False
                left = others
            return True

        starts = self._as_arrays()[0]
        if fits(end):
            return None
        low, high = 0, end  # `low` fits, `high` does not
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def _as_arrays(self) -> tuple[Indices, ...]:
        """Return starts, shares, totals, phases and taken elements of all segments as arrays."""
        count, arrays = self._arrays
        rows = self._rows[:]  # another thread may add to it
        if count != len(rows):
            starts, shares, phases, taken = (np.array(column) for column in zip(*rows, strict=True))
            totals = np.cumsum(shares[:, ::-1], axis=1)[:, ::-1]
            arrays = starts, shares, totals, phases, taken
            self._arrays = len(rows), arrays
        return arrays
