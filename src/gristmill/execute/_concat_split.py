"""Lay documents end to end, and cut wherever a row is full."""

import operator
from bisect import bisect_right
from itertools import accumulate
from typing import Any, NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from gristmill._columns import split_rows
from gristmill.errors import PlanError
from gristmill.execute._blame import add_note_once
from gristmill.execute._outcome import Outcome
from gristmill.execute._rows import Layout, as_documents, column_of, not_packable
from gristmill.execute._stage import Stage
from gristmill.execute._stateful import Mark, StatefulStage
from gristmill.plan import ConcatSplitNode, PackedFeature
from gristmill.types import Element

Document: TypeAlias = tuple[NDArray[Any], ...]
"""The features of one element."""

Cuts: TypeAlias = tuple[tuple[int, int], ...]
"""Where a piece of a document begins and ends, for each feature."""

Columns: TypeAlias = list[list[NDArray[Any]]]
"""For each feature, documents or pieces of them."""


TOKENS_AT_ONCE = 1 << 17
"""How many tokens are laid into rows in one go: more would not stay in the processor's cache."""


class _Place(NamedTuple):
    """Where a row begins."""

    mark: Mark
    offset: int
    """With the mark: the document that comes next."""
    rest: Cuts | None = None
    """What is left of it, if it was cut."""
    row: int = 0
    """How many rows were given of those that begin here."""
    number: int = 0
    """How many documents came before it."""
    end: "_Place | None" = None
    """Where the rows end that begin here, if some were given."""
    pending: tuple[Any, ...] = ()
    """What the state it was restored from said of what is left."""

    def state(self) -> Any:
        """Give it as positions."""
        state = [self.mark.after(self.offset), self.rest, self.row]
        if self.pending:
            return [*state, *self.pending]
        end = self.end or self
        is_cut = end.rest is not None
        count = end.number - self.number + is_cut
        return [*state, count, end.mark.after(end.offset + is_cut)] if count else state


@final
class ConcatSplitStage(StatefulStage):
    """Fills one row at a time. What does not fit any more begins the next.

    Documents that fill a row by themselves may pass: their rows come right after the row that was
    open meanwhile. The state is the place where the open row begins, what is left of the document
    there if it was cut, and how many rows were given of those that come with it; then, if part of
    some documents was given, how many they are, and the cursor after them.
    """

    def __init__(self, node: ConcatSplitNode, parents: list[Stage], *, num_flat_maps: int) -> None:
        super().__init__(parents, num_flat_maps=num_flat_maps)
        self._node = node
        self._intake = self._intakes[0]
        self._filler = _Filler(node, _Place(self._intake.mark(), 0))

    def first_state(self) -> Any:
        return [self._intake.stage.start, None, 0]

    def restore(self, state: Any) -> None:
        below, rest, row, *pending = state
        self._intake.seek(below)
        cuts = None if rest is None else tuple((start, end) for start, end in rest)
        place = _Place(self._intake.mark(), 0, cuts, row, pending=tuple(pending))
        self._filler = _Filler(self._node, place)

    def pull(self) -> Outcome | None:
        """Lay what is at hand into rows; that need not fill one."""
        filler, error = self._filler, None
        if self._intake.fill():
            mark = self._intake.mark()
            elements = self._intake.take(self._intake.count)
            columns, scalars, failed = _take_documents(self._node, elements)
            error = filler.add(mark, columns, scalars) or failed
        elif self._intake.error is not None:
            return self.give([], lambda _: None, self._intake.error)
        elif not filler.end(_Place(self._intake.mark(), 0, number=filler.num_documents)):
            return None
        rows, places = filler.take()
        made, wrong = _make_rows(self._node, rows)
        error = wrong or error
        if error is not None:
            add_note_once(error, f"In {self._node.label}, added at {self._node.site}.")
        return self.give(made, lambda count: places[count].state(), error)


