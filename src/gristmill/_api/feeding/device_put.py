"""Placing elements on devices as a step of a dataset, as in Grain."""

from typing import final

from gristmill._api.dataset.element_spec import get_element_spec
from gristmill._api.dataset.iter_dataset import IterDataset
from gristmill._api.dataset.iterator import DatasetIterator, StreamIterator
from gristmill._api.experimental.thread_prefetch import ThreadPrefetchDatasetIterator
from gristmill._api.feeding.iterator import FeedIterator
from gristmill._api.feeding.placement import Placement, as_placement
from gristmill._api.feeding.remainder import Remainder
from gristmill._base.checks import as_int
from gristmill.types import Element, Tree


def device_put(
    ds: IterDataset[Element], device: Tree, *, cpu_buffer_size: int = 4, device_buffer_size: int = 2
) -> IterDataset[Tree]:
    """Place each element on a device or sharding, ahead of the consumer.

    The order and the states of the stream do not change. `gristmill.feed` does the same for a
    loader or dataset, with more options.

    >>> import jax
    >>> import numpy as np
    >>> from gristmill import MapDataset
    >>> ds = MapDataset.range(4).map(np.float32).to_iter_dataset().batch(2)
    >>> with iter(device_put(ds, jax.devices()[0])) as iterator:
    ...     print(next(iterator))
    [0. 1.]

    Args:
        ds: The stream of elements.
        device: A device, a `Sharding`, a `Mesh`, or a tree of the first two, as for `feed`.
        cpu_buffer_size: The maximum number of elements that wait on the host. It has an effect
            only for datasets of your own: other streams compute ahead by themselves.
        device_buffer_size: The maximum number of elements that wait on the device.

    Returns:
        A stream of the same elements, as `jax.Array`s.

    Raises:
        PlanError: If the size of a buffer is negative.
        PlanTypeError: If `device` is none of these.
    """
    return _OnDevice(
        ds,
        as_placement(device, None, unsupported="raise"),
        as_int("cpu_buffer_size", cpu_buffer_size),
        as_int("device_buffer_size", device_buffer_size),
    )


@final
class _OnDevice(IterDataset[Tree]):
    """A stream whose elements are placed on devices."""

    def __init__(
        self,
        parent: IterDataset[Element],
        placement: Placement,
        cpu_buffer_size: int,
        device_buffer_size: int,
    ) -> None:
        super().__init__(parent)
        self._placement = placement
        self._cpu_buffer_size = cpu_buffer_size
        self._device_buffer_size = device_buffer_size

    @property
    def _element_spec(self) -> Tree:
        return get_element_spec(self._parent)

    def __iter__(self) -> DatasetIterator[Tree]:
        parent: DatasetIterator[Element] = self._parent.__iter__()
        if not isinstance(parent, StreamIterator):  # which computes ahead by itself
            parent = ThreadPrefetchDatasetIterator(parent, self._cpu_buffer_size)
        return FeedIterator(parent, self._placement, Remainder("keep"), self._device_buffer_size)
