"""Assignment of documents to bins, on plain integers.

This is the only part of packing that works document by document, because the bin of a document
depends on all documents before it. It sees only lengths, and many of them in one call.
"""

import operator
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeAlias, final

Lengths: TypeAlias = Sequence[list[int]]
"""For each feature, a number for each document."""


class Bins(ABC):
    """Bins that contain some documents."""

    @abstractmethod
    def assign(self, needs: Lengths, costs: Lengths, first: int) -> list[int]:
        """Return the bins of the documents from `first` on, up to one that fits in no bin.

        A document fits in a bin with room for what it `needs`, and uses what it `costs`, which is
        more if the next document must start at a multiple of an alignment.
        """


def _pairs(lengths: list[int], sizes: list[int], first: int) -> Iterator[tuple[int, int]]:
    """Return an iterator of both from `first` on, copying few of them if few are used."""
    spans = (slice(start, start + 64) for start in range(first, len(lengths), 64))
    return chain.from_iterable(zip(lengths[span], sizes[span], strict=True) for span in spans)


def open_bins(
    capacities: list[int],
    count: int,
    *,
    is_best_fit: bool = False,
    max_documents: int | None = None,
) -> Bins:
    """Return empty bins with a capacity for each feature, and at most `max_documents` each.

    >>> open_bins([4], 2).assign([[3, 2, 1, 2, 1]], [[3, 2, 1, 2, 1]], 0)
    [0, 1, 0, 1]
    """
    if len(capacities) > 1 or (is_best_fit and max_documents is not None):
        return _ScannedBins(capacities, count, is_best_fit=is_best_fit, max_documents=max_documents)
    if is_best_fit:
        return _SortedBins(capacities[0], count)
    return _StairBins(capacities[0], count, max_documents)


@final
class _StairBins(Bins):
    """First fit of one feature.

    The first bin with room for a document has more room than all bins before it. Few bins have:

        room  5 2 3 7 7 1 8       a staircase of 5, 7, 8 at the bins 0, 3, 6

    Bisection finds the bin, and when its room shrinks, only the bins up to the next step can become
    part of the staircase.
    """

    def __init__(self, capacity: int, count: int, max_documents: int | None) -> None:
        self._rooms = [capacity] * count
        self._left = None if max_documents is None else [max_documents] * count
        # The first step is below the room of any bin, and the last one begins after all bins.
        self._stair_rooms = [-1, capacity]
        self._stair_bins = [-1, 0, count]

    def assign(self, needs: Lengths, costs: Lengths, first: int) -> list[int]:
        rooms, left, heights, steps = self._rooms, self._left, self._stair_rooms, self._stair_bins
        (lengths,), (sizes,) = needs, costs
        placed: list[int] = []
        place, num_steps = placed.append, len(heights)
        for length, size in _pairs(lengths, sizes, first):
            step = bisect_left(heights, length)
            if step == num_steps:
                break
            chosen, old = steps[step], heights[step]
            place(chosen)
            room = old - size
            if left is not None:
                left[chosen] -= 1
                room = room if left[chosen] else -1
            rooms[chosen] = room
            floor, end = heights[step - 1], steps[step + 1]
            if room > floor:
                heights[step] = floor = room
                step += 1
            else:
                del heights[step], steps[step]
                num_steps -= 1
            for number in range(chosen + 1, end):
                room = rooms[number]
                if room > floor:
                    heights.insert(step, room)
                    steps.insert(step, number)
                    num_steps += 1
                    step += 1
                    if room == old:  # no bin before the next step has more
                        break
                    floor = room
        return placed


@final
class _SortedBins(Bins):
    """Best fit of one feature: the bin with the least sufficient room, the first of several."""

    def __init__(self, capacity: int, count: int) -> None:
        self._count = count
        self._keys = [capacity * count + number for number in range(count)]
        """Room and number of each bin as one integer, sorted."""

    def assign(self, needs: Lengths, costs: Lengths, first: int) -> list[int]:
        keys, count = self._keys, self._count
        (lengths,), (sizes,) = needs, costs
        placed: list[int] = []
        for length, size in _pairs(lengths, sizes, first):
            index = bisect_left(keys, length * count)
            if index == len(keys):
                break
            key = keys.pop(index)
            placed.append(key % count)
            left = key - size * count
            if left >= 0:  # otherwise not even an empty document fits
                keys.insert(bisect_left(keys, left, 0, index), left)
        return placed


@final
class _ScannedBins(Bins):
    """First or best fit of any number of features, by scanning all bins."""

    def __init__(
        self, capacities: list[int], count: int, *, is_best_fit: bool, max_documents: int | None
    ) -> None:
        self._capacities = capacities
        self._count = count
        self._is_best_fit = is_best_fit
        self._max_documents = max_documents
        self._first_rooms = [capacities[0]]  # of the bins in use and the next one
        self._rooms = [capacities]
        self._used = [0]
        self._numbers = [0]

    def assign(self, needs: Lengths, costs: Lengths, first: int) -> list[int]:
        choose = self._best if self._is_best_fit else self._first
        placed: list[int] = []
        for document in range(first, len(needs[0])):
            chosen = choose([lengths[document] for lengths in needs])
            if chosen < 0:
                break
            placed.append(chosen)
            self._add(chosen, [sizes[document] for sizes in costs])
        return placed

    def _first(self, need: list[int]) -> int:
        least, rooms = need[0], self._rooms
        for number, room in enumerate(self._first_rooms):
            if room >= least and all(map(operator.le, need, rooms[number])):
                return number
        return -1

    def _best(self, need: list[int]) -> int:
        least, rooms, used = need[0], self._rooms, self._used
        best, most_used = -1, -1
        for number, room in enumerate(self._first_rooms):
            if (
                room >= least
                and used[number] > most_used
                and all(map(operator.le, need, rooms[number]))
            ):
                best, most_used = number, used[number]
        return best

    def _add(self, chosen: int, cost: list[int]) -> None:
        self._numbers[chosen] += 1
        self._used[chosen] += sum(cost)
        room = list(map(operator.sub, self._rooms[chosen], cost))
        if self._numbers[chosen] == self._max_documents:
            # Grain's best fit treats a bin as open as long as it contains only empty documents.
            is_void = self._is_best_fit and not self._used[chosen]
            room = [0 if is_void else -1] * len(room)
        self._rooms[chosen], self._first_rooms[chosen] = room, room[0]
        if chosen + 1 == len(self._rooms) < self._count:
            self._first_rooms.append(self._capacities[0])
            self._rooms.append(self._capacities)
            self._used.append(0)
            self._numbers.append(0)