@final
class _Filler:
    """The open row and those that are full."""

    def __init__(self, node: ConcatSplitNode, place: _Place) -> None:
        self._features = node.features
        self._lengths = [feature.length for feature in node.features]
        self._metas = [feature.is_meta for feature in node.features]
        self._passes_full = not node.splits_full_length
        self._is_single = self._metas == [False] and not self._passes_full
        self.num_documents = 0
        """How many came so far."""
        self._place = place
        self._skip = place.row
        self._rest = place.rest
        """What is left of the document that comes next."""
        self._open: Columns = [[] for _ in self._lengths]
        self._filled = [0] * len(self._lengths)
        self._passed: list[Columns] = []
        self._rows: list[Columns] = []
        self._places = [place]

    def take(self) -> tuple[list[Columns], list[_Place]]:
        """Take the rows that are full, and the places before, between and after them."""
        taken = self._rows, self._places
        self._rows, self._places = [], [self._places[-1]]
        return taken

    def end(self, place: _Place) -> bool:
        """Close the last row, if there is one."""
        if not (self._open[0] or self._passed):
            return False
        self._close(place)
        return True

    def add(
        self, mark: Mark, columns: Columns, scalars: list[list[bool]] | None
    ) -> PlanError | None:
        """Lay documents into rows; `scalars` are the features that were no arrays, if any."""
        before = self.num_documents
        self.num_documents += len(columns[0])
        if self._is_single:
            self._add_tokens(mark, columns[0], before)
            return None
        for number, document in enumerate(zip(*columns, strict=True)):
            whole = self._metas
            if scalars is not None:
                whole = [one or other for one, other in zip(whole, scalars[number], strict=True)]
            lengths = list(map(len, document))
            if self._rest is None and self._passes_full and self._is_full(lengths):
                self._passed.append([[values] for values in document])
                continue
            place = _Place(mark, number, number=before + number)
            limiting = _first_of(list(map(operator.gt, lengths, self._lengths)), self._metas)
            if limiting is not None:  # it would not fit into any row
                self.end(place._replace(rest=self._rest))
                return _too_long(self._features[limiting], lengths[limiting])
            error = self._add(place, document, lengths, whole)
            if error is not None:
                return error
        return None

    def _close(self, place: _Place) -> None:
        """End the row; the next begins at a place."""
        rows = [self._open, *self._passed] if self._open[0] else self._passed
        self._rows += rows[self._skip :]
        for row in range(self._skip + 1, len(rows)):
            self._places.append(self._place._replace(row=row, end=place, pending=()))
        self._places.append(place)
        self._place, self._skip = place, 0
        self._open, self._passed = [[] for _ in self._lengths], []
        self._filled = [0] * len(self._lengths)

    def _add_tokens(self, mark: Mark, documents: list[NDArray[Any]], num_before: int) -> None:
        """Do as `_add`, for documents of one feature: only what is cut is looked at by itself."""
        (length,) = self._lengths
        before = 0 if self._rest is None else self._rest[0][0]
        # Where documents begin, counted from the beginning of the row that is open.
        starts = list(accumulate(map(len, documents), initial=self._filled[0] - before))
        number, limit = 0, length
        self._rest = None
        while starts[-1] > limit:
            first, number = number, bisect_right(starts, limit, number) - 1
            self._open[0] += _between(documents, starts, first, number, limit - length)
            cut = limit - starts[number]
            if cut:
                self._open[0].append(documents[number][max(0, cut - length) : cut])
            rest = ((cut, len(documents[number])),) if cut else None
            self._close(_Place(mark, number, rest, number=num_before + number))
            limit += length
        self._open[0] += _between(documents, starts, number, len(documents), limit - length)
        self._filled[0] = starts[-1] - limit + length

    def _add(
        self, place: _Place, document: Document, lengths: list[int], whole: list[bool]
    ) -> PlanError | None:
        """Lay a document, or what is left of it, into the open row and as many more as it needs."""
        rest, self._rest = self._rest, None
        rooms = list(map(operator.sub, self._lengths, self._filled))
        pieces: list[tuple[Cuts | None, Cuts | None]] = []  # and what is left after each
        while True:
            cuts = rest or tuple((0, length) for length in lengths)
            sizes = _sizes(cuts, lengths, whole)
            if all(map(operator.le, sizes, rooms)):
                break
            over = list(map(operator.gt, sizes, rooms))
            points = self._points(cuts, sizes, rooms)
            piece = None
            if _first_of(over, self._metas) is None and any(points):
                uncut = _first_of(over, whole)
                if uncut is not None:
                    return _cut_scalar(self._features[uncut])
                piece, rest = _divide(cuts, points, lengths, whole)
            pieces.append((piece, rest))
            rooms = self._lengths
        for piece, left in pieces:
            if piece is not None:
                self._put(document, piece)
            self._close(place._replace(rest=left))
        self._put(document, rest)
        self._filled = list(map(operator.add, self._filled, sizes))
        return None

    def _points(self, cuts: Cuts, sizes: list[int], rooms: list[int]) -> list[int]:
        """Give where each feature is cut; meta features are not.

        One that is not over its room counts from the beginning of the document, also where part of
        it is in an earlier row already: so does Grain, and rows are to be the same. But it never
        goes back, as it does there, for that would give tokens twice.
        """
        return [
            0 if is_meta else start + room if size > room else max(start, size)
            for (start, _), size, room, is_meta in zip(cuts, sizes, rooms, self._metas, strict=True)
        ]

    def _put(self, document: Document, cuts: Cuts | None) -> None:
        for number, values in enumerate(document):
            part = values if cuts is None else values[slice(*cuts[number])]
            self._open[number].append(part)

    def _is_full(self, lengths: list[int]) -> bool:
        """Tell a document that fills a row by itself."""
        return max(map(operator.sub, lengths, self._lengths)) == 0


