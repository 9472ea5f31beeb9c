"""Flax, TFDS and Orbax: read a data source, stop in the middle, restore, and continue."""

import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any

import grain.python as grain
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as typed_ocp
import tensorflow_datasets as typed_tfds
from flax import nnx

from clients._digest import report

ocp: Any = typed_ocp
tfds: Any = typed_tfds


class Numbers(tfds.core.GeneratorBasedBuilder):
    """Numbers with their squares, as ArrayRecord."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        features = tfds.features.FeaturesDict({"x": np.float32, "y": np.float32})
        return tfds.core.DatasetInfo(builder=self, features=features)

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Any:
        for number in range(2000):
            yield number, {"x": number / 2000, "y": (number / 2000) ** 2}


def batches(folder: str) -> Iterator[Any]:
    """Yield each batch with what a small model makes of it, across a checkpoint."""
    builder = Numbers(data_dir=folder, file_format="array_record")
    builder.download_and_prepare()
    source = builder.as_data_source(split="train")

    def start() -> Any:
        return iter(grain.MapDataset.source(source).seed(1).shuffle().batch(16).to_iter_dataset())

    model = nnx.Linear(1, 1, rngs=nnx.Rngs(0))
    iterator = start()
    with ocp.CheckpointManager(f"{folder}/checkpoints") as manager:
        step = 50
        for _ in range(step):
            batch = next(iterator)
            yield batch, model(jnp.asarray(batch["x"])[:, None])
        manager.save(step, args=ocp.args.Composite(data=grain.PyGrainCheckpointSave(iterator)))
        manager.wait_until_finished()
        iterator = start()
        manager.restore(
            step, args=ocp.args.Composite(data=grain.PyGrainCheckpointRestore(iterator))
        )
    yield from iterator


if __name__ == "__main__":
    names = ("flax", "orbax-checkpoint", "tensorflow-datasets")
    with tempfile.TemporaryDirectory() as folder:
        report(batches(folder), **{name: version(name) for name in names})
