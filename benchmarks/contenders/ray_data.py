"""Ray Data: `map_batches` and `iter_batches` of its documentation, in order, on 2 CPUs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import ray
import ray.data

from benchmarks import _jpeg, _large
from benchmarks._ray_cluster import start_cluster
from benchmarks.contenders._grain_workers import Start


def jpeg(source: _jpeg.JpegSource, *, worker_count: int, on_other_node: bool) -> Start:
    """Decode JPEG files, a batch at a time."""
    from benchmarks import _pillow

    _connect(on_other_node=on_other_node)
    kept = ray.put(source)

    def augment(batch: dict[str, Any]) -> dict[str, Any]:
        records = ray.get(kept)
        samples = [
            _pillow.augment(records[int(number)], np.random.default_rng(int(number)))
            for number in batch["id"]
        ]
        images, labels, crops = _pillow.stack(samples)
        return {"images": images, "labels": labels, "crops": crops}

    def start() -> Iterator[Any]:
        dataset = ray.data.range(len(source)).map_batches(
            augment, batch_size=_jpeg.BATCH_SIZE, concurrency=worker_count
        )
        for batch in dataset.iter_batches(batch_size=_jpeg.BATCH_SIZE, batch_format="numpy"):
            yield batch["images"], batch["labels"], batch["crops"]

    return start


def large_batches(pool: _large.Images, *, worker_count: int, on_other_node: bool) -> Start:
    """Batch arrays that exist already."""
    _connect(on_other_node=on_other_node)
    kept = ray.put(pool)

    def gather(batch: dict[str, Any]) -> dict[str, Any]:
        return {"images": ray.get(kept)[batch["id"] % len(pool)]}

    def start() -> Iterator[Any]:
        dataset = ray.data.range(_large.NUM_RECORDS).map_batches(
            gather, batch_size=_large.BATCH_SIZE, concurrency=worker_count
        )
        for batch in dataset.iter_batches(batch_size=_large.BATCH_SIZE, batch_format="numpy"):
            yield batch["images"]

    return start


def _connect(*, on_other_node: bool) -> None:
    start_cluster(on_other_node=on_other_node)
    context: Any = ray.data.DataContext.get_current()
    context.execution_options.preserve_order = True
    context.enable_progress_bars = False
