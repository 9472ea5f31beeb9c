"""Concatenate documents, and split them where a row is full."""

import operator
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.columns import split_rows
from gristmill._engine.blocks.block import BlockResult
from gristmill._engine.blocks.error_notes import add_note_once
from gristmill._engine.stages.base import Stage
from gristmill._engine.stateful.base import Mark, StatefulStage
from gristmill._engine.stateful.packing.layout import (
    RowLayout,
    as_documents,
    column_of,
    not_packable,
)
from gristmill._plan.nodes.packing import ConcatSplitNode, PackedFeature
from gristmill.errors import PlanError, StateError
from gristmill.types import Element

Document: TypeAlias = tuple[NDArray[Any], ...]
"""The features of one element."""

Cuts: TypeAlias = tuple[tuple[int, int], ...]
"""Start and end of a fragment of a document, for each feature."""

Columns: TypeAlias = list[list[NDArray[Any]]]
"""For each feature, documents or fragments of them."""


MAX_TOKENS_PER_CALL = 1 << 17
"""Tokens copied into rows in one call; more would not stay in the processor's cache."""


class _RowStart(NamedTuple):
    """The start of a row."""

    mark: Mark
    offset: int
    """Offset of the next document from the mark."""
    remaining: Cuts | None = None
    """The remaining fragment of that document, if it was split."""
    row: int = 0
    """Number of emitted rows of those that start here."""
    number: int = 0
    """Number of documents before it."""
    end: "_RowStart | None" = None
    """End of the rows that start here, if some were emitted."""
    pending: tuple[Any, ...] = ()
    """The last two fields of the state it was restored from."""

    def state(self) -> Any:
        """Return the position as a state."""
        state = [self.mark.after(self.offset), self.remaining, self.row]
        if self.pending:
            return [*state, *self.pending]
        end = self.end or self
        is_cut = end.remaining is not None
        count = end.number - self.number + is_cut
        return [*state, count, end.mark.after(end.offset + is_cut)] if count else state


