"""Pack documents into bins, and give the bins as rows."""

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import split_rows
from gristmill._tree import flatten
from gristmill.errors import PlanError
from gristmill.execute._bins import open_bins
from gristmill.execute._blame import add_note_once
from gristmill.execute._outcome import Outcome
from gristmill.execute._rows import Layout, as_documents, column_of, not_packable, too_long
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import Mark, StatefulStage
from gristmill.plan import PackedFeature, PackNode
from gristmill.types import Element, Tree


@final
class PackStage(StatefulStage):
    """Puts documents into bins, and gives all bins once one fits into none.

    The state is where the first document of the open bins is, how many rows of these bins were
    given, and how many rows in all; if any were given, how many documents are in the bins, and the
    cursor after them.
    """

    def __init__(self, node: PackNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._begin(_Place(self._intake.mark(), 0, 0, 0))

    def first_state(self) -> Any:
        return [self._intake.stage.start, 0, 0]

    def restore(self, state: Any) -> None:
        below, row, counter, *pending = state
        self._intake.seek(below)
        place = _Place(self._intake.mark(), 0, row, counter, pending=tuple(pending))
        self._begin(place)

    def pull(self) -> Outcome | None:
        """Put what is at hand into bins; that need not fill them."""
        given = _Given(self._place)
        if not self._intake.fill():
            error = self._intake.error
            if error is None and not self._bundle.bins:
                return None
            if error is None:
                error = self._give_bins(given, self._intake.mark(), 0)
            return self.give(given.rows, given.state_after, error)
        mark = self._intake.mark()
        elements = self._intake.take(self._intake.count)
        documents, failed = _take_documents(self._node, elements)
        first = 0
        while first < len(documents):
            placed = self._bins.place(documents.needs, documents.costs, first)
            self._bundle.add(documents, first, placed)
            first += len(placed)
            if first < len(documents):
                error = self._give_bins(given, mark, first)
                if error is not None:
                    return self.give(given.rows, given.state_after, error)
        return self.give(given.rows, given.state_after, failed)

    def _begin(self, place: "_Place") -> None:
        self._place = place
        self._bins = open_bins(
            [feature.length for feature in self._node.features],
            self._node.num_bins,
            is_best_fit=self._node.is_best_fit,
            most=self._node.max_documents,
        )
        self._bundle = _Documents.none(self._node)

    def _give_bins(self, given: "_Given", mark: Mark, offset: int) -> BaseException | None:
        """Give the rows of the bins, and begin with empty ones at the document that did not fit."""
        node, place = self._node, self._place
        first = place.counter - place.row
        try:
            arrays = self._bundle.packed(node)
            rows = split_rows(arrays, self._bundle.num_rows)
            if node.shuffles_bins:
                order = _shuffled(len(rows), node.seed + first, arrays, node.group_by)
                rows = [rows[number] for number in order]
        except Exception as error:
            add_note_once(error, f"In {node.label}, added at {node.site}.")
            return error
        self._begin(_Place(mark, offset, 0, first + len(rows), len(self._bundle.bins)))
        given.add(rows[place.row :], self._place)
        return None


@final
@dataclass(frozen=True, slots=True)
class _Place:
    """A place in the stream: where the bins begin, the row that comes next, its number in all."""

    mark: Mark
    offset: int
    row: int
    counter: int
    num_before: int = 0
    """How many documents are in the bins before."""
    pending: tuple[Any, ...] = ()
    """What the state it was restored from said of the documents in these bins."""


@final
class _Given:
    """Rows to give, and the places between the bins they come from."""

    def __init__(self, place: _Place) -> None:
        self.rows: list[Element] = []
        self._firsts = [0]
        self._places = [place]

    def add(self, rows: list[Element], place: _Place) -> None:
        """Give rows, after which the stream is at a place."""
        self.rows += rows
        self._firsts.append(len(self.rows))
        self._places.append(place)

    def state_after(self, count: int) -> Any:
        """Give the state after so many rows."""
        number = bisect_right(self._firsts, count) - 1
        place, row = self._places[number], count - self._firsts[number]
        row, counter = place.row + row, place.counter + row
        below = place.mark.after(place.offset)
        if not row:
            return [below, row, counter]
        if number + 1 == len(self._places):  # restored, and nothing was given yet
            return [below, row, counter, *place.pending]
        end = self._places[number + 1]
        return [below, row, counter, end.num_before, end.mark.after(end.offset)]


@final
@dataclass(slots=True)
class _Documents:
    """Documents feature by feature, and the bins they are in."""

    columns: list[list[NDArray[Any]]]
    needs: list[list[int]]
    """How long each is."""
    costs: list[list[int]]
    """How much of a row each takes, up to where the next may begin."""
    listed: list[list[Any]]
    """The features that are not packed."""
    bins: list[int]

    @staticmethod
    def none(node: PackNode) -> "_Documents":
        """Give no documents of a node."""
        return _Documents(
            [[] for _ in node.features],
            [[] for _ in node.features],
            [],
            [[] for _ in node.listed_features],
            [],
        )

    def __len__(self) -> int:
        return len(self.needs[0])

    @property
    def num_rows(self) -> int:
        """How many bins have a document."""
        return max(self.bins) + 1

    def add(self, others: "_Documents", first: int, bins: list[int]) -> None:
        """Take some of others, which go into bins."""
        part = slice(first, first + len(bins))
        self.bins += bins
        for mine, theirs in (
            *zip(self.columns, others.columns, strict=True),
            *zip(self.needs, others.needs, strict=True),
            *zip(self.listed, others.listed, strict=True),
        ):
            mine += theirs[part]

    def packed(self, node: PackNode) -> Tree:
        """Give the bins as arrays, a row for each, with their ids and positions."""
        bins = np.array(self.bins, dtype=np.int64)
        order: list[int] = np.argsort(bins, kind="stable").tolist()
        counts = np.bincount(bins)
        values: list[Any] = []
        added: dict[str, Any] = {}
        for feature, column, needs in zip(node.features, self.columns, self.needs, strict=True):
            layout = Layout(
                np.array(needs, dtype=np.int64)[order],
                counts=counts,
                length=feature.length,
                alignment=feature.alignment,
            )
            values.append(layout.values(feature, [column[number] for number in order]))
            if not feature.is_meta:
                added[f"{feature.name}_segment_ids"] = layout.segment_ids()
                added[f"{feature.name}_positions"] = layout.positions()
        lists = {
            name: _per_row([column[number] for number in order], counts.tolist())
            for name, column in zip(node.listed_features, self.listed, strict=True)
        }
        return {**flatten(node.length_struct)[1](values), **lists, **added}


def _take_documents(
    node: PackNode, elements: list[Element]
) -> tuple[_Documents, BaseException | None]:
    """Take the features from elements, up to one that cannot be packed, and that error."""
    documents = _Documents.none(node)
    end, error = len(elements), None
    for number, feature in enumerate(node.features):
        column = as_documents(column_of(feature, elements[:end]), takes_bool_for_int=True)
        if len(column) < end:
            end, error = len(column), not_packable(feature, elements[len(column)])
        needs = list(map(len, column))
        if needs and max(needs) > feature.length:
            end = next(row for row, need in enumerate(needs) if need > feature.length)
            error = too_long(feature, needs[end])
        documents.columns[number], documents.needs[number] = column, needs
    for number, name in enumerate(node.listed_features):
        listed = PackedFeature(path=(name,), length=1)
        documents.listed[number] = column_of(listed, elements[:end])
        if len(documents.listed[number]) < end:
            end = len(documents.listed[number])
            error = PlanError(
                f"`meta_features` has {name!r}, and an element has not. Add the feature in a map "
                "before, or take it out of `meta_features`."
            )
    if error is not None:
        add_note_once(error, f"In {node.label}, added at {node.site}.")
        for column in (*documents.columns, *documents.needs, *documents.listed):
            del column[end:]
    documents.costs = [
        needs if feature.alignment == 1 else _rounded_up(needs, feature.alignment)
        for feature, needs in zip(node.features, documents.needs, strict=True)
    ]
    return documents, error


def _rounded_up(needs: list[int], alignment: int) -> list[int]:
    return [-(-need // alignment) * alignment for need in needs]


def _per_row(values: list[Any], counts: list[int]) -> NDArray[np.object_]:
    """Give an array of lists: the next so many values for each row."""
    made = np.empty(len(counts), dtype=object)
    end = 0
    for row, count in enumerate(counts):
        made[row] = values[end : end + count]
        end += count
    return made


def _shuffled(count: int, seed: int, arrays: Tree, group_by: str | None) -> list[int]:
    """Give the order of rows: drawn, and by the mean of their groups if they have any."""
    drawn: list[int] = np.random.default_rng(seed).permuted(range(count)).tolist()
    if group_by is None:
        return drawn
    return sorted(range(count), key=lambda row: (_mean_group(arrays[group_by][row]), drawn[row]))


def _mean_group(row: NDArray[Any]) -> float:
    """Give the mean of the different values of a row that are not zero."""
    groups = np.unique(row)
    with np.errstate(divide="ignore", invalid="ignore"):  # of none at all it is 0
        return float(np.nan_to_num(np.sum(groups) / np.count_nonzero(groups), nan=0.0))
