"""The rows of the table, in its order."""

from benchmarks._model import Row
from benchmarks.rows import (
    billion,
    datasets,
    first_batch,
    formats,
    integers,
    jpeg,
    large_batches,
    mnist,
    mnist_workers,
    packing,
    restore,
    stragglers,
    waiting_reads,
    worker_memory,
    worlds,
)

ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        mnist.IN_ORDER,
        mnist.SHUFFLED,
        mnist.COLUMNS,
        integers.ROW,
        billion.ROW,
        jpeg.ROW,
        large_batches.ROW,
        first_batch.ROW,
        mnist_workers.IN_ORDER,
        mnist_workers.SHUFFLED,
        stragglers.ROW,
        waiting_reads.ROW,
        mnist_workers.GIL_BOUND,
        worker_memory.ROW,
        datasets.SHUFFLED,
        datasets.MIXED,
        datasets.MIXED_STREAMS,
        packing.FIRST_FIT,
        packing.BEST_FIT,
        packing.CONCAT_THEN_SPLIT,
        restore.ROW,
        formats.ARRAY_RECORD,
        formats.TFRECORD,
        formats.TAR,
        formats.PARQUET_NUMBERS,
        formats.PARQUET_TEXTS,
        *worlds.TORCH,
        worlds.HUGGING_FACE,
        worlds.TFDS,
        worlds.TFDS_FIRST,
    )
}
