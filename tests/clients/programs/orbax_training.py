"""Train a model of Flax, save it with the position of the data, stop, restore, and train on."""

import json
import tempfile
from collections.abc import Callable
from typing import Any

import grain
import grain.python as old_grain
import numpy as np
import optax as typed_optax
import orbax.checkpoint as typed_ocp
from flax import nnx

ocp: Any = typed_ocp
optax: Any = typed_optax
SAVE_EVERY = 7


class Points:
    def __len__(self) -> int:
        return 640

    def __getitem__(self, index: Any) -> dict[str, Any]:
        x = np.random.default_rng(int(index)).normal(size=4).astype(np.float32)
        return {"x": x, "y": x.sum()}

    def __repr__(self) -> str:
        return "Points()"


def add_noise(record: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return record | {"x": record["x"] + rng.normal(scale=0.01, size=4).astype(np.float32)}


def dataset() -> Any:
    ds = grain.MapDataset.source(Points()).seed(42).shuffle().repeat().random_map(add_noise)
    options = grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)
    return ds.to_iter_dataset(options).batch(16, drop_remainder=True)


def loader() -> Any:
    return grain.DataLoader(
        data_source=Points(),
        sampler=grain.samplers.IndexSampler(
            640, shuffle=True, seed=5, num_epochs=None, shard_options=grain.sharding.NoSharding()
        ),
        operations=[grain.transforms.Batch(16, drop_remainder=True)],
    )


@nnx.jit
def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    def loss(model: Any) -> Any:
        return ((model(batch["x"])[:, 0] - batch["y"]) ** 2).mean()

    value, gradients = nnx.value_and_grad(loss)(model)
    optimizer.update(model, gradients)
    return value


def train(make: Callable[[], Any], folder: str, num_steps: int, save: Any, restore: Any) -> Any:
    model = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, optax.sgd(0.05), wrt=nnx.Param)
    iterator = iter(make())
    options = ocp.CheckpointManagerOptions(max_to_keep=2, enable_async_checkpointing=False)
    losses = []
    with ocp.CheckpointManager(folder, options=options) as manager:
        start = manager.latest_step() or 0
        if start:
            state = ocp.args.StandardRestore(nnx.split(model)[1])
            items = ocp.args.Composite(model=state, data=restore(iterator))
            nnx.update(model, manager.restore(start, args=items)["model"])
        for step in range(start + 1, num_steps + 1):
            losses.append(float(train_step(model, optimizer, next(iterator))))
            if step % SAVE_EVERY == 0:
                state = ocp.args.StandardSave(nnx.split(model)[1])
                manager.save(step, args=ocp.args.Composite(model=state, data=save(iterator)))
    return losses


if __name__ == "__main__":
    losses: dict[str, list[float]] = {}
    continued: dict[str, bool] = {}
    handlers = {
        "new": (grain.checkpoint.CheckpointSave, grain.checkpoint.CheckpointRestore),
        "old": (old_grain.PyGrainCheckpointSave, old_grain.PyGrainCheckpointRestore),
    }
    for make in (dataset, loader):
        for kind, (save, restore) in handlers.items():
            name = f"{make.__name__}, {kind} handlers"
            with tempfile.TemporaryDirectory() as folder:
                train(make, folder, 17, save, restore)
                resumed = train(make, folder, 30, save, restore)
            with tempfile.TemporaryDirectory() as folder:
                losses[name] = train(make, folder, 30, save, restore)
            continued[name] = resumed == losses[name][2 * SAVE_EVERY :]
    print(json.dumps({"losses": losses, "continued": continued}))
