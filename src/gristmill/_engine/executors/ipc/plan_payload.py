"""What every worker gets at its start, once in memory for all of them.

The plan is pickled with its large buffers apart, and all of it laid into one piece of shared
memory. Workers map that for themselves: pages that nobody writes to exist once, and what a worker
writes stays its own.
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
    """Pickled things in shared memory: the pickles first, then their buffers."""

    descriptor: int
    sizes: Sequence[int]
    pytrees: Sequence[str] = ()
    """Keys of the classes in it that JAX takes apart in the parent, but cannot in a worker."""
    payload: bytes = b""
    """What keeps the classes in it alive."""

    @staticmethod
    def pack(*things: Any) -> "PlanPayload":
        """Pickle some things into fresh memory."""
        buffers: list[pickle.PickleBuffer] = []
        payload = dump_plan(
            *things, buffer_callback=out_of_band(buffers, smallest=PLAN_IN_BAND_BYTES)
        )
        parts: list[Any] = [payload, *(buffer.raw() for buffer in buffers)]
        sizes = [len(part) for part in parts]
        descriptor = create_memory(sum(map(aligned, sizes)))
        # Not mapped here: the parent has the originals, and needs no second address for them.
        offset = 0
        for part in parts:
            _write(descriptor, memoryview(part), offset)
            offset += aligned(len(part))
        return PlanPayload(
            descriptor, sizes, keys_of(filter(is_jax_pytree, payload.classes)), payload
        )

    def unpack(self) -> Iterator[Any]:
        """Give one thing after the other; their arrays view the memory as long as there are any."""
        total = sum(map(aligned, self.sizes))
        mapping = Mapping(self.descriptor, total, is_private=True)
        os.close(self.descriptor)
        memory = Lease(mapping.address, total).view()
        starts = np.cumsum([0, *map(aligned, self.sizes)]).tolist()
        parts = [
            memory[start : start + size] for start, size in zip(starts, self.sizes, strict=False)
        ]
        return load_each(parts[0], parts[1:])


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
