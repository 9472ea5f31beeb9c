"""Train with Keras on each kind of input of some packages, and print the losses.

Each argument names a package: `grain`, `gristmill`.
"""

import importlib
import json
import sys
from typing import Any

import keras as typed_keras
import numpy as np
from keras.src.utils.backend_utils import in_grain_data_pipeline

keras: Any = typed_keras  # its types are wrong about `verbose`

inputs = np.random.default_rng(0).normal(size=(48, 4)).astype(np.float32)
records = [(row, row.sum(keepdims=True)) for row in inputs]
was_in_pipeline: list[bool] = []


def check_pipeline(record: Any) -> Any:
    was_in_pipeline.append(in_grain_data_pipeline())
    return record


def train(data: Any) -> list[float]:
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(data, epochs=2, shuffle=False, verbose=0).history["loss"]
    return [*map(float, history), float(model.evaluate(data, verbose=0))]


def losses(package: str) -> dict[str, list[float]]:
    api: Any = importlib.import_module(package)

    def loader(num_workers: int) -> Any:
        return api.DataLoader(
            data_source=records,
            sampler=api.samplers.IndexSampler(
                num_records=48,
                num_epochs=1,
                shuffle=True,
                seed=1,
                shard_options=api.sharding.NoSharding(),
            ),
            operations=[api.transforms.Batch(8)],
            worker_count=num_workers,
        )

    # Keras sends workers a step that refers to a module of its own, which cannot be pickled if it
    # is that of TensorFlow.
    has_workers = api.__name__ == "gristmill" and keras.backend.backend() != "tensorflow"
    dataset = api.MapDataset.source(records).map(check_pipeline).shuffle(seed=1).batch(8)
    return {
        "MapDataset": train(dataset),
        "IterDataset": train(dataset.to_iter_dataset()),
        "DataLoader": train(loader(0)),
        "DataLoader with a worker": train(loader(1)) if has_workers else [],
    }


if __name__ == "__main__":
    found = {package: losses(package) for package in sys.argv[1:]}
    print(json.dumps({"losses": found, "in_pipeline": sorted(set(was_in_pipeline))}))
