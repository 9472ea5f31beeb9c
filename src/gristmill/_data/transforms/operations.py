"""Grain's older operations, which wrap a function."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol, cast, final

import numpy as np

from gristmill._base.short_repr import short_repr
from gristmill._data.batching.stack import stack
from gristmill._data.sampling.record import Record
from gristmill._data.transforms.base import Batch
from gristmill.types import Element


class Operation(Protocol):
    """Grain's protocol of operations: from an iterator of records to an iterator of records.

    `DataLoader` converts the operations in this module to the corresponding steps. It runs a user's
    own operation as it is, but does not know what the operation holds: to resume, it runs it again
    from the start of the stream.

    >>> from gristmill import Record, RecordMetadata
    >>> double: Operation = MapOperation(lambda element: 2 * element)
    >>> records = iter([Record(RecordMetadata(index=0), 21)])
    >>> [record.data for record in double(records)]
    [42]
    """

    def __call__(self, input_iterator: Iterator[Record[Any]], /) -> Iterator[Record[Any]]: ...


_ERROR = "The {} of an operation raised an exception."


@final
@dataclass(frozen=True)
class MapOperation:
    """`Map` with a function.

    >>> from gristmill import load
    >>> list(load(range(3), num_epochs=1, transformations=[MapOperation(lambda x: x + 1)]))
    [1, 2, 3]

    Args:
        map_function: Returns the transformed element.
    """

    map_function: Callable[[Element], Element]

    def __repr__(self) -> str:
        return short_repr(self)

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in input_iterator:
            try:
                made = self.map_function(record.data)
            except Exception as error:
                raise ValueError(_ERROR.format("map function")) from error
            yield Record(record.metadata.remove_record_key(), made)


@final
@dataclass(frozen=True)
class RandomMapOperation:
    """`RandomMap` with a function of the element and its generator.

    >>> from gristmill import load
    >>> throw = RandomMapOperation(lambda element, rng: int(rng.integers(1, 7)))
    >>> list(load(range(5), num_epochs=1, seed=0, transformations=[throw]))
    [1, 3, 3, 6, 2]

    Args:
        random_map_function: Returns the transformed element.
    """

    random_map_function: Callable[[Element, np.random.Generator], Element]

    def __repr__(self) -> str:
        return short_repr(self)

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in input_iterator:
            try:
                made = self.random_map_function(record.data, cast(Any, record.metadata.rng))
            except Exception as error:
                raise ValueError(_ERROR.format("random map function")) from error
            yield Record(record.metadata.remove_record_key(), made)


@final
@dataclass(frozen=True)
class FilterOperation:
    """`Filter` with a function.

    >>> from gristmill import load
    >>> even = FilterOperation(lambda x: x % 2 == 0)
    >>> list(load(range(6), num_epochs=1, transformations=[even]))
    [0, 2, 4]

    Args:
        condition_function: Returns whether to keep the element.
    """

    condition_function: Callable[[Element], bool]

    def __repr__(self) -> str:
        return short_repr(self)

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        for record in input_iterator:
            try:
                is_kept = self.condition_function(record.data)
            except Exception as error:
                raise ValueError(_ERROR.format("condition function")) from error
            if is_kept:
                yield Record(record.metadata.remove_record_key(), record.data)


@final
@dataclass(frozen=True)
class BatchOperation:
    """`Batch` under its older name.

    >>> from gristmill import load
    >>> list(load(range(3), num_epochs=1, transformations=[BatchOperation(2)]))
    [array([0, 1]), array([2])]

    Args:
        batch_size: The number of elements in a batch.
        drop_remainder: Whether to drop the last, smaller batch.
        batch_fn: Makes a batch of a list of elements; by default they are stacked.

    Raises:
        PlanError: If `batch_size` is below 1.
        PlanTypeError: If an argument has the wrong type.
    """

    batch_size: int
    drop_remainder: bool = False
    batch_fn: Callable[[Sequence[Element]], Element] | None = None

    def __repr__(self) -> str:
        return short_repr(self)

    def __post_init__(self) -> None:
        self.as_batch()  # checks the arguments

    def __call__(self, input_iterator: Iterator[Record[Any]]) -> Iterator[Record[Any]]:
        make = self.batch_fn or stack
        while some := list(islice(input_iterator, self.batch_size)):
            if len(some) == self.batch_size or not self.drop_remainder:
                batch = make([record.data for record in some])
                yield Record(some[-1].metadata.remove_record_key(), batch)

    def as_batch(self) -> Batch:
        """Return the equivalent transformation."""
        return Batch(self.batch_size, self.drop_remainder, self.batch_fn)

    def disable_deprecation_message(self) -> None:
        """Do nothing: gristmill has no such message."""
