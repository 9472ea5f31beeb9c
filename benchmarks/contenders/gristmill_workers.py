"""gristmill with worker processes: the same programs as for Grain, and one over an array."""

from functools import partial
from typing import Any

import numpy as np

import gristmill
from benchmarks import _jpeg, _large
from benchmarks._jpeg import CROP, HEIGHT, WIDTH, JpegSource
from benchmarks._mnist import BATCH_SIZE, Mnist, RecordSource
from benchmarks.contenders import _grain_workers
from benchmarks.contenders._grain_workers import Start
from gristmill.transforms import DecodeImage

mnist = partial(_grain_workers.mnist, gristmill)
jpeg = partial(_grain_workers.jpeg, gristmill)
large_batches = partial(_grain_workers.large_batches, gristmill)
samples = partial(_grain_workers.samples, gristmill)
strings = partial(_grain_workers.strings, gristmill)
stragglers = partial(_grain_workers.stragglers, gristmill)
waiting_reads = partial(_grain_workers.waiting_reads, gristmill)


class DecodeCropFlip(gristmill.RandomMap):
    """Decodes with `DecodeImage`, and returns a random crop, flipped or not."""

    def __init__(self) -> None:
        self._decode = DecodeImage(key=None)

    def random_map(self, element: tuple[bytes, int], rng: np.random.Generator) -> Any:
        jpeg, label = element
        top, left = (int(rng.integers(size - CROP + 1)) for size in (HEIGHT, WIDTH))
        flip = int(rng.integers(2))
        crop = self._decode.decode(jpeg, lambda *_: (top, left, CROP, CROP))
        return crop[:, ::-1] if flip else crop, label, np.array([top, left, flip])


def jpeg_decode_image(source: JpegSource, **options: Any) -> Start:
    """Decode JPEG files with `DecodeImage`."""
    operations = [DecodeCropFlip(), gristmill.Batch(_jpeg.BATCH_SIZE)]
    return _grain_workers.loader(gristmill, source, operations, **options)


def heavy_import(data: Mnist, **options: Any) -> Start:
    """Map MNIST with a function of a module that takes long to import."""
    from benchmarks import _heavy  # by the program, as an import at the top of its file would

    operations = [_heavy.transform, gristmill.Batch(BATCH_SIZE)]
    return _grain_workers.loader(gristmill, RecordSource(data), operations, **options)


def memory(images: _large.Images, *, batch_size: int, worker_count: int) -> Start:
    """Read the images as an `ArraySource`."""
    source = gristmill.ArraySource(images)
    return _grain_workers.memory(
        gristmill, source, batch_size=batch_size, worker_count=worker_count
    )
