"""Defines a loader that is compared."""

# Worker processes import the modules of the datasets, which import this one, so it needs no jax.

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Batch = tuple[Any, Any]  # images, labels


@dataclass(frozen=True)
class Contender:
    """A loader to compare: each call of `batches()` starts a new epoch."""

    name: str
    batches: Callable[[], Iterable[Batch]]
    peer: str | None = None  # for gristmill: the other loader of the same dataset
    first: Callable[[], Batch] | None = None  # returns a batch to compile for, if not `batches()`
