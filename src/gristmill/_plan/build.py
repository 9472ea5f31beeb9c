"""Make the nodes of a plan from the operations that the user lists."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gristmill._base.call_site import warn_user
from gristmill._base.checks import as_batch_size, as_int
from gristmill._data.batching.buckets import BucketByLength
from gristmill._data.sampling.samplers import BlockSampler
from gristmill._data.transforms.base import (
    Batch,
    Filter,
    FlatMap,
    Map,
    MapWithIndex,
    RandomMap,
    SupportsMapBatch,
    SupportsMapRows,
    TfRandomMap,
)
from gristmill._data.transforms.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    RandomMapOperation,
)
from gristmill._data.transforms.stream_operations import Scan, Unbatch, Window
from gristmill._plan.nodes.base import Node, name_of, stable_repr
from gristmill._plan.nodes.origin_leaf import OriginLeafNode
from gristmill._plan.nodes.record_operations import OperationsNode, PackBatchesNode
from gristmill._plan.nodes.sampled import SampleNode
from gristmill._plan.nodes.steps import (
    BatchNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    RandomMapNode,
)
from gristmill._plan.nodes.stream import CountedMapNode, StatefulNode
from gristmill._plan.record_operations import (
    PacksAndBatches,
    RunOperation,
    as_run_operation,
    first_over_records,
    own_operation,
)
from gristmill._plan.stream_operations import with_stream_operation
from gristmill._plan.traverse import bottom_of, missing_batch, num_flat_maps, sample_of
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element


def with_origins(plan: Node) -> Node:
    """Return a plan whose elements have a leaf with the position of their record.

    The leaf is added to the batches, or to the elements below packing and other steps that hold
    elements; without both, to the elements themselves.
    """
    steps, node = list[Node](), plan
    while not isinstance(node, SampleNode):
        steps.append(node)
        (node,) = node.parents
    is_added = False
    for step in reversed(steps):
        if isinstance(step, BatchNode) and not is_added:
            node, is_added = replace(step, parent=node, adds_origins=True), True
            continue
        if isinstance(step, StatefulNode) and not is_added:
            node, is_added = OriginLeafNode(site=plan.site, parent=node), True
        node = step.with_parents([node])
    return node if is_added else OriginLeafNode(site=plan.site, parent=node)


def with_operations(parent: Node, operations: Sequence[object], *, site: str) -> Node:
    """Return the top node of the operations that the user lists."""
    operations = [own_operation(operation) for operation in operations]
    first = first_over_records(operations)
    for number, operation in enumerate(operations[:first]):
        parent = with_operation(parent, operation, number=number, site=site)
    if first == len(operations):
        return parent
    runs: list[RunOperation] = []
    for number, operation in enumerate(operations[first:], start=first):
        run = None if isinstance(operation, type) else as_run_operation(operation)
        if run is None:
            raise _not_an_operation(operation, number)
        runs.append(run)
    if num_flat_maps(parent):
        raise PlanError(
            f"`operations[{first}]`, {name_of(operations[first])}, follows a FlatMap and takes an "
            "iterator of records, but the outputs of a FlatMap have no metadata of their own. Put "
            "it before the FlatMap."
        )
    names = tuple(map(name_of, operations[first:]))
    warn_user(
        f"The operation {names[0]} takes an iterator of records, and what it holds is not known. "
        "A state is restored by running it again from the start of the stream, which takes as long "
        "as the first time. Write it as a Map, Filter, FlatMap or Batch to resume at once."
    )
    return OperationsNode(
        site=site,
        parent=parent,
        operations=tuple(runs),
        names=names,
    )


def _not_an_operation(operation: object, number: int) -> PlanTypeError:
    if isinstance(operation, type):
        return PlanTypeError(
            f"`operations[{number}]` is the class {operation.__name__}. "
            f"Pass an instance of it: `{operation.__name__}()`."
        )
    return PlanTypeError(
        f"`operations[{number}]` must be a transformation or a function, got "
        f"{stable_repr(operation)}. Derive it from Map, RandomMap, Filter or FlatMap."
    )


def with_operation(parent: Node, operation: object, *, number: int, site: str) -> Node:
    """Return the node of an operation, which is number `number` in the user's list."""
    if isinstance(operation, type):
        raise _not_an_operation(operation, number)
    for kind, build in _BUILDERS:
        if isinstance(operation, kind):
            return build(parent, operation, site)
    if not callable(operation):
        raise _not_an_operation(operation, number)
    return _map(parent, operation, operation, site)


