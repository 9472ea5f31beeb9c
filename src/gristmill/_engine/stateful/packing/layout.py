"""Layout of documents in rows: values, segment ids and positions of many rows at once."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._plan.nodes.packing import PackedFeature
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element, Indices


def column_of(feature: PackedFeature, elements: Sequence[Element]) -> list[Any]:
    """Return a feature of each element, up to one that does not have it."""
    try:
        column: list[Any] = list(elements)
        for key in feature.path:
            column = [inner[key] for inner in column]
    except Exception:  # whatever the user's mapping raises for a missing key
        column = []
        with suppress(Exception):
            column.extend(_value_at(element, feature) for element in elements)
    return column


def as_documents(column: list[Any], *, takes_bool_for_int: bool) -> list[NDArray[Any]]:
    """Return the values of a feature as arrays with at least one axis, up to one that has none.

    >>> as_documents([np.array([1, 2]), True], takes_bool_for_int=True)
    [array([1, 2]), array([1])]
    """
    if set(map(type, column)) == {np.ndarray} and 0 not in [value.ndim for value in column]:
        return column
    documents: list[NDArray[Any]] = []
    for value in column:
        if isinstance(value, Mapping):
            break
        try:
            as_int = takes_bool_for_int and isinstance(value, bool)
            array: NDArray[Any] = np.asarray(value, dtype=np.int64 if as_int else None)
        except ValueError:  # a ragged list
            break
        documents.append(array if array.ndim else array.reshape(1))
    return documents


def not_packable(feature: PackedFeature, element: Element) -> PlanError:
    """Return the error for a feature of an element that cannot be packed."""
    try:
        value = _value_at(element, feature)
    except Exception:
        is_mapping = isinstance(element, Mapping)
        held = sorted(map(str, element)) if is_mapping else type(element).__name__  # pyright: ignore[reportUnknownArgumentType]
        return PlanError(
            f"Parent element has structure {held}, without {feature.name!r} of `length_struct`. "
            "Add the feature in a map before packing, or remove it from `length_struct`."
        )
    return PlanTypeError(
        f"Feature {feature.name!r} must be an array or a number, got {type(value).__name__}. "
        "Convert it in a map before packing."
    )


def too_long(feature: PackedFeature, length: int) -> PlanError:
    """Return the error for a document that is longer than its row."""
    return PlanError(
        f"Feature {feature.name!r} of an element has length {length}, but a row has "
        f"{feature.length}: inputs must be truncated to max length. Truncate it in a map before "
        f"packing, for instance with `x[:{feature.length}]`, or use a greater length in "
        "`length_struct`."
    )


def _value_at(element: Element, feature: PackedFeature) -> Any:
    for key in feature.path:
        element = element[key]
    return element


@final
class RowLayout:
    """The offsets of the documents in some rows: one after the other, each followed by a gap.

    >>> layout = RowLayout(np.array([2, 1, 3]), counts=np.array([2, 1]), length=4)
    >>> layout.segment_ids().tolist()
    [[1, 1, 2, 0], [1, 1, 1, 0]]
    >>> layout.positions().tolist()
    [[0, 1, 0, 0], [0, 1, 2, 0]]
    """

    def __init__(
        self, lengths: Indices, *, counts: Indices, length: int, alignment: int = 1
    ) -> None:
        """Compute the offsets from the lengths of the documents and their number in each row."""
        self.num_rows = len(counts)
        self.length = length
        self._lengths = lengths
        lasts = np.cumsum(counts) - 1
        firsts = lasts - counts + 1
        costs = lengths if alignment == 1 else -(-lengths // alignment) * alignment
        ends = np.cumsum(costs)
        before = (ends - costs)[firsts]  # length of all earlier rows
        row_starts = np.arange(self.num_rows) * length
        self._row_starts = np.repeat(row_starts, counts)
        self.starts: Indices = ends - costs + np.repeat(row_starts - before, counts)
        """Start of each document, counted over all rows."""
        self._segments = np.arange(1, len(lengths) + 1) - np.repeat(firsts, counts)
        gaps = costs - lengths
        gaps[lasts] = np.arange(1, self.num_rows + 1) * length - (self.starts + lengths)[lasts]
        self._gaps = gaps

    def values(self, feature: PackedFeature, documents: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the rows, with the type and shape of the first document."""
        first = documents[0]
        shape = first.shape[1:]
        fill: NDArray[Any] = np.zeros((int(self._gaps.max()), *shape), first.dtype)
        if feature.padding is not None:
            fill[...] = feature.padding
        made: NDArray[Any] = np.empty((self.num_rows * self.length, *shape), first.dtype)
        try:
            _join(documents, self._gaps.tolist(), fill, made)
        except ValueError:
            _join(_fit_shapes(feature, documents), self._gaps.tolist(), fill, made)
        return made.reshape(self.num_rows, self.length, *shape)

    def segment_ids(self) -> NDArray[np.int32]:
        """Return the number of the document at each position of a row, from 1; 0 in gaps."""
        numbers = np.zeros((len(self._lengths), 2), np.int32)
        numbers[:, 0] = self._segments
        sizes = np.stack([self._lengths, self._gaps], axis=1)
        return np.repeat(numbers.ravel(), sizes.ravel()).reshape(self.num_rows, self.length)

    def positions(self) -> NDArray[np.int32]:
        """Return the offset within its document for each position of a row; 0 in gaps."""
        within = (self.starts - self._row_starts).astype(np.int32)
        made = np.repeat(within, self._lengths + self._gaps).reshape(self.num_rows, self.length)
        np.subtract(_ramp(self.length), made, out=made)
        flat, padded = made.reshape(-1), np.flatnonzero(self._gaps)
        ends = (self.starts + self._lengths)[padded]
        for start, end in zip(ends.tolist(), (ends + self._gaps[padded]).tolist(), strict=True):
            flat[start:end] = 0
        return made


@lru_cache(maxsize=16)
def _ramp(length: int) -> NDArray[np.int32]:
    """Return the numbers of the positions of a row."""
    return np.arange(length, dtype=np.int32)


def _join(
    documents: Sequence[NDArray[Any]], gaps: list[int], fill: NDArray[Any], made: NDArray[Any]
) -> None:
    arrays: list[NDArray[Any]] = []
    for document, gap in zip(documents, gaps, strict=True):
        arrays.append(document)
        if gap:
            arrays.append(fill[:gap])
    # Unsafe casting, as in an assignment: a row has the type of its first document.
    np.concatenate(arrays, out=made, casting="unsafe")


def _fit_shapes(
    feature: PackedFeature, documents: Sequence[NDArray[Any]]
) -> Sequence[NDArray[Any]]:
    """Broadcast documents to the trailing axes of the first, or raise an error."""
    shape = documents[0].shape[1:]
    fitted: list[NDArray[Any]] = []
    for document in documents:
        try:
            fitted.append(np.broadcast_to(document, (len(document), *shape)))
        except ValueError:
            raise PlanError(
                f"Feature {feature.name!r} has shape {document.shape} in one element and "
                f"{documents[0].shape} in another of the same rows: only the first axis may "
                "differ. Reshape them in a map before packing."
            ) from None
    return fitted
