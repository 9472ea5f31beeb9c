"""Pack an iterator of records into batches, without a state."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.tree import flatten, with_sorted_keys
from gristmill._data.sampling.record import Record, RecordMetadata
from gristmill._engine.stateful.packing.bins import open_bins
from gristmill._engine.stateful.packing.layout import (
    RowLayout,
    as_documents,
    column_of,
    not_packable,
    too_long,
)
from gristmill._plan.nodes.packing import PackedFeature, tree_features
from gristmill.types import Element, Tree


def pack_and_batch(
    records: Iterator[Record[Any]],
    *,
    length_struct: Tree,
    batch_size: int,
    max_documents: int | None,
) -> Iterator[Record[Any]]:
    """Yield batches of values, segment ids and positions, with the metadata of the last record."""
    features = tree_features(length_struct)
    capacities = [feature.length for feature in features]
    build = flatten(length_struct)[1]
    held: list[list[NDArray[Any]]] = []
    placed: list[int] = []
    bins = open_bins(capacities, batch_size, max_documents=max_documents)
    last: RecordMetadata | None = None
    for record in records:
        document = [_document(feature, record.data) for feature in features]
        needs = [[len(values)] for values in document]
        chosen = bins.assign(needs, needs, 0)
        if last is not None and not chosen:
            arrays = _batches(features, held, placed, batch_size)
            yield Record(last, with_sorted_keys(tuple(map(build, arrays))))
            held, placed = [], []
            bins = open_bins(capacities, batch_size, max_documents=max_documents)
            chosen = bins.assign(needs, needs, 0)
        held.append(document)
        placed += chosen
        last = record.metadata.remove_record_key()
    if last is not None:
        arrays = _batches(features, held, placed, batch_size)
        yield Record(last, with_sorted_keys(tuple(map(build, arrays))))


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
    """Return values, segment ids and positions of each feature; empty bins are zero."""
    bins = np.array(placed, dtype=np.int64)
    order: list[int] = np.argsort(bins, kind="stable").tolist()
    counts = np.bincount(bins)
    values: list[NDArray[Any]] = []
    ids: list[NDArray[Any]] = []
    positions: list[NDArray[Any]] = []
    for number, feature in enumerate(features):
        documents = [held[row][number] for row in order]
        lengths = np.array(list(map(len, documents)), dtype=np.int64)
        layout = RowLayout(lengths, counts=counts, length=feature.length)
        # Type and shape are those of the first record, which is the first one of the first bin.
        values.append(_with_empty(layout.values(feature, documents), batch_size))
        ids.append(_with_empty(layout.segment_ids(), batch_size))
        positions.append(_with_empty(layout.positions(), batch_size))
    return values, ids, positions


def _with_empty(rows: NDArray[Any], count: int) -> NDArray[Any]:
    empty = np.zeros((count - len(rows), *rows.shape[1:]), rows.dtype)
    return np.concatenate([rows, empty])
