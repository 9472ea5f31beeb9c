"""tf.data with the JPEG decoder of TensorFlow, in as many threads as it chooses."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from benchmarks._jpeg import BATCH_SIZE, CROP, HEIGHT, WIDTH, JpegSource

AUTOTUNE = tf.data.AUTOTUNE


def jpeg(source: JpegSource, *, crops: bool = False) -> Callable[[], Any]:
    """Decode, crop and flip in a parallel map; `crops`: decode only the crop."""
    files = tf.constant(source.files)

    def augment(index: Any) -> Any:
        file = files[index % len(source.files)]
        top = tf.random.uniform((), 0, HEIGHT - CROP + 1, tf.int32)
        left = tf.random.uniform((), 0, WIDTH - CROP + 1, tf.int32)
        flip = tf.random.uniform((), 0, 2, tf.int32)
        if crops:
            image = tf.io.decode_and_crop_jpeg(file, [top, left, CROP, CROP], channels=3)
        else:
            image = tf.io.decode_jpeg(file, channels=3)
            image = tf.image.crop_to_bounding_box(image, top, left, CROP, CROP)
        image = tf.cond(flip == 1, lambda: tf.image.flip_left_right(image), lambda: image)
        return image, index, tf.stack([top, left, flip])

    dataset = tf.data.Dataset.range(len(source)).map(augment, num_parallel_calls=AUTOTUNE)
    return dataset.batch(BATCH_SIZE).prefetch(AUTOTUNE).as_numpy_iterator