def _first_of(over: list[bool], whole: list[bool]) -> int | None:
    """Give the first feature that is over its room and goes as a whole, if there is one."""
    both = [is_over and is_whole for is_over, is_whole in zip(over, whole, strict=True)]
    return both.index(True) if True in both else None


def _between(
    documents: list[NDArray[Any]], starts: list[int], first: int, end: int, row_start: int
) -> list[NDArray[Any]]:
    """Give some documents; of the first only what lies in the row."""
    parts = documents[first:end]
    if parts and starts[first] < row_start:
        parts[0] = parts[0][row_start - starts[first] :]
    return parts


def _sizes(cuts: Cuts, lengths: list[int], whole: list[bool]) -> list[int]:
    return [
        length if is_whole else max(0, end - start)
        for (start, end), length, is_whole in zip(cuts, lengths, whole, strict=True)
    ]


def _divide(
    cuts: Cuts, points: list[int], lengths: list[int], whole: list[bool]
) -> tuple[Cuts, Cuts]:
    """Give what lies before and after the points; some features are in both as a whole."""
    before: list[tuple[int, int]] = []
    after: list[tuple[int, int]] = []
    for (start, end), point, length, is_whole in zip(cuts, points, lengths, whole, strict=True):
        before.append((0, length) if is_whole else (start, point))
        after.append((0, length) if is_whole else (point, end))
    return tuple(before), tuple(after)


def _take_documents(
    node: ConcatSplitNode, elements: list[Element]
) -> tuple[Columns, list[list[bool]] | None, PlanError | None]:
    """Take the features from elements up to one that has other features, and that error.

    In between: which features are no arrays but scalars, if any element has such.
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
    """Make rows, up to one that cannot be made, and that error."""
    most = max(1, TOKENS_AT_ONCE // max(feature.length for feature in node.features))
    made: list[Element] = []
    for first in range(0, len(rows), most):
        part = rows[first : first + most]
        try:
            made += _make_alike(node, part)
        except Exception:  # of one of them: those before it come first
            for row in part:
                try:
                    made += _make_alike(node, [row])
                except Exception as error:
                    return made, error
    return made, None


def _make_alike(node: ConcatSplitNode, rows: list[Columns]) -> list[Element]:
    """Make rows, all at once if their first documents are of one type and shape."""
    kinds = {tuple((parts[0].dtype, parts[0].shape[1:]) for parts in row) for row in rows}
    if len(kinds) > 1:
        return [made for row in rows for made in _make_alike(node, [row])]
    counts = np.array([len(row[0]) for row in rows], dtype=np.int64)
    arrays: dict[str, Any] = {}
    for number, feature in enumerate(node.features):
        parts = [part for row in rows for part in row[number]]
        lengths = np.array(list(map(len, parts)), dtype=np.int64)
        layout = Layout(lengths, counts=counts, length=feature.length)
        values = layout.values(feature, parts)
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
        f"Meta feature {feature.name!r} of an element is {length} long, a row is {feature.length}, "
        f"and meta features are not cut. Truncate it in a map before, for instance with "
        f"`x[:{feature.length}]`, or give `length_struct` a greater length."
    )


def _cut_scalar(feature: PackedFeature) -> PlanError:
    return PlanError(
        f"Feature {feature.name!r} is a number, which cannot be cut, and its rows are full before "
        f"others are. Give it a length greater than {feature.length} in `length_struct`, or add "
        "it to `meta_features`."
    )


def _other_features(node: ConcatSplitNode, element: Element) -> PlanError:
    known = {feature.name for feature in node.features}
    others = sorted(str(name) for name in element if name not in known)
    return PlanError(
        f"An element has {', '.join(others)}, for which `length_struct` has no length. Give one "
        "for each feature, or take the feature out in a map before."
    )