def _map(
    parent: Node, function: Callable[[Element], Element], operation: object, site: str
) -> Node:
    return MapNode(
        site=site,
        parent=parent,
        name=name_of(operation),
        function=function,
        batch_function=operation.map_batch if isinstance(operation, SupportsMapBatch) else None,
        rows_function=operation.map_rows if isinstance(operation, SupportsMapRows) else None,
    )


def _map_with_index(parent: Node, operation: MapWithIndex, site: str) -> Node:
    # A stage that holds elements numbers them from where it resumes, not from the start.
    kind = CountedMapNode if isinstance(bottom_of(parent), StatefulNode) else MapWithIndexNode
    return kind(
        site=site, parent=parent, name=name_of(operation), function=operation.map_with_index
    )


def _random_map(
    parent: Node,
    function: Callable[[Element, np.random.Generator], Element],
    operation: object,
    site: str,
) -> Node:
    name, bottom = name_of(operation), bottom_of(parent)
    if isinstance(bottom, StatefulNode):
        raise PlanError(
            f"RandomMap {name} follows {bottom.label}, whose elements are not those of one record "
            "and have no generator. Put it before, or use a dataset."
        )
    sample = sample_of(parent)
    if isinstance(sample.sampler, BlockSampler):
        if sample.seed is None:
            raise PlanError(f"RandomMap {name} needs a seed. Pass `seed=` to the sampler.")
    elif num_flat_maps(parent):
        raise PlanError(
            f"RandomMap {name} follows a FlatMap, whose outputs would share the one generator that "
            "your sampler sets for a record. Put it before the FlatMap, or use `IndexSampler`."
        )
    return RandomMapNode(site=site, parent=parent, name=name, function=function)


def _filter(
    parent: Node, function: Callable[[Element], bool], operation: object, site: str
) -> Node:
    return FilterNode(site=site, parent=parent, name=name_of(operation), function=function)


def _flat_map(parent: Node, operation: FlatMap, site: str) -> Node:
    name = name_of(operation)
    fan_out = as_int(f"{name}.max_fan_out", getattr(operation, "max_fan_out", None))
    return FlatMapNode(
        site=site, parent=parent, name=name, function=operation.flat_map, max_fan_out=fan_out
    )


def _batch(parent: Node, batch: Batch, site: str) -> Node:
    node = BatchNode(
        site=site,
        parent=parent,
        size=batch.batch_size,
        drop_remainder=batch.drop_remainder,
        function=batch.batch_fn,
    )
    problem = missing_batch(node)
    if problem is not None:
        warn_user(problem)
    return node


def _pack(parent: Node, operation: PacksAndBatches, site: str) -> Node:
    return PackBatchesNode(
        site=site,
        parent=parent,
        length_struct=operation.length_struct,
        size=as_batch_size(operation.batch_size),
        max_documents=operation.max_sequences_per_bin,
    )


_BUILDERS: list[tuple[type[Any], Callable[[Node, Any, str], Node]]] = [
    (Batch, _batch),
    (BatchOperation, lambda parent, op, site: _batch(parent, op.as_batch(), site)),
    (Map, lambda parent, op, site: _map(parent, op.map, op, site)),
    (MapOperation, lambda parent, op, site: _map(parent, op.map_function, op.map_function, site)),
    (MapWithIndex, _map_with_index),
    (RandomMap, lambda parent, op, site: _random_map(parent, op.random_map, op, site)),
    (TfRandomMap, lambda parent, op, site: _random_map(parent, op.np_random_map, op, site)),
    (
        RandomMapOperation,
        lambda parent, op, site: _random_map(
            parent, op.random_map_function, op.random_map_function, site
        ),
    ),
    (Filter, lambda parent, op, site: _filter(parent, op.filter, op, site)),
    (
        FilterOperation,
        lambda parent, op, site: _filter(
            parent, op.condition_function, op.condition_function, site
        ),
    ),
    (FlatMap, _flat_map),
    (PacksAndBatches, _pack),
    *[
        (kind, lambda parent, op, site: with_stream_operation(parent, op, site=site))
        for kind in (BucketByLength, Scan, Unbatch, Window)
    ],
]
