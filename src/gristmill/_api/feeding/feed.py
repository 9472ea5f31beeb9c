"""`feed`: from a loader or dataset to batches on JAX devices."""

from collections.abc import Iterable
from typing import cast

from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.feeding.fed_batches import BatchSource
from gristmill._api.feeding.iterator import FeedIterator
from gristmill._api.feeding.placement import Placement, Unsupported, as_placement
from gristmill._api.feeding.remainder import RemainderMode, as_remainder, batch_size_of
from gristmill._api.loader.loader import DataLoader
from gristmill._api.plan_access import HasPlan, plan_of
from gristmill._base.call_site import warn_user_once
from gristmill._base.checks import as_batch_size, as_int, as_seconds
from gristmill._plan.sharding import reads_a_part
from gristmill.errors import PlanError, PlanTypeError
from gristmill.types import Element, Tree


def feed(
    data: DataLoader | MapDataset[Element] | IterDataset[Element] | BatchSource,
    device: Tree = None,
    spec: Tree = None,
    *,
    prefetch: int = 2,
    remainder: RemainderMode = "keep",
    batch_size: int | None = None,
    mask: str = "mask",
    unsupported: Unsupported = "raise",
    timeout_s: float | None = None,
) -> FeedIterator:
    """Return an iterator over batches that are on their devices before they are requested.

    The batches and their order are those of `data`. The state of the iterator is the state of
    `data` after the last batch that was returned.

    >>> import jax
    >>> import numpy as np
    >>> from gristmill import load
    >>> images = load(np.ones((10, 4), np.float32), num_epochs=1, batch_size=4)
    >>> for batch in feed(images, jax.devices()[0]):
    ...     print(batch.shape, batch.sum())
    (4, 4) 16.0
    (4, 4) 16.0
    (2, 4) 8.0

    With a mesh, the rows of each batch are sharded over its devices. If the devices belong to
    several processes, each process feeds its own rows (`ShardByJaxProcess` assigns the records),
    all get the global array, and all stop at the same step.

    >>> mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    >>> batch = next(feed(images, mesh, jax.sharding.PartitionSpec("data"), remainder="pad"))
    >>> [leaf.shape for leaf in batch]
    [(4, 4), (4,)]

    Args:
        data: A loader or a dataset, or an iterator over one, which is continued from its position
            and must not be used elsewhere.
        device: A device, a `Sharding`, a `Mesh`, or a tree of the first two that is a prefix of
            the batches. By default JAX's default device.
        spec: With a mesh, how arrays are sharded: a `PartitionSpec` or a tree of them. By default
            the first axis is sharded over all devices.
        prefetch: The maximum number of batches to place on the devices ahead of the consumer, in a
            background thread. With 0 there is no thread.
        remainder: What to do with a batch that has fewer rows than the others. `"keep"` feeds it
            as it is; JAX then compiles for its shape too. `"drop"` leaves it out. `"pad"` pads it
            with zeros, and adds a mask to every batch that is true for rows of data, so that all
            batches have the same shape. With several processes, `"drop"` ends when the first one
            has no full batch left and `"pad"` when the last one has no rows left; with `"keep"`,
            different numbers of rows are an error.
        batch_size: The number of rows of a full batch of this process. Needed for `"drop"` and
            `"pad"` only if the pipeline does not determine it.
        mask: The key of the mask in batches that are dicts. With `"pad"`, any other batch becomes
            a pair of the batch and its mask.
        unsupported: What to do with leaves that JAX does not support, such as strings. `"raise"`
            raises an error that names the leaf, `"pass"` returns them unchanged.
        timeout_s: How long a step waits for other processes before it raises a `FeedError` that
            names them. By default there is no limit, and a long wait is logged.

    Returns:
        An iterator. Use it as a context manager, or call `close`, to stop it early.

    Raises:
        PlanError: The arguments contradict each other or are out of range.
        PlanTypeError: An argument has the wrong type.
    """
    placement = as_placement(device, spec, unsupported=_as_unsupported(unsupported))
    source = _as_source(data)
    if batch_size is None:
        batch_size = batch_size_of(plan_of(source) if isinstance(source, HasPlan) else None)
    else:
        batch_size = as_batch_size(batch_size)
    if placement.processes:
        _warn_if_unsharded(source, placement)
    rest = as_remainder(remainder, batch_size, mask)
    limit_s = None if timeout_s is None else as_seconds("timeout_s", timeout_s)
    return FeedIterator(source, placement, rest, as_int("prefetch", prefetch), timeout_s=limit_s)


def _as_source(data: object) -> BatchSource:
    """Return an iterator over `data`, or `data` itself if it is one."""
    match data:
        case DataLoader():
            return iter(data)
        case MapDataset() | IterDataset():
            return iter(cast("MapDataset[Element] | IterDataset[Element]", data))
        case _:
            pass
    if not hasattr(data, "get_state") and isinstance(data, Iterable):
        data = iter(cast("Iterable[Element]", data))
    if not all(hasattr(data, name) for name in ("__next__", "get_state", "set_state")):
        raise PlanTypeError(
            f"`data` must be a loader, a dataset, or an iterator with `get_state` and `set_state`, "
            f"got {data!r:.100}. Wrap a plain iterable in a dataset."
        )
    return cast(BatchSource, data)


def _warn_if_unsharded(source: BatchSource, placement: Placement) -> None:
    """Warn if processes that hold different rows read the same records."""
    if not isinstance(source, HasPlan) or reads_a_part(plan_of(source)):
        return
    try:
        count = placement.num_row_groups
    except PlanError:  # rows that overlap: no shards fit, so it is not known
        return
    if count > 1:
        warn_user_once(
            "feeding without shards",
            f"The data is not sharded: every record would be fed once for each of {count} groups "
            "of processes. Pass `shard_options=ShardByMesh(mesh, axis)` or `ShardByJaxProcess()` "
            "to the loader, or slice the dataset, `ds[shard::num_shards]`. If each process has "
            "records of its own, ignore this.",
        )


def _as_unsupported(value: Unsupported) -> Unsupported:
    if value not in ("raise", "pass"):
        raise PlanError(f'`unsupported` must be "raise" or "pass", got {value!r:.100}.')
    return value
