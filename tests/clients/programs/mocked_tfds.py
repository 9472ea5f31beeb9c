"""Read data sources of TFDS while its own mocking replaces their records."""

import hashlib
import json
from typing import Any

import grain.python as grain
import numpy as np
import tensorflow_datasets as typed_tfds

tfds: Any = typed_tfds


def digest(elements: Any) -> list[str]:
    return [
        hashlib.sha256(np.ascontiguousarray(element[name]).tobytes()).hexdigest()[:16]
        for element in elements
        for name in sorted(element)
    ]


if __name__ == "__main__":
    found: dict[str, list[str]] = {}
    with tfds.testing.mock_data(num_examples=37):
        source = tfds.data_source("mnist", split="train")
        ds: Any = grain.MapDataset.source(source).seed(1).shuffle()
        found["records"] = digest(source[index] for index in range(3))
        found["batches"] = digest(ds.batch(4))
        found["a stream"] = digest(ds.repeat(2).to_iter_dataset().batch(5, drop_remainder=True))
        found["a loader"] = digest(
            grain.DataLoader(
                data_source=source,
                sampler=grain.IndexSampler(
                    len(source),
                    shuffle=True,
                    seed=1,
                    num_epochs=2,
                    shard_options=grain.NoSharding(),
                ),
                operations=[grain.Batch(8)],
            )
        )
        others = tfds.builder("cifar10").as_data_source(split="test")
        found["a builder"] = digest(grain.MapDataset.source(others).to_iter_dataset().batch(3))
    print(json.dumps(found))
