"""Conversion of the samplers that users bring to gristmill's: lists of indices, PyTorch's."""

from collections.abc import Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Protocol, SupportsIndex, TypeAlias, cast

import numpy as np

from gristmill._data.sampling.epoch_samplers import SubsetSampler
from gristmill._data.sampling.grain_samplers import own_sampler
from gristmill._data.sampling.samplers import Sampler
from gristmill.errors import PlanTypeError


class IntegerSampler(Protocol):
    """A user's own sampler that returns the index of the record at an index of the stream."""

    def __getitem__(self, index: int, /) -> int: ...


AnySampler: TypeAlias = Sampler | IntegerSampler | Iterable[int]
"""What a `DataLoader` takes as a sampler."""

MAX_INDICES = 2**28
"""An iterable that yields more indices than this is treated as endless."""


def as_sampler(sampler: object) -> Any:
    """Return the sampler for what the user passes as one.

    A list or an array of indices, and an iterable that yields integers (such as a sampler of
    PyTorch), is read once: it is the order of one epoch. An object with `__getitem__` is asked for
    each index of the stream, and returns `RecordMetadata` or an integer.

    >>> as_sampler([2, 0, 1])[0].record_key
    2
    """
    given = cast(Any, sampler)
    if isinstance(sampler, type | str | bytes | dict | set | frozenset):
        return given  # refused where the node is built, with a remedy
    if isinstance(sampler, np.ndarray):
        return _as_subset(given)
    if isinstance(sampler, list | tuple | range):
        listed: Sequence[Any] = given
        # Anything else may be a list of `RecordMetadata`, which is a user's own sampler.
        if not len(listed) or isinstance(listed[0], SupportsIndex | float | np.generic):
            return _as_subset(listed)
    if isinstance(given, Sampler):
        return own_sampler(given)
    if isinstance(sampler, Iterable):
        return _as_subset(_read_once(cast("Iterable[Any]", sampler)))
    return sampler


def _as_subset(indices: Sequence[Any]) -> SubsetSampler:
    return SubsetSampler(indices, num_epochs=1)


def _read_once(sampler: Iterable[Any]) -> list[int]:
    limit = len(sampler) if isinstance(sampler, Sized) else MAX_INDICES
    indices: list[Any] = list(islice(sampler, limit + 1))
    name = type(sampler).__name__
    if len(indices) > limit:
        raise PlanTypeError(
            f"`sampler` {name} yields more than {limit} indices. Pass one that ends, or an object "
            "with `__getitem__`, such as `IndexSampler(num_epochs=None)`."
        )
    for index in indices:
        if isinstance(index, list | tuple):
            raise PlanTypeError(
                f"`sampler` {name} yields lists of indices. Pass the sampler of single records, "
                "and `Batch(...)` as an operation."
            )
    return indices
