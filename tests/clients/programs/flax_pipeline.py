"""A training loop of Flax over a loader, in the form of a script of its users."""

import json
from typing import Any

import grain.python as grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx


class Normalize(grain.MapTransform):
    def map(self, element: Any) -> Any:
        return {"image": element["image"].astype(np.float32) / 255, "label": element["label"]}


class RandomShift(grain.RandomMapTransform):
    def random_map(self, element: Any, rng: np.random.Generator) -> Any:
        return {**element, "image": np.roll(element["image"], rng.integers(3), axis=0)}


class Digits:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        image = np.zeros((8, 8), np.uint8)
        image[:, index % 8] = 255
        return {"image": image, "label": np.int32(index % 8)}


def make_loader(num_workers: int) -> Any:
    return grain.DataLoader(
        data_source=Digits(),
        sampler=grain.IndexSampler(
            num_records=64,
            shard_options=grain.ShardByJaxProcess(drop_remainder=True),
            shuffle=True,
            num_epochs=2,
            seed=3,
        ),
        operations=[RandomShift(), Normalize(), grain.Batch(16, drop_remainder=True)],
        worker_count=num_workers,
        read_options=grain.ReadOptions(num_threads=2, prefetch_buffer_size=8),
    )


def train(loader: Any) -> list[float]:
    model = nnx.Linear(64, 8, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.5), wrt=nnx.Param)

    def loss_of(model: Any, batch: Any) -> jax.Array:
        logits = model(batch["image"].reshape(len(batch["image"]), -1))
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
        return jnp.mean(losses)

    losses: list[float] = []
    for batch in loader:
        loss, gradients = nnx.value_and_grad(loss_of)(model, batch)
        optimizer.update(model, gradients)
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    print(json.dumps([train(make_loader(0)), type(make_loader(0)).__module__.split(".")[0]]))
