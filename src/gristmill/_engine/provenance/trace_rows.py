"""Trace the steps that put records into rows by their lengths: packing, buckets, rebatching."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, final

import numpy as np

from gristmill._base.trees.tree import leaves_with_paths
from gristmill._data.batching.pad import PadBatch
from gristmill._engine.provenance.trace_context import TraceMode, Tracer, map_over
from gristmill._engine.provenance.traced import Row, Traced
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.buckets import BucketNode, BucketStreamNode
from gristmill._plan.nodes.packing import (
    ConcatSplitNode,
    PackedFeature,
    PackNode,
    tree_features,
)
from gristmill._plan.nodes.record_operations import PackBatchesNode
from gristmill._plan.nodes.stream import RebatchNode
from gristmill.types import Element, Tree

_ORIGINS = "records of a traced row"
"""A feature that packing adds to the rows of a traced plan."""


@final
class _Document:
    """An element in a mapping, with its records under a key of their own."""

    def __init__(self, element: Traced) -> None:
        self._element = element

    def __getitem__(self, key: Any) -> Any:
        return self._element.row if key == _ORIGINS else self._element.value[key]

    def __iter__(self) -> Any:
        return iter(self._element.value)


def trace_pack(tracer: Tracer, node: PackNode, mode: TraceMode) -> Node:
    """Trace packing into bins: the records of each document, in the order of the segments."""
    parent = tracer.trace(node.parent, replace(mode, needs_values=True))
    documents = map_over(node, parent, _Document)
    packed = replace(node, parent=documents, listed_features=(*node.listed_features, _ORIGINS))

    def traced(row: dict[str, Any]) -> Traced:
        found: list[Row] = row.pop(_ORIGINS)
        return Traced(row, (tuple(chain.from_iterable(found)),))

    return map_over(node, packed, traced)


@final
class _RowTable:
    """Numbers rows from 1 on, so that arrays can hold them; 0 is padding."""

    def __init__(self) -> None:
        self._rows: list[Row] = []

    def add(self, row: Row) -> int:
        """Return the number of a row."""
        self._rows.append(row)
        return len(self._rows)

    def __getitem__(self, number: int) -> Row:
        return self._rows[number - 1] if number else ()


def trace_concat_split(tracer: Tracer, node: ConcatSplitNode, mode: TraceMode) -> Node:
    """Trace concatenated documents: each value comes with the number of its document."""
    table = _RowTable()
    parent = tracer.trace(node.parent, replace(mode, needs_values=True))

    def numbered(element: Traced) -> dict[Any, Any]:
        number = table.add(element.row)
        document: dict[Any, Any] = dict(element.value)
        for feature in node.features:
            value = np.asarray(_get(element.value, feature))
            pair = [("value", value.dtype, value.shape[1:]), ("document", np.int64)]
            both = np.empty(value.shape[:1], np.dtype(pair))
            both["value"], both["document"] = value, number
            _put(document, feature, both)
        return document

    def traced(row: dict[Any, Any]) -> Traced:
        found: list[Any] = []
        value: dict[Any, Any] = dict(row)
        for feature in node.features:
            both = _get(row, feature)
            found.append(np.ravel(both["document"]))
            values = np.ascontiguousarray(both["value"])
            if feature.name in node.bos_features:
                starts = (row[f"{feature.name}_positions"] == 0) & (both["document"] > 0)
                values[starts] = node.bos_token
            _put(value, feature, values)
        numbers = np.unique(np.concatenate(found)).tolist()
        return Traced(value, (tuple(chain.from_iterable(table[number] for number in numbers)),))

    features = tuple(
        replace(feature, padding=(0 if feature.padding is None else feature.padding, 0))
        for feature in node.features
    )
    packed = replace(
        node,
        parent=map_over(node, parent, numbered),
        features=features,
        bos_features=frozenset[str](),
    )
    return map_over(node, packed, traced)


def _get(tree: Any, feature: PackedFeature) -> Any:
    for key in feature.path:
        tree = tree[key]
    return tree


def _put(document: dict[Any, Any], feature: PackedFeature, value: Any) -> None:
    """Store a value in place of that of a feature, without changing the dicts on the way."""
    *outer, last = feature.path
    for key in outer:
        document[key] = dict(document[key])
        document = document[key]
    document[last] = value


def trace_pack_batches(tracer: Tracer, node: PackBatchesNode, mode: TraceMode) -> Node:
    """Trace batches of packed records: with the first feature, one of their numbers."""
    table = _RowTable()
    first = tree_features(node.length_struct)[0]
    parent = tracer.trace(node.parent, replace(mode, needs_values=True))

    def numbered(element: Traced) -> tuple[Tree, Any]:
        count = np.size(_get(element.value, first), 0) if np.ndim(_get(element.value, first)) else 1
        return element.value, np.full(count, table.add(element.row))

    def traced(batch: tuple[tuple[Tree, Any], ...]) -> Traced:
        numbers = batch[0][1]
        rows = [dict.fromkeys(row[row > 0].tolist()) for row in numbers]
        return Traced(
            tuple(value for value, _ in batch),
            tuple(tuple(chain.from_iterable(table[number] for number in row)) for row in rows),
        )

    lengths = (node.length_struct, first.length)
    packed = replace(node, parent=map_over(node, parent, numbered), length_struct=lengths)
    return map_over(node, packed, traced)


def trace_rebatch(tracer: Tracer, node: RebatchNode, mode: TraceMode) -> Node:
    """Trace batches of another size: the rows carry their numbers in an array of their own."""
    table = _RowTable()
    parent = tracer.trace(node.parent, replace(mode, needs_values=True))

    def numbered(batch: Traced) -> tuple[Tree, Any]:
        lengths = [len(leaf) for _, leaf in leaves_with_paths(batch.value)]
        rows = batch.rows
        if lengths and len(rows) != lengths[0]:  # rows of one record, or combined in a map
            rows = (batch.row,) * lengths[0]
        return batch.value, np.array([table.add(row) for row in rows])

    def traced(joined: tuple[Tree, Any]) -> Traced:
        value, numbers = joined
        return Traced(value, tuple(table[number] for number in numbers.tolist()))

    return map_over(node, replace(node, parent=map_over(node, parent, numbered)), traced)


def trace_buckets(tracer: Tracer, node: BucketNode | BucketStreamNode, mode: TraceMode) -> Node:
    """Trace batches of similar length: their elements are replaced by arrays of one number."""
    table, values = _RowTable(), list[Element]()
    parent = tracer.trace(node.parent, replace(mode, needs_values=True))
    buckets = node.buckets

    def numbered(element: Traced) -> dict[str, Any]:
        values.append(element.value)
        return {_ORIGINS: np.array([table.add(element.row)])}

    def length_of(element: dict[str, Any]) -> int:
        return buckets.lengths_of([values[int(element[_ORIGINS][0]) - 1]])[0]

    def traced(batch: Mapping[str, Any]) -> Traced:
        numbers: list[int] = batch[_ORIGINS][:, 0].tolist()
        bucket = buckets.boundaries.index(batch[_ORIGINS].shape[1])
        elements = [values[number - 1] for number in numbers if number]
        if elements:
            value = buckets.make(elements, bucket)
        else:
            value = buckets.make_empty(values[-1], bucket)
        return Traced(value, tuple(table[number] for number in numbers))

    pad = PadBatch(add_mask=True)
    traced_buckets = replace(buckets, max_tokens=None, length=length_of, pad=pad)
    inner = replace(node, parent=map_over(node, parent, numbered), buckets=traced_buckets)
    return map_over(node, inner, traced)
