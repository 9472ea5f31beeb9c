"""gristmill, feeding JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

import gristmill
from benchmarks import _torch_mnist
from benchmarks._mnist import BATCH_SIZE, Mnist
from benchmarks.contenders._grain_api import Start


def columns(data: Mnist, *, worker_count: int) -> Start:
    """Feed MNIST as two arrays, in order, repeated."""
    loader = gristmill.load(
        gristmill.ArraySource((data.images, data.labels)),
        batch_size=BATCH_SIZE,
        worker_count=worker_count,
    )
    return lambda: gristmill.feed(loader)


def torch_items(data: Mnist, *, items: str, worker_count: int, prefetch: int) -> Start:
    """Feed the same dataset as PyTorch's DataLoader reads, repeated."""
    dataset: Any = gristmill.from_torch(_torch_mnist.dataset(data, items))
    options = gristmill.MultiprocessingOptions(num_workers=worker_count)
    batches = dataset.repeat().batch(BATCH_SIZE).to_iter_dataset().mp_prefetch(options)
    return lambda: gristmill.feed(batches, prefetch=prefetch)


def overhead(data: Mnist) -> dict[str, Callable[[], Any]]:
    """Return two functions that run a small step: on a fed batch, and after `device_put`."""
    loader = gristmill.load(
        gristmill.ArraySource((data.images, data.labels)),
        shuffle=True,
        seed=0,
        batch_size=BATCH_SIZE,
    )
    fed, bare = gristmill.feed(loader), iter(loader)

    @jax.jit
    def step(images: jax.Array, labels: jax.Array) -> jax.Array:
        return jnp.sum(images, dtype=jnp.int32) + jnp.sum(labels)

    return {
        "feed": lambda: step(*next(fed)).block_until_ready(),
        "bare": lambda: step(*jax.device_put(next(bare))).block_until_ready(),
    }
