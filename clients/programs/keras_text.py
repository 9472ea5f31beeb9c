"""Keras: text files in folders, as a dataset of Grain that Keras makes itself."""

import tempfile
from pathlib import Path
from typing import Any

import keras as typed_keras

from clients._digest import report

keras: Any = typed_keras

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for number in range(400):
            path = Path(folder) / ("even" if number % 2 == 0 else "odd") / f"{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"the number {number} " * (number % 7 + 1))
        dataset = keras.utils.text_dataset_from_directory(
            folder, batch_size=16, seed=3, format="grain", verbose=False
        )
        report(dataset, keras=keras.__version__)
