"""Pack records into batches, the older way: an iterator in, an iterator out, no state."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._tree import flatten
from gristmill.execute._bins import open_bins
from gristmill.execute._rows import Layout, as_documents, column_of, not_packable, too_long
from gristmill.order import Record, RecordMetadata
from gristmill.plan import PackedFeature, tree_features
from gristmill.types import Element, Tree


def pack_and_batch(
    records: Iterator[Record[Any]], *, length_struct: Tree, batch_size: int, most: int | None
) -> Iterator[Record[Any]]:
    """Give batches of values, segment ids and positions, with the metadata of the last record."""
    features = tree_features(length_struct)
    capacities = [feature.length for feature in features]
    build = flatten(length_struct)[1]
    held: list[list[NDArray[Any]]] = []
    placed: list[int] = []
    bins = open_bins(capacities, batch_size, most=most)
    last: RecordMetadata | None = None
    for record in records:
        document = [_document(feature, record.data) for feature in features]
        needs = [[len(values)] for values in document]
        chosen = bins.place(needs, needs, 0)
        if last is not None and not chosen:
            parts = _batches(features, held, placed, batch_size)
            yield Record(last, tuple(map(build, parts)))
            held, placed = [], []
            bins = open_bins(capacities, batch_size, most=most)
            chosen = bins.place(needs, needs, 0)
        held.append(document)
        placed += chosen
        last = record.metadata.remove_record_key()
    if last is not None:
        parts = _batches(features, held, placed, batch_size)
        yield Record(last, tuple(map(build, parts)))


def _document(feature: PackedFeature, element: Element) -> NDArray[Any]:
    documents = as_documents(column_of(feature, [element]), takes_bool_for_int=True)
    if not documents:
        raise not_packable(feature, element)
    if len(documents[0]) > feature.length:
        raise too_long(feature, len(documents[0]))
    return documents[0]


def _batches(
    features: Sequence[PackedFeature],
    held: list[list[NDArray[Any]]],
    placed: list[int],
    batch_size: int,
) -> tuple[list[NDArray[Any]], list[NDArray[Any]], list[NDArray[Any]]]:
    """Give values, segment ids and positions of each feature; bins without a document are zero."""
    bins = np.array(placed, dtype=np.int64)
    order: list[int] = np.argsort(bins, kind="stable").tolist()
    counts = np.bincount(bins)
    values: list[NDArray[Any]] = []
    ids: list[NDArray[Any]] = []
    positions: list[NDArray[Any]] = []
    for number, feature in enumerate(features):
        documents = [held[row][number] for row in order]
        lengths = np.array(list(map(len, documents)), dtype=np.int64)
        layout = Layout(lengths, counts=counts, length=feature.length)
        # The type and shape are those of the first record, which is the first of the first bin.
        values.append(_with_empty(layout.values(feature, documents), batch_size))
        ids.append(_with_empty(layout.segment_ids(), batch_size))
        positions.append(_with_empty(layout.positions(), batch_size))
    return values, ids, positions


def _with_empty(rows: NDArray[Any], count: int) -> NDArray[Any]:
    empty = np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)
    return np.concatenate([rows, empty])
