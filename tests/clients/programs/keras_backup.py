"""Interrupt `fit` with `BackupAndRestore`, start it again, and print which batches came."""

import contextlib
import json
import sys
from typing import Any

import keras
import numpy as np

import gristmill as gm

EPOCHS, STEPS, STOP_AFTER = 4, 10, 23


class Resumed(gm.IterDataset[Any]):
    """The batches of a dataset from the step on that an optimizer has reached."""

    def __init__(self, dataset: gm.IterDataset[Any], optimizer: Any) -> None:
        super().__init__(dataset)
        self._dataset, self._optimizer = dataset, optimizer

    def __iter__(self) -> gm.DatasetIterator[Any]:
        return self._dataset.from_step(int(self._optimizer.iterations))


class Stop(keras.callbacks.Callback):
    """Ends the program after some steps, and keeps the losses."""

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.num_steps, self.losses = num_steps, list[float]()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.losses.append(float(logs["loss"]))
        if len(self.losses) == self.num_steps:
            raise InterruptedError


def train(folder: str, num_steps: int, save_freq: Any) -> tuple[list[float], list[float]]:
    rng = np.random.default_rng(0)
    source = gm.ArraySource((rng.normal(size=(256, 4)), np.arange(256.0)[:, None] / 256))
    shuffled = gm.MapDataset.source(source).shuffle(seed=1).repeat()
    dataset = shuffled.to_iter_dataset().filter(lambda record: record[0][0] > -1).batch(8)
    keras.utils.set_random_seed(0)
    model: Any = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    stop = Stop(num_steps)
    backup = keras.callbacks.BackupAndRestore(folder, save_freq=save_freq, delete_checkpoint=False)
    batches = Resumed(dataset, model.optimizer)
    with contextlib.suppress(InterruptedError):
        model.fit(
            batches, epochs=EPOCHS, steps_per_epoch=STEPS, callbacks=[backup, stop], verbose=0
        )
    return stop.losses, np.asarray(model.get_weights()[0]).ravel().tolist()


if __name__ == "__main__":
    folder = sys.argv[1]
    whole = train(f"{folder}/whole", EPOCHS * STEPS, "epoch")
    train(f"{folder}/killed", STOP_AFTER, "epoch")
    resumed = train(f"{folder}/killed", EPOCHS * STEPS, "epoch")
    print(json.dumps({"whole": whole[1], "resumed": resumed[1], "num_steps": len(resumed[0])}))
