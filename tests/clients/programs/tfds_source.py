"""Read `tfds.data_source` in a pipeline, and print a checksum of each batch."""

import json
import tempfile
from typing import Any

import grain
import numpy as np
import tensorflow_datasets as typed_tfds

tfds: Any = typed_tfds


class Numbers(tfds.core.GeneratorBasedBuilder):
    """Forty numbers, as ArrayRecord."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> Any:
        features = {"number": np.int64, "name": tfds.features.Text()}
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, dl_manager: Any) -> Any:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Any:
        for number in range(40):
            yield number, {"number": number, "name": f"n{number}"}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        builder = Numbers(data_dir=folder, file_format="array_record")
        builder.download_and_prepare()
        source = builder.as_data_source(split="train")
        dataset = grain.MapDataset.source(source).seed(4).shuffle().batch(8)
        batches = [
            [batch["number"].tolist(), [bytes(name).decode() for name in batch["name"]]]
            for batch in dataset
        ]
        print(json.dumps([batches, grain.MapDataset.__module__.split(".")[0]]))
