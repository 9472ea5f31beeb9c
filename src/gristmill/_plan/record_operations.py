"""Recognise operations over iterators of records, and run other operations in that form."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast, runtime_checkable

from gristmill._base.grain.classes import is_from_grain
from gristmill._data.sampling.record import Record
from gristmill._data.transforms.base import (
    Batch,
    Filter,
    FlatMap,
    Map,
    MapWithIndex,
    RandomMap,
    TfRandomMap,
)
from gristmill._data.transforms.operations import (
    BatchOperation,
    FilterOperation,
    MapOperation,
    Operation,
    RandomMapOperation,
)

RunOperation = Callable[[Iterator[Record[Any]]], Iterator[Record[Any]]]


@runtime_checkable
class PacksAndBatches(Protocol):
    """Our `PackAndBatchOperation`, or Grain's."""

    length_struct: Any
    batch_size: int
    max_sequences_per_bin: int | None

    def __call__(self, input_iterator: Iterator[Any], /) -> Iterator[Any]: ...


def own_operation(operation: object) -> object:
    """Return our operation for one of Grain's older ones, and anything else as it is."""
    private: Any = operation
    if is_from_grain(operation, "MapOperation"):
        return MapOperation(private.map_function)
    if is_from_grain(operation, "RandomMapOperation"):
        return RandomMapOperation(private.random_map_function)
    if is_from_grain(operation, "FilterOperation"):
        return FilterOperation(private.condition_function)
    if is_from_grain(operation, "BatchOperation"):
        is_default = getattr(private.batch_fn, "__name__", "") == "_default_batch_fn"
        batch_fn = None if is_default else private.batch_fn
        return BatchOperation(private.batch_size, private.drop_remainder, batch_fn)
    return operation


def takes_an_iterator(operation: object) -> bool:
    """Return whether an operation takes an iterator of records, as in Grain's protocol.

    It does if it is a generator, is derived from `Operation`, or declares its argument as an
    iterator. Any other function or callable object is a map.
    """
    if isinstance(operation, type) or not callable(operation):
        return False
    classes = cast("type[object]", type(operation)).__mro__
    if Operation in classes or is_from_grain(operation, "Operation"):
        return True
    call: Any = operation if inspect.isroutine(operation) else type(operation).__call__
    if inspect.isgeneratorfunction(call):
        return True
    try:
        parameters = list(inspect.signature(operation).parameters.values())
    except (TypeError, ValueError):
        return False
    if not parameters:
        return False
    annotation = parameters[0].annotation
    return parameters[0].name == "input_iterator" or "Iterator[" in str(annotation)


def first_over_records(operations: Sequence[object]) -> int:
    """Return the number of the first operation that has to run on an iterator of records.

    From there on all of them do, because they pass the metadata of records on. Packing does if a
    later operation needs the metadata.
    """
    first_pack = len(operations)
    for number, operation in enumerate(operations):
        is_pack = isinstance(operation, PacksAndBatches)
        if is_pack:
            first_pack = min(first_pack, number)
        elif takes_an_iterator(operation) and not isinstance(operation, _OWN):
            return min(first_pack, number)
        elif first_pack < number and isinstance(operation, _NEED_METADATA):
            return first_pack
    return len(operations)


_OWN = (MapOperation, RandomMapOperation, FilterOperation, BatchOperation)
_NEED_METADATA = (RandomMap, TfRandomMap, RandomMapOperation, MapWithIndex)


def as_run_operation(operation: object) -> RunOperation | None:
    """Return the form of an operation that runs on an iterator of records, if it has one."""
    match operation:
        case Batch():
            return BatchOperation(
                operation.batch_size, operation.drop_remainder, operation.batch_fn
            )
        case Map():
            return MapOperation(operation.map)
        case RandomMap():
            return RandomMapOperation(operation.random_map)
        case TfRandomMap():
            return RandomMapOperation(operation.np_random_map)
        case Filter():
            return FilterOperation(operation.filter)
        case MapWithIndex():
            return _indexed(operation)
        case FlatMap():
            return _flattened(operation)
        case _ if takes_an_iterator(operation) or isinstance(operation, _OWN):
            return cast("RunOperation", operation)
        case _ if callable(operation):
            return MapOperation(operation)
        case _:
            return None


def _indexed(operation: MapWithIndex) -> RunOperation:
    def run(records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in records:
            made = operation.map_with_index(record.metadata.index, record.data)
            yield Record(record.metadata.remove_record_key(), made)

    return run


def _flattened(operation: FlatMap) -> RunOperation:
    def run(records: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in records:
            for made in operation.flat_map(record.data):
                yield Record(record.metadata.remove_record_key(), made)

    return run
