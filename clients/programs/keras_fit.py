"""Keras: `model.fit` on a loader; the elements are the losses and the weights."""

from collections.abc import Iterator
from typing import Any

import grain
import keras as typed_keras
import numpy as np

from clients._digest import report

keras: Any = typed_keras


def train() -> Iterator[Any]:
    """Train, and yield the losses and the weights."""
    points = np.random.default_rng(0).normal(size=(4096, 8)).astype(np.float32)
    records = [(point, point.sum(keepdims=True)) for point in points]
    loader = grain.DataLoader(
        data_source=records,
        sampler=grain.samplers.IndexSampler(
            num_records=len(records),
            num_epochs=1,
            shuffle=True,
            seed=1,
            shard_options=grain.sharding.NoSharding(),
        ),
        operations=[grain.transforms.Batch(32, drop_remainder=True)],
    )
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(loader, epochs=3, shuffle=False, verbose=0)
    yield from history.history["loss"]
    yield from model.get_weights()


if __name__ == "__main__":
    report(train(), keras=keras.__version__)
