"""The call that feeds JAX."""

from collections.abc import Iterable
from typing import Any, cast

from gristmill._check import as_int
from gristmill.dataset import IterDataset, MapDataset
from gristmill.errors import PlanError, PlanTypeError
from gristmill.feeding._iterator import FeedIterator
from gristmill.feeding._last import How, as_last, batch_size_of
from gristmill.feeding._place import Others, as_place
from gristmill.feeding._steps import Source
from gristmill.loader import DataLoader


def feed(
    data: DataLoader | MapDataset[Any] | IterDataset[Any] | Source,
    device: Any = None,
    spec: Any = None,
    *,
    ahead: int = 2,
    last: How = "keep",
    batch_size: int | None = None,
    mask: str = "mask",
    others: Others = "raise",
) -> FeedIterator:
    """Feed batches to JAX: each is on its devices before the training asks for it.

    >>> import jax
    >>> import numpy as np
    >>> from gristmill.loader import load
    >>> images = load(np.ones((10, 4), np.float32), num_epochs=1, batch_size=4)
    >>> for batch in feed(images, jax.devices()[0]):
    ...     print(batch.shape, batch.sum())
    (4, 4) 16.0
    (4, 4) 16.0
    (2, 4) 8.0

    Over a mesh the rows of a batch are shared out among its devices. Where these belong to several
    processes, each feeds its own part of the batch (`ShardByJaxProcess` deals the records), all get
    the global array, and they stop at the same step.

    >>> mesh = jax.sharding.Mesh(jax.devices(), ("data",))
    >>> batch = next(feed(images, mesh, jax.sharding.PartitionSpec("data"), last="pad"))
    >>> [leaf.shape for leaf in batch]
    [(4, 4), (4,)]

    Args:
        data: A loader or dataset, or an iterator of one, whose state the feeding then goes on from.
        device: A device, a `Sharding`, a `Mesh`, or a tree of the first two that begins as batches
            do. By default JAX's default device.
        spec: Of a mesh, how an array is shared out: a `PartitionSpec` or a tree of them. By default
            its rows go to all the devices.
        ahead: How many batches are brought to the devices before they are asked for.
        last: What becomes of a batch that is smaller than the others. `"keep"` feeds it as it is,
            for which JAX compiles once more. `"drop"` leaves it out. `"pad"` fills it up with zeros
            and adds a mask that is true for its rows, to every batch, so that all are of one shape.
            Among processes, `"drop"` ends where the first of them has no full batch left, `"pad"`
            where the last has none, and with `"keep"` a difference is an error.
        batch_size: How many rows a full batch has, in this process. Only needed where the pipeline
            does not tell.
        mask: The key of the mask in batches that are dicts. Of others `"pad"` makes pairs: the
            batch and the mask.
        others: What to do with leaves that JAX cannot hold, such as texts: `"raise"` an error that
            names the leaf, or `"pass"` them on as they are.
    """
    place = as_place(device, spec, others=_as_others(others))
    plan, source = _opened(data)
    if batch_size is not None:
        batch_size = as_int("batch_size", batch_size, minimum=1)
    end = as_last(last, batch_size or batch_size_of(plan), mask)
    return FeedIterator(source, place, end, as_int("ahead", ahead))


def _opened(data: Any) -> tuple[Any, Source]:
    """Give the plan behind some data, if there is one, and an iterator over it."""
    match data:
        case DataLoader():
            return data.plan, iter(data)
        case MapDataset():
            return data.node, iter(cast("MapDataset[Any]", data).to_iter_dataset())
        case IterDataset():
            return data.node, iter(cast("IterDataset[Any]", data))
        case _:
            pass
    if not hasattr(data, "get_state") and isinstance(data, Iterable):
        data = iter(cast("Iterable[Any]", data))
    if not all(hasattr(data, name) for name in ("__next__", "get_state", "set_state")):
        raise PlanTypeError(
            f"`data` must be a loader, a dataset, or an iterator with `get_state` and `set_state`, "
            f"got {data!r:.100}. Wrap a plain iterable in a dataset, which can tell where it is."
        )
    return getattr(data, "plan", None), data


def _as_others(value: Any) -> Others:
    if value not in ("raise", "pass"):
        raise PlanError(f'`others` must be "raise" or "pass", got {value!r:.100}.')
    return value
