"""Pack documents into bins, by first fit or best fit, and emit the bins as rows."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.columns import split_rows
from gristmill._base.trees.tree import flatten, sorted_keys, with_sorted_keys
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import Mark, StatefulStage
from gristmill._engine.stateful.packing.bins import open_bins
from gristmill._engine.stateful.packing.layout import (
    RowLayout,
    as_documents,
    column_of,
    not_packable,
    too_long,
)
from gristmill._plan.nodes.packing import PackedFeature, PackNode
from gristmill.errors import PlanError
from gristmill.types import Element, Tree


@final
class PackStage(StatefulStage):
    """Puts documents into bins, and emits all bins when a document fits in none of them.

    The state is the cursor before the first document of the open bins, the number of rows of these
    bins that were emitted, and the number of all rows so far; if rows of these bins were emitted,
    also the number of documents in the bins and the cursor after them.
    """

    def __init__(self, node: PackNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._open_bins(_BinsStart(self._buffer.mark(), 0, 0, 0))

    def first_state(self) -> Any:
        return [self._buffer.stage.start, 0, 0]

    def restore(self, state: Any) -> None:
        below, row, counter, *pending = state
        self._buffer.seek(below)
        start = _BinsStart(self._buffer.mark(), 0, row, counter, pending=tuple(pending))
        self._open_bins(start)

    def pull(self) -> BlockResult | None:
        """Put the buffered elements into bins; that need not fill them."""
        packed = _PackedRows(self._start)
        if not self._buffer.fill():
            error = self._buffer.error
            if error is None and not self._bundle.bins:
                return None
            if error is None:
                error = self._emit_bins(packed, self._buffer.mark(), 0)
            return self.emit(packed.rows, packed.state_after, error)
        mark = self._buffer.mark()
        elements = self._buffer.take(self._buffer.count)
        documents, failed = _read_documents(self._node, elements)
        first = 0
        while first < len(documents):
            placed = self._bins.assign(documents.needs, documents.costs, first)
            if self._start.pending:
                # Where the bins were closed: the document that did not fit may be excluded since.
                placed = placed[: max(1, self._start.pending[0]) - len(self._bundle.bins)]
            self._bundle.add(documents, first, placed)
            first += len(placed)
            if first < len(documents):
                error = self._emit_bins(packed, mark, first)
                if error is not None:
                    return self.emit(packed.rows, packed.state_after, error)
        return self.emit(packed.rows, packed.state_after, failed)

    def _open_bins(self, start: "_BinsStart") -> None:
        self._start = start
        self._bins = open_bins(
            [feature.length for feature in self._node.features],
            self._node.num_bins,
            is_best_fit=self._node.is_best_fit,
            max_documents=self._node.max_documents,
        )
        self._bundle = _Documents.none(self._node)

    def _emit_bins(self, packed: "_PackedRows", mark: Mark, offset: int) -> BaseException | None:
        """Emit the rows of the bins, and open empty ones at the document that did not fit."""
        node, start = self._node, self._start
        first = start.counter - start.row
        try:
            arrays = self._bundle.packed(node)
            rows = split_rows(arrays, self._bundle.num_rows)
            if node.shuffles_bins:
                order = _shuffled(len(rows), node.seed + first, arrays, node.group_by)
                rows = [rows[number] for number in order]
        except Exception as error:
            add_note_once(error, f"In {node.label}, added at {node.site}.")
            return error
        self._open_bins(_BinsStart(mark, offset, 0, first + len(rows), len(self._bundle.bins)))
        packed.add(rows[start.row :], self._start)
        return None


@final
@dataclass(frozen=True, slots=True)
class _BinsStart:
    """A position: the start of the open bins, their next row, and its number in the stream."""

    mark: Mark
    offset: int
    row: int
    counter: int
    num_before: int = 0
    """Number of documents in the previous bins."""
    pending: tuple[Any, ...] = ()
    """The last two fields of the state it was restored from."""


@final
class _PackedRows:
    """Rows to emit, and the positions between the bins they come from."""

    def __init__(self, start: _BinsStart) -> None:
        self.rows: list[Element] = []
        self._firsts = [0]
        self._starts = [start]

    def add(self, rows: list[Element], start: _BinsStart) -> None:
        """Add rows, and the position after them."""
        self.rows += rows
        self._firsts.append(len(self.rows))
        self._starts.append(start)

    def state_after(self, count: int) -> Any:
        """Return the state after `count` rows."""
        number = bisect_right(self._firsts, count) - 1
        start, row = self._starts[number], count - self._firsts[number]
        row, counter = start.row + row, start.counter + row
        below = start.mark.after(start.offset)
        if not row:
            return [below, row, counter]
        if number + 1 == len(self._starts):  # restored, and no row was emitted yet
            return [below, row, counter, *start.pending]
        end = self._starts[number + 1]
        return [below, row, counter, end.num_before, end.mark.after(end.offset)]


@final
@dataclass(slots=True)
class _Documents:
    """Documents, feature by feature, and their bins."""

    columns: list[list[NDArray[Any]]]
    needs: list[list[int]]
    """Length of each document."""
    costs: list[list[int]]
    """Length of each document up to where the next one may start."""
    listed: list[list[Any]]
    """Features that are not packed."""
    bins: list[int]

    @staticmethod
    def none(node: PackNode) -> "_Documents":
        """Return an empty collection for a node."""
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
        """Number of bins with a document."""
        return max(self.bins) + 1

    def add(self, others: "_Documents", first: int, bins: list[int]) -> None:
        """Add documents of another collection, starting with `first`, to bins."""
        chosen = slice(first, first + len(bins))
        self.bins += bins
        for mine, theirs in (
            *zip(self.columns, others.columns, strict=True),
            *zip(self.needs, others.needs, strict=True),
            *zip(self.listed, others.listed, strict=True),
        ):
            mine += theirs[chosen]

    def packed(self, node: PackNode) -> Tree:
        """Return the bins as arrays with one row each, with segment ids and positions."""
        bins = np.array(self.bins, dtype=np.int64)
        order = np.argsort(bins, kind="stable")
        reorder = _picker(order.tolist())
        counts = np.bincount(bins)
        values: list[Any] = []
        added: dict[str, Any] = {}
        for feature, column, needs in zip(node.features, self.columns, self.needs, strict=True):
            layout = RowLayout(
                np.array(needs, dtype=np.int64)[order],
                counts=counts,
                length=feature.length,
                alignment=feature.alignment,
            )
            values.append(layout.values(feature, reorder(column)))
            if not feature.is_meta:
                added[f"{feature.name}_segment_ids"] = layout.segment_ids()
                added[f"{feature.name}_positions"] = layout.positions()
        lists = {
            name: _per_row(reorder(column), counts.tolist())
            for name, column in zip(node.listed_features, self.listed, strict=True)
        }
        packed = with_sorted_keys(flatten(node.length_struct)[1](values))
        row: dict[Any, Any] = {**packed, **lists, **added}
        return {name: row[name] for name in sorted_keys(row)}


def _read_documents(
    node: PackNode, elements: list[Element]
) -> tuple[_Documents, BaseException | None]:
    """Return the features of elements up to one that cannot be packed, and its error."""
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
                f"`meta_features` has {name!r}, but an element does not. Add the feature in a map "
                "before packing, or remove it from `meta_features`."
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


def _picker(order: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Return a function that returns the items with these numbers."""
    return itemgetter(*order) if len(order) > 1 else lambda items: [items[row] for row in order]


def _per_row(values: Sequence[Any], counts: list[int]) -> NDArray[np.object_]:
    """Return an array of lists: the next `counts[row]` values for each row."""
    made = np.empty(len(counts), dtype=object)
    end = 0
    for row, count in enumerate(counts):
        made[row] = list(values[end : end + count])
        end += count
    return made


def _shuffled(count: int, seed: int, arrays: Tree, group_by: str | None) -> list[int]:
    """Return a random order of rows, sorted by the mean of their groups if there are any."""
    drawn: list[int] = np.random.default_rng(seed).permuted(np.arange(count)).tolist()
    if group_by is None:
        return drawn
    return sorted(range(count), key=lambda row: (_mean_group(arrays[group_by][row]), drawn[row]))


def _mean_group(row: NDArray[Any]) -> float:
    """Return the mean of the distinct nonzero values of a row."""
    groups = np.unique(row)
    with np.errstate(divide="ignore", invalid="ignore"):  # 0 if there are none
        return float(np.nan_to_num(np.sum(groups) / np.count_nonzero(groups), nan=0.0))
