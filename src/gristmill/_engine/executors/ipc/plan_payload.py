"""The plans that every worker gets at its start, in memory once for all workers.

They are pickled with large buffers out of band, and all of that is copied into one range of shared
memory. Workers map it copy-on-write: pages that no worker writes to exist once, and what a worker
writes is private to it.
"""

import itertools
import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from gristmill._base.tree import is_jax_pytree
from gristmill._engine.executors.ipc.serialize import (
    PLAN_IN_BAND_BYTES,
    PlanBytes,
    dump_plan,
    keys_of,
    load_each,
    out_of_band,
)
from gristmill._engine.executors.ipc.shared_memory import Lease, Mapping, aligned, create_memory

_COMPARED_BYTES = 1 << 20
"""Bytes that are compared at a time: they stay in a cache."""


@final
class PickledPlan:
    """Objects that were pickled for workers: the pickles, and their large buffers."""

    def __init__(self, *objects: object) -> None:
        buffers: list[pickle.PickleBuffer] = []
        self.pickles = dump_plan(
            *objects, buffer_callback=out_of_band(buffers, smallest=PLAN_IN_BAND_BYTES)
        )
        self._chunks = [memoryview(self.pickles), *(buffer.raw() for buffer in buffers)]

    def write(self) -> "PlanPayload":
        """Copy everything into new shared memory."""
        sizes = [len(chunk) for chunk in self._chunks]
        descriptor = create_memory(sum(map(aligned, sizes)))
        # Written, not mapped: the parent has the originals and does not need the copy.
        for start, chunk in zip(_starts(sizes), self._chunks, strict=True):
            _write(descriptor, chunk, start)
        pytrees = keys_of(filter(is_jax_pytree, self.pickles.classes))
        return PlanPayload(descriptor, sizes, pytrees, self.pickles)

    def is_in(self, payload: "PlanPayload") -> bool:
        """Return whether shared memory has the same content."""
        if self.pickles != payload.pickles or len(self._chunks) != len(payload.sizes):
            return False
        starts = _starts(payload.sizes)
        return all(
            len(chunk) == size and _is_at(payload.descriptor, chunk, start)
            for start, size, chunk in zip(starts, payload.sizes, self._chunks, strict=True)
        )


@final
@dataclass(frozen=True)
class PlanPayload:
    """Pickled objects in shared memory: the pickles first, then their buffers."""

    descriptor: int
    sizes: Sequence[int]
    """Bytes of the pickles, then of each buffer. Each begins at an aligned offset."""
    pytrees: Sequence[str] = ()
    """Keys of classes that are registered as pytrees in JAX, which a worker does not know."""
    pickles: PlanBytes = field(default_factory=PlanBytes)
    """The pickles, which keep the classes in them alive. Empty in a worker."""

    def unpack(self) -> Iterator[Any]:
        """Load one object after the other. Their arrays keep the memory alive that they view."""
        total = sum(map(aligned, self.sizes))
        mapping = Mapping(self.descriptor, total, is_private=True)
        os.close(self.descriptor)
        memory = Lease(mapping.address, total).view()
        starts = _starts(self.sizes)
        chunks = [
            memory[start : start + size] for start, size in zip(starts, self.sizes, strict=True)
        ]
        return load_each(chunks[0], chunks[1:])


def _starts(sizes: Sequence[int]) -> list[int]:
    """Return the offset of each chunk."""
    return list(itertools.accumulate(map(aligned, sizes[:-1]), initial=0))


def _is_at(descriptor: int, data: memoryview, offset: int) -> bool:
    """Return whether the memory at an offset has some bytes."""
    while len(data):
        found = os.pread(descriptor, min(len(data), _COMPARED_BYTES), offset)
        if found != bytes(data[: len(found)]):
            return False
        data = data[len(found) :]
        offset += len(found)
    return True


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
