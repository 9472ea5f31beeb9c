"""gristmill with workers on a Ray cluster: the programs of `gristmill_workers`."""

from typing import Any

import gristmill
from benchmarks import _jpeg, _large
from benchmarks._ray_cluster import start_cluster
from benchmarks.contenders._grain_workers import Start


def jpeg(source: _jpeg.JpegSource, *, worker_count: int, on_other_node: bool) -> Start:
    """Decode JPEG files, with a crop from the random generator of the record."""
    from benchmarks import _pillow

    class Augment(gristmill.RandomMap):
        def random_map(self, element: tuple[bytes, int], rng: Any) -> Any:
            return _pillow.augment(element, rng)

    operations = [Augment(), gristmill.Batch(_jpeg.BATCH_SIZE)]
    return _loader(source, operations, worker_count, on_other_node=on_other_node)


def large_batches(pool: _large.Images, *, worker_count: int, on_other_node: bool) -> Start:
    """Batch arrays that exist already."""
    operations = [gristmill.Batch(_large.BATCH_SIZE)]
    source = _large.PoolSource(pool)
    return _loader(source, operations, worker_count, on_other_node=on_other_node)


def _loader(source: Any, operations: list[Any], worker_count: int, *, on_other_node: bool) -> Start:
    loader = gristmill.DataLoader(
        data_source=source,
        sampler=gristmill.IndexSampler(len(source), num_epochs=1, seed=0),
        operations=operations,
        worker_count=worker_count,
        worker_options=gristmill.RayOptions(
            address=start_cluster(on_other_node=on_other_node), start_timeout_s=30.0
        ),
    )
    return lambda: iter(loader)
