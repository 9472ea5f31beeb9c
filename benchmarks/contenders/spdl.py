"""SPDL's pipeline of threads with Pillow, because its own decoder needs FFmpeg."""

from collections.abc import Callable, Iterator

import numpy as np
from spdl.pipeline import PipelineBuilder

from benchmarks._jpeg import BATCH_SIZE, JpegSource
from benchmarks._pillow import Batch, Sample, augment, stack


def jpeg(source: JpegSource) -> Callable[[], Iterator[Batch]]:
    """Decode, crop and flip in two threads, and batch in a third, in order."""

    def decode(index: int) -> Sample:
        return augment(source[index], np.random.default_rng(index))

    def start() -> Iterator[Batch]:
        pipeline = (
            PipelineBuilder()
            .add_source(range(len(source)))
            .pipe(decode, concurrency=2, output_order="input")
            .aggregate(BATCH_SIZE)
            .pipe(stack)
            .add_sink(3)
            .build(num_threads=3)
        )
        with pipeline.auto_stop():
            yield from pipeline

    return start
