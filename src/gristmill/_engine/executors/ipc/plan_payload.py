"""The plans that every worker gets at its start, in memory once for all workers.

They are pickled with large buffers out of band, and all of that is copied into one range of shared
memory. Workers map it copy-on-write: pages that no worker writes to exist once, and what a worker
writes is private to it.
"""

import os
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from gristmill._base.tree import is_jax_pytree
from gristmill._engine.executors.ipc.serialize import (
    PLAN_IN_BAND_BYTES,
    dump_plan,
    keys_of,
    load_each,
    out_of_band,
)
from gristmill._engine.executors.ipc.shared_memory import Lease, Mapping, aligned, create_memory


@final
@dataclass(frozen=True)
class PlanPayload:
    """Pickled objects in shared memory: the pickles first, then their buffers."""

    descriptor: int
    sizes: Sequence[int]
    """Bytes of the pickles, then of each buffer. Each begins at an aligned offset."""
    pytrees: Sequence[str] = ()
    """Keys of classes that are registered as pytrees in JAX, which a worker does not know."""
    payload: bytes = b""
    """The pickles, which keep the classes in them alive."""

    @staticmethod
    def pack(*objects: object) -> "PlanPayload":
        """Pickle some objects into new shared memory."""
        buffers: list[pickle.PickleBuffer] = []
        payload = dump_plan(
            *objects, buffer_callback=out_of_band(buffers, smallest=PLAN_IN_BAND_BYTES)
        )
        chunks = [memoryview(payload), *(buffer.raw() for buffer in buffers)]
        sizes = [len(chunk) for chunk in chunks]
        descriptor = create_memory(sum(map(aligned, sizes)))
        # Written, not mapped: the parent has the originals and does not need the copy.
        offset = 0
        for chunk in chunks:
            _write(descriptor, chunk, offset)
            offset += aligned(len(chunk))
        return PlanPayload(
            descriptor, sizes, keys_of(filter(is_jax_pytree, payload.classes)), payload
        )

    def unpack(self) -> Iterator[Any]:
        """Load one object after the other. Their arrays keep the memory alive that they view."""
        total = sum(map(aligned, self.sizes))
        mapping = Mapping(self.descriptor, total, is_private=True)
        os.close(self.descriptor)
        memory = Lease(mapping.address, total).view()
        starts = np.cumsum([0, *map(aligned, self.sizes)]).tolist()
        chunks = [
            memory[start : start + size] for start, size in zip(starts, self.sizes, strict=False)
        ]
        return load_each(chunks[0], chunks[1:])


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
