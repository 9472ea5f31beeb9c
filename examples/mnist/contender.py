"""A loader that takes part."""

# Worker processes import the modules of the datasets, and thereby this one: it needs no jax.

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Batch = tuple[Any, Any]  # images, labels


@dataclass(frozen=True)
class Contender:
    """A way to get the batches of one epoch: `batches()` begins anew each time."""

    name: str
    batches: Callable[[], Iterable[Batch]]
    peer: str | None = None  # for ours: who reads the same dataset
    first: Callable[[], Batch] | None = None  # a batch to compile for, if not one of `batches()`
