"""Train with Keras on each kind of input of some packages, and print the losses.

Each argument names a package: `grain`, `gristmill`. With `--worker`, train on a loader of
gristmill with a worker process, too.
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

    dataset = api.MapDataset.source(records).map(check_pipeline).shuffle(seed=1).batch(8)
    found = {
        "MapDataset": train(dataset),
        "IterDataset": train(dataset.to_iter_dataset()),
        "DataLoader": train(loader(0)),
    }
    if "--worker" in sys.argv and api.__name__ == "gristmill":
        found["DataLoader with a worker"] = train(loader(1))
    return found


if __name__ == "__main__":
    packages = [argument for argument in sys.argv[1:] if argument != "--worker"]
    found = {package: losses(package) for package in packages}
    print(json.dumps({"losses": found, "in_pipeline": sorted(set(was_in_pipeline))}))
