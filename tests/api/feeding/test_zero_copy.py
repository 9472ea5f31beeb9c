"""Batches become arrays of JAX without copies, and are never overwritten."""

from itertools import islice
from typing import Any

import jax
import numpy as np

import gristmill as gm
from tests.api.feeding.batches import Watched, of

# A lambda is pickled by value. For a named function, workers would import this module and JAX.
IMAGE: Any = lambda index: np.full(2**20, index, np.uint8)  # noqa: E731


def images(batch_size: int) -> gm.DataLoader:
    """Return a loader whose batches are large enough to be sent in shared memory."""
    return gm.DataLoader(
        data_source=range(120),
        sampler=gm.IndexSampler(120, num_epochs=1),
        operations=[IMAGE, gm.Batch(batch_size)],
        worker_count=1,
    )


def test_batches_of_workers_are_not_copied_to_jax():
    source = Watched(iter(images(batch_size=8)))

    with gm.feed(source) as iterator:
        batches = list(islice(iterator, 5))
        pointers = [batch.unsafe_buffer_pointer() for batch in batches]

    assert [address % 64 for address in source.addresses[:5]] == [0] * 5
    assert pointers == source.addresses[:5]


def test_inline_batches_are_not_copied_if_jax_can_alias_them():
    memory = np.zeros(64 * 65, np.uint8)
    start = -memory.ctypes.data % 64
    for offset in (0, 64, 4):
        array = memory[start + offset :][:256].view(np.float32)
        source = Watched(iter(of(array).to_iter_dataset()))

        with gm.feed(source) as iterator:
            batch = next(iterator)

        assert source.addresses[0] == array.ctypes.data
        assert (batch.unsafe_buffer_pointer() == array.ctypes.data) == (offset != 4)


def test_a_batch_that_the_user_keeps_never_changes_while_memory_is_reused():
    source = Watched(iter(images(batch_size=4)))
    kept: list[tuple[int, jax.Array]] = []

    with gm.feed(source) as iterator:
        for number, batch in enumerate(iterator):
            if number % 8 == 3:
                kept.append((number, batch))
            del batch

    assert len(set(source.addresses)) < len(source.addresses) == 30  # some memory was reused
    assert len(kept) == 4
    for number, batch in kept:
        assert batch.unsafe_buffer_pointer() == source.addresses[number]
        expected = np.arange(4 * number, 4 * number + 4)
        assert (np.asarray(batch) == expected[:, None]).all()
