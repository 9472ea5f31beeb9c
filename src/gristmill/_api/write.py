"""`write`: write the elements of a dataset to files, shard by shard."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.checks import as_int
from gristmill._data.writers.sharded_output import (
    DEFAULT_SHARD_BYTES,
    Output,
    format_of,
    write_shards,
)
from gristmill._plan.fingerprint import fingerprint
from gristmill._plan.nodes.base import ENDLESS, stable_repr
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element, RandomAccessDataSource, SupportsGetItems


def write(
    dataset: MapDataset[Any] | RandomAccessDataSource[Any],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    shard_bytes: int = DEFAULT_SHARD_BYTES,
    records_per_shard: int | None = None,
) -> Path:
    """Write all elements of a dataset to a new folder, as shards that sources read.

    The folder appears once it is complete; until then its name ends in `.partial`. If the program
    is interrupted or killed, the same call resumes with the first shard that is not complete. A
    changed dataset, by its fingerprint (see `MapDataset.cache`), is refused there. A terminal
    shows the progress.

    Elements are dicts, or single values, of which ArrayRecord and TFRecord files store a
    `tf.train.Example`: parse it with `ParseExample.read(f"{path}/features.json")`. Elements that
    are bytes are stored as they are. Elements that a filter removed are left out.

    >>> import tempfile
    >>> from gristmill import MapDataset
    >>> from gristmill.sources import NumpySource
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write(MapDataset.range(5).map(lambda x: {"x": x * x}), f"{folder}/squares.npy")
    ...     len(NumpySource({"x": f"{path}/x-*.npy"}))
    5

    Args:
        dataset: A `MapDataset`, or a source.
        path: The folder, which must not exist.
        format: "array_record", "npy", "parquet", "tar" or "tfrecord". By default the suffix of
            `path`, or ArrayRecord.
        shard_bytes: The approximate size of a shard.
        records_per_shard: The number of elements of a shard, instead of `shard_bytes`.

    Returns:
        The folder.

    Raises:
        PlanError: The folder exists, or holds the shards of another dataset, or the dataset is
            infinite.
        SourceError: There are no elements.
        BatchError: The format cannot hold an element.
    """
    if isinstance(dataset, MapDataset):
        planned = cast("MapDataset[Any]", dataset)
    elif isinstance(cast(object, dataset), RandomAccessDataSource):
        planned = MapDataset.source(dataset)
    else:
        raise PlanTypeError(
            f"`dataset` must be a `MapDataset` or a source, got {stable_repr(dataset)}. Call "
            "`write` before `to_iter_dataset()`, or write `list(stream)`: a stream and a loader "
            "have no shards to resume at."
        )
    length = len(planned)
    if length >= ENDLESS:
        raise PlanError("`dataset` is infinite. Call `write` before `repeat`.")
    target = os.fspath(path)
    output = Output(
        path=target,
        format=format_of(target, format),
        shard_bytes=as_int("shard_bytes", shard_bytes, minimum=1),
        records_per_shard=(
            None
            if records_per_shard is None
            else as_int("records_per_shard", records_per_shard, minimum=1)
        ),
    )
    description = {"plan": fingerprint(plan_of(planned)), "records": length}
    logger = logging.getLogger("gristmill")
    write_shards(
        output,
        _reader(planned),
        length,
        description,
        report=lambda message: logger.info(message.rstrip()),
    )
    return output.folder


def _reader(dataset: MapDataset[Any]) -> Callable[[range], list[Element]]:
    """Return a function that reads the elements that are present at some indices."""

    def read(indices: range) -> list[Element]:
        if isinstance(dataset, SupportsGetItems):
            found = cast("SupportsGetItems[Element]", dataset).__getitems__(indices)
        else:
            found = [dataset[index] for index in indices]
        return [element for element in found if element is not None]

    return read
