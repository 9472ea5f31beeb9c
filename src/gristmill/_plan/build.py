"""Make the nodes of a plan from the operations that the user lists."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from gristmill._base.call_site import warn_user
from gristmill._base.checks import as_int
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
from gristmill._plan.nodes.base import Node, name_of, stable_repr
from gristmill._plan.nodes.steps import (
    BatchNode,
    FilterNode,
    FlatMapNode,
    MapNode,
    MapWithIndexNode,
    RandomMapNode,
)
from gristmill._plan.traverse import sample_of, steps_of
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element


def with_operation(parent: Node, operation: object, *, number: int, site: str) -> Node:
    """Return the node of an operation, which is number `number` in the user's list."""
    if isinstance(operation, type):
        raise PlanTypeError(
            f"`operations[{number}]` is the class {operation.__name__}. "
            f"Pass an instance of it: `{operation.__name__}()`."
        )
    for kind, build in _BUILDERS:
        if isinstance(operation, kind):
            return build(parent, operation, site)
    if _takes_an_iterator(operation):
        raise PlanTypeError(
            f"`operations[{number}]`, {name_of(operation)}, takes an iterator of records. Such "
            "operations cannot be resumed. Write it as a Map, Filter, FlatMap or Batch."
        )
    if not callable(operation):
        raise PlanTypeError(
            f"`operations[{number}]` must be a transformation or a function, got "
            f"{stable_repr(operation)}. Derive it from Map, RandomMap, Filter or FlatMap."
        )
    return _map(parent, operation, operation, site)


def _takes_an_iterator(operation: object) -> bool:
    """Return whether an operation is a generator over records, as in Grain's protocol."""
    call: object = operation if inspect.isroutine(operation) else type(operation).__call__
    return inspect.isgeneratorfunction(call)


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
    return MapWithIndexNode(
        site=site, parent=parent, name=name_of(operation), function=operation.map_with_index
    )


def _random_map(
    parent: Node,
    function: Callable[[Element, np.random.Generator], Element],
    operation: object,
    site: str,
) -> Node:
    sample, name = sample_of(parent), name_of(operation)
    if isinstance(sample.sampler, BlockSampler):
        if sample.seed is None:
            raise PlanError(f"RandomMap {name} needs a seed. Pass `seed=` to the sampler.")
    elif _has_flat_map(parent):
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
    most = _most_elements(parent)
    if batch.drop_remainder and most < batch.batch_size:
        warn_user(
            f"There will be no batch: `drop_remainder` needs {batch.batch_size} elements, there "
            f"are at most {most}. Use a smaller `batch_size`, or keep the remainder."
        )
    return node


def _most_elements(plan: Node) -> int:
    """Return the number of elements if no filter removes any."""
    most = sample_of(plan).length()
    for step in steps_of(plan):
        most = step.max_outputs(most)
    return most


def _has_flat_map(plan: Node) -> bool:
    return any(isinstance(step, FlatMapNode) for step in steps_of(plan))


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
]