@final
class ConcatSplitStage(StatefulStage):
    """Fills one row at a time. The rest of a document that does not fit starts the next row.

    Documents that fill a whole row can be kept whole: their rows follow the row that is open at the
    time. The state is the cursor before the open row, the remaining fragment of the document there
    if it was split, and the number of emitted rows of those that belong to it; if some documents
    were emitted in part, also their number and the cursor after them.
    """

    def __init__(self, node: ConcatSplitNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._buffer = self._inputs[0]
        self._filler = _Filler(node, _RowStart(self._buffer.mark(), 0))

    def first_state(self) -> Any:
        return [self._buffer.stage.start, None, 0]

    def restore(self, state: Any) -> None:
        below, remaining, row, *pending = state
        self._buffer.seek(below)
        cuts = None if remaining is None else tuple((start, end) for start, end in remaining)
        start = _RowStart(self._buffer.mark(), 0, cuts, row, pending=tuple(pending))
        self._filler = _Filler(self._node, start)

    def pull(self) -> BlockResult | None:
        """Put the buffered elements into rows; that need not fill one."""
        filler, error = self._filler, None
        if self._buffer.fill():
            mark = self._buffer.mark()
            elements = self._buffer.take(self._buffer.count)
            columns, scalars, failed = _read_documents(self._node, elements)
            error = filler.add(mark, columns, scalars) or failed
        elif self._buffer.error is not None:
            return self.emit([], lambda _: None, self._buffer.error)
        elif not filler.end(_RowStart(self._buffer.mark(), 0, number=filler.num_documents)):
            return None
        rows, starts = filler.take()
        made, wrong = _make_rows(self._node, rows)
        error = wrong or error
        if error is not None:
            add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
        return self.emit(made, lambda count: starts[count].state(), error)


@final
class _Filler:
    """The open row and the full ones."""

    def __init__(self, node: ConcatSplitNode, start: _RowStart) -> None:
        self._features = node.features
        self._lengths = [feature.length for feature in node.features]
        self._metas = [feature.is_meta for feature in node.features]
        self._keeps_full_rows = not node.splits_full_length
        self._is_single = self._metas == [False] and not self._keeps_full_rows
        self.num_documents = 0
        """Number of documents so far."""
        self._start = start
        self._skip = start.row
        self._remaining = start.remaining
        """The remaining fragment of the next document."""
        self._open: Columns = [[] for _ in self._lengths]
        self._filled = [0] * len(self._lengths)
        self._full_rows: list[Columns] = []
        self._rows: list[Columns] = []
        self._starts = [start]

    def take(self) -> tuple[list[Columns], list[_RowStart]]:
        """Remove and return the full rows, and the positions before, between and after them."""
        taken = self._rows, self._starts
        self._rows, self._starts = [], [self._starts[-1]]
        return taken

    def end(self, start: _RowStart) -> bool:
        """Close the last row, if there is one."""
        if not (self._open[0] or self._full_rows):
            return False
        self._close(start)
        return True

    def add(
        self, mark: Mark, columns: Columns, scalars: list[list[bool]] | None
    ) -> PlanError | None:
        """Put documents into rows; `scalars` marks the features that were not arrays, if any."""
        before = self.num_documents
        if not before and self._remaining is not None and len(columns[0]):
            self._check_restored([len(column[0]) for column in columns])
        self.num_documents += len(columns[0])
        if self._is_single:
            self._add_tokens(mark, columns[0], before)
            return None
        for number, document in enumerate(zip(*columns, strict=True)):
            whole = self._metas
            if scalars is not None:
                whole = [one or other for one, other in zip(whole, scalars[number], strict=True)]
            lengths = list(map(len, document))
            if self._remaining is None and self._keeps_full_rows and self._is_full(lengths):
                self._full_rows.append([[values] for values in document])
                continue
            start = _RowStart(mark, number, number=before + number)
            limiting = _first_of(list(map(operator.gt, lengths, self._lengths)), self._metas)
            if limiting is not None:  # it does not fit in any row
                self.end(start._replace(remaining=self._remaining))
                return _too_long(self._features[limiting], lengths[limiting])
            error = self._add(start, document, lengths, whole)
            if error is not None:
                return error
        return None

    def _check_restored(self, lengths: list[int]) -> None:
        """Check that a state splits the document that it is at, whose length is known only now."""
        if [end for _, end in self._remaining or ()] != lengths:
            raise StateError(
                f"The state is corrupt: it splits a document of other lengths than {lengths}. "
                "Restore an earlier checkpoint."
            )

    def _close(self, start: _RowStart) -> None:
        """Close the open row; the next one starts at `start`."""
        rows = [self._open, *self._full_rows] if self._open[0] else self._full_rows
        self._rows += rows[self._skip :]
        for row in range(self._skip + 1, len(rows)):
            self._starts.append(self._start._replace(row=row, end=start, pending=()))
        self._starts.append(start)
        self._start, self._skip = start, 0
        self._open, self._full_rows = [[] for _ in self._lengths], []
        self._filled = [0] * len(self._lengths)

    def _add_tokens(self, mark: Mark, documents: list[NDArray[Any]], num_before: int) -> None:
        """Do as `_add` for documents of one feature, handling only split ones one by one."""
        (length,) = self._lengths
        before = 0 if self._remaining is None else self._remaining[0][0]
        # Starts of the documents, counted from the start of the open row.
        starts = list(accumulate(map(len, documents), initial=self._filled[0] - before))
        number, limit = 0, length
        self._remaining = None
        while starts[-1] > limit:
            first, number = number, bisect_right(starts, limit, number) - 1
            self._open[0] += _between(documents, starts, first, number, limit - length)
            cut = limit - starts[number]
            if cut:
                self._open[0].append(documents[number][max(0, cut - length) : cut])
            remaining = ((cut, len(documents[number])),) if cut else None
            self._close(_RowStart(mark, number, remaining, number=num_before + number))
            limit += length
        self._open[0] += _between(documents, starts, number, len(documents), limit - length)
        self._filled[0] = starts[-1] - limit + length

    def _add(
        self, start: _RowStart, document: Document, lengths: list[int], whole: list[bool]
    ) -> PlanError | None:
        """Put a document, or its remaining fragment, into the open row and further rows."""
        remaining, self._remaining = self._remaining, None
        rooms = list(map(operator.sub, self._lengths, self._filled))
        fragments: list[tuple[Cuts | None, Cuts | None]] = []  # each with the fragment after it
        while True:
            cuts = remaining or tuple((0, length) for length in lengths)
            sizes = _sizes(cuts, lengths, whole)
            if all(map(operator.le, sizes, rooms)):
                break
            over = list(map(operator.gt, sizes, rooms))
            points = self._cut_points(cuts, sizes, rooms)
            fragment = None
            if _first_of(over, self._metas) is None and any(points):
                uncut = _first_of(over, whole)
                if uncut is not None:
                    return _cut_scalar(self._features[uncut])
                fragment, remaining = _divide(cuts, points, lengths, whole)
            fragments.append((fragment, remaining))
            rooms = self._lengths
        for fragment, left in fragments:
            if fragment is not None:
                self._append(document, fragment)
            self._close(start._replace(remaining=left))
        self._append(document, remaining)
        self._filled = list(map(operator.add, self._filled, sizes))
        return None

    def _cut_points(self, cuts: Cuts, sizes: list[int], rooms: list[int]) -> list[int]:
        """Return where to split each feature; meta features are not split.

        For a feature that fits in its row, the point counts from the start of the document, even if
        part of it is in an earlier row, as in Grain, so that rows are the same. Unlike in Grain, it
        never moves back, which would emit tokens twice.
        """
        return [
            0 if is_meta else start + room if size > room else max(start, size)
            for (start, _), size, room, is_meta in zip(cuts, sizes, rooms, self._metas, strict=True)
        ]

    def _append(self, document: Document, cuts: Cuts | None) -> None:
        for number, values in enumerate(document):
            group = values if cuts is None else values[slice(*cuts[number])]
            self._open[number].append(group)

    def _is_full(self, lengths: list[int]) -> bool:
        """Return whether a document fills a whole row."""
        return max(map(operator.sub, lengths, self._lengths)) == 0


def _first_of(over: list[bool], whole: list[bool]) -> int | None:
    """Return the first feature that exceeds its row and cannot be split, if there is one."""
    both = [is_over and is_whole for is_over, is_whole in zip(over, whole, strict=True)]
    return both.index(True) if True in both else None


def _between(
    documents: list[NDArray[Any]], starts: list[int], first: int, end: int, row_start: int
) -> list[NDArray[Any]]:
    """Return documents `first` to `end`, the first one without its part in earlier rows."""
    fragments = documents[first:end]
    if fragments and starts[first] < row_start:
        fragments[0] = fragments[0][row_start - starts[first] :]
    return fragments


def _sizes(cuts: Cuts, lengths: list[int], whole: list[bool]) -> list[int]:
    return [
        length if is_whole else max(0, end - start)
        for (start, end), length, is_whole in zip(cuts, lengths, whole, strict=True)
    ]


def _divide(
    cuts: Cuts, points: list[int], lengths: list[int], whole: list[bool]
) -> tuple[Cuts, Cuts]:
    """Return the fragments before and after the split points; unsplit features are in both."""
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    for (start, end), point, length, is_whole in zip(cuts, points, lengths, whole, strict=True):
        before.append((0, length) if is_whole else (start, point))
        after.append((0, length) if is_whole else (point, end))
    return tuple(before), tuple(after)


def _read_documents(
    node: ConcatSplitNode, elements: list[Element]
) -> tuple[Columns, list[list[bool]] | None, PlanError | None]:
    """Return the features of elements up to one with other features, and its error.

    The second result marks the features that are scalars, if any element has some.
    """
    columns: Columns = []
    scalars: list[list[bool]] = []
    end, error = len(elements), None
    for feature in node.features:
        column = column_of(feature, elements[:end])
        documents = as_documents(column, takes_bool_for_int=False)
        if len(documents) < end:
            end, error = len(documents), not_packable(feature, elements[len(documents)])
        columns.append(documents)
        is_plain = documents is column
        scalars.append([not is_plain and np.ndim(value) == 0 for value in column[:end]])
    sizes = list(map(len, elements[:end]))
    if sizes and max(sizes) > len(columns):
        end = next(row for row, size in enumerate(sizes) if size > len(columns))
        error = _other_features(node, elements[end])
    columns = [column[:end] for column in columns]
    if not any(map(any, scalars)):
        return columns, None, error
    return columns, [list(flags) for flags in zip(*scalars, strict=False)], error


def _make_rows(
    node: ConcatSplitNode, rows: list[Columns]
) -> tuple[list[Element], BaseException | None]:
    """Build rows, up to one that fails, and return its error."""
    max_rows = max(1, MAX_TOKENS_PER_CALL // max(feature.length for feature in node.features))
    made: list[Element] = []
    for first in range(0, len(rows), max_rows):
        group = rows[first : first + max_rows]
        try:
            made += _make_alike(node, group)
        except Exception:  # emit the rows before the failing one
            for row in group:
                try:
                    made += _make_alike(node, [row])
                except Exception as error:
                    return made, error
    return made, None


def _make_alike(node: ConcatSplitNode, rows: list[Columns]) -> list[Element]:
    """Build rows, all at once if their first documents have one type and shape."""
    kinds = {
        tuple((fragments[0].dtype, fragments[0].shape[1:]) for fragments in row) for row in rows
    }
    if len(kinds) > 1:
        return [made for row in rows for made in _make_alike(node, [row])]
    counts = np.array([len(row[0]) for row in rows], dtype=np.int64)
    arrays: dict[str, Any] = {}
    for number, feature in enumerate(node.features):
        fragments = [group for row in rows for group in row[number]]
        lengths = np.array(list(map(len, fragments)), dtype=np.int64)
        layout = RowLayout(lengths, counts=counts, length=feature.length)
        values = layout.values(feature, fragments)
        if feature.name in node.bos_features:
            flat = values.reshape(-1, *values.shape[2:])
            flat[layout.starts[layout.starts < len(flat)]] = node.bos_token
        arrays[feature.name] = values
        if not feature.is_meta:
            arrays[f"{feature.name}_segment_ids"] = layout.segment_ids()
            arrays[f"{feature.name}_positions"] = layout.positions()
    return split_rows(arrays, len(rows))


def _too_long(feature: PackedFeature, length: int) -> PlanError:
    return PlanError(
        f"Meta feature {feature.name!r} of an element has length {length}, but a row has "
        f"{feature.length}, and meta features are not split. Truncate it in a map before packing, "
        f"for instance with `x[:{feature.length}]`, or use a greater length in `length_struct`."
    )


def _cut_scalar(feature: PackedFeature) -> PlanError:
    return PlanError(
        f"Feature {feature.name!r} is a number, which cannot be split, and its rows are full "
        f"before others. Set its length in `length_struct` to more than {feature.length}, or add "
        "it to `meta_features`."
    )


def _other_features(node: ConcatSplitNode, element: Element) -> PlanError:
    known = {feature.name for feature in node.features}
    others = sorted(str(name) for name in element if name not in known)
    return PlanError(
        f"Parent element has structure {sorted(map(str, element))}, but `length_struct` has no "
        f"length for {', '.join(others)}. Add one for each feature, or remove the feature in a map "
        "before packing."
    )
