"""The plans that every worker gets at its start, in memory once for all workers.

They are pickled with large buffers out of band, and all of that is copied into one range of shared
memory. Workers map it copy-on-write: pages that no worker writes to exist once, and what a worker
writes is private to it.
"""

import itertools
import os
import pickle
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from gristmill._base.trees.tree import is_jax_pytree
from gristmill._engine.executors.serialization.packed_sources import PackedSource, PackedSources
from gristmill._engine.executors.serialization.serialize import (
    PLAN_IN_BAND_BYTES,
    PlanBytes,
    dump_plan,
    keys_of,
    load_each,
    out_of_band,
)
from gristmill._engine.executors.serialization.shared_memory import (
    Lease,
    Mapping,
    address_of,
    aligned,
    create_memory,
    has_bytes,
)


@final
class PickledPlan:
    """Objects that were pickled for workers: the pickles, and their large buffers."""

    def __init__(self, *objects: object, lists: PackedSources | None = None) -> None:
        """Pickle objects.

        Args:
            objects: The objects.
            lists: Packs long lists in them; `None` to pickle these as any others.
        """
        replace_list = lists.refer if lists is not None and lists.finds_lists else None
        self.packs_lists = replace_list is not None
        """Whether lists in the objects are packed, if there are any."""
        buffers: list[pickle.PickleBuffer] = []
        self.pickles = dump_plan(
            *objects,
            buffer_callback=out_of_band(buffers, smallest=PLAN_IN_BAND_BYTES),
            replace_list=replace_list,
        )
        self._chunks = [memoryview(self.pickles), *(buffer.raw() for buffer in buffers)]
        self.sources: Sequence[PackedSource] = () if lists is None else lists.comparable
        """Sources and lists that need not be packed again for the next iterator."""

    @property
    def chunks(self) -> Sequence[memoryview]:
        """The pickles, and each of their buffers."""
        return self._chunks

    def write(self) -> "PlanPayload":
        """Copy everything into new shared memory."""
        sizes = [len(chunk) for chunk in self._chunks]
        descriptor = create_memory(sum(map(aligned, sizes)))
        # Written, not mapped: the parent has the originals and does not need the copy.
        for start, chunk in zip(_starts(sizes), self._chunks, strict=True):
            _write(descriptor, chunk, start)
        pytrees = keys_of(filter(is_jax_pytree, self.pickles.classes))
        payload = PlanPayload(descriptor, sizes, pytrees, self.pickles)
        payload.keep_sources(self.sources, self._chunks)
        return payload

    def is_in(self, payload: "PlanPayload") -> bool:
        """Return whether shared memory has the same content."""
        if self.pickles != payload.pickles or [*map(len, self._chunks)] != list(payload.sizes):
            return False
        return payload.has(self._chunks[1:])


@final
@dataclass
class PlanPayload:
    """Pickled objects in shared memory: the pickles first, then their buffers."""

    descriptor: int
    sizes: Sequence[int]
    """Bytes of the pickles, then of each buffer. Each begins at an aligned offset."""
    pytrees: Sequence[str] = ()
    """Keys of classes that are registered as pytrees in JAX, which a worker does not know."""
    pickles: PlanBytes = field(default_factory=PlanBytes)
    """The pickles, which keep the classes in them alive. Empty in a worker."""
    sources: Sequence[PackedSource] = ()
    """Sources that need not be packed again, on this memory. Empty in a worker."""
    _memory: NDArray[np.uint8] | None = field(default=None, init=False, repr=False)
    """The memory, once it was mapped. It is unmapped with the last array on it."""

    def has(self, buffers: Sequence[memoryview]) -> bool:
        """Return whether the buffers, of the same sizes, have the same content.

        It cannot be compared if the system does not map the memory; then this returns `False`.
        """
        memory = self._map()
        if memory is None:
            return False
        return all(map(partial(has_bytes, memory), buffers, _starts(self.sizes)[1:]))

    def keep_sources(self, sources: Sequence[PackedSource], chunks: Sequence[memoryview]) -> None:
        """Keep packed sources for the next iterator, on this memory, where workers have them too.

        Args:
            sources: The sources, which are in the chunks.
            chunks: What this memory has the content of.
        """
        memory = self._map() if sources else None
        if memory is None:
            return
        starts = {
            address_of(np.frombuffer(chunk, np.uint8)): start
            for chunk, start in zip(chunks, _starts(self.sizes), strict=True)
            if chunk
        }

        def move(array: NDArray[Any]) -> NDArray[Any]:
            start = starts.get(address_of(array))
            if start is None:  # it is so small that it is in the pickle
                return array
            return memory[start : start + array.nbytes].view(array.dtype)

        self.sources = [source.moved(move) for source in sources]

    def _map(self) -> NDArray[np.uint8] | None:
        """Return the memory, which stays mapped: mapping takes as long as comparing."""
        if self._memory is None:
            total = sum(map(aligned, self.sizes))
            try:
                mapping = Mapping(self.descriptor, total)
            except OSError:
                return None
            lease = Lease(mapping.address, total)
            weakref.finalize(lease, mapping.close).atexit = False
            self._memory = lease.view()
        return self._memory

    def close(self) -> None:
        """Close the descriptor and unmap the memory. Workers keep theirs."""
        os.close(self.descriptor)
        self._memory, self.sources = None, ()

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


def _write(descriptor: int, data: memoryview, offset: int) -> None:
    while len(data):
        written = os.pwrite(descriptor, data, offset)
        data = data[written:]
        offset += written
