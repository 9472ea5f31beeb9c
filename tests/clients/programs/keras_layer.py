"""Apply a preprocessing layer of Keras inside and outside of a pipeline, and print the devices."""

import json

import grain  # noqa: F401 - Keras knows that it is in a pipeline only if it is imported
import jax
import keras
import numpy as np

from gristmill import MapDataset

if __name__ == "__main__":
    jax.config.update("jax_default_device", jax.devices()[1])
    layer = keras.layers.Rescaling(2.0)
    devices: list[int] = []

    def rescale(image: np.ndarray) -> np.ndarray:
        rescaled = layer(image)
        devices.append(rescaled.device.id)
        return np.asarray(rescaled)

    image = np.ones((2, 2, 3), np.float32)
    outside = layer(image).device.id
    assert [rescaled.max() for rescaled in MapDataset.source([image]).map(rescale)] == [2.0]
    print(json.dumps({"inside": devices, "outside": outside}))
