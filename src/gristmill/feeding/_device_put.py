"""Grain's way to the device: a step of a dataset."""

from typing import Any, final

from gristmill._check import as_int
from gristmill.dataset import (
    DatasetIterator,
    IterDataset,
    StreamIterator,
    ThreadPrefetchDatasetIterator,
    get_element_spec,
)
from gristmill.feeding._iterator import FeedIterator
from gristmill.feeding._last import Last
from gristmill.feeding._place import Place, as_place


def device_put(
    ds: IterDataset[Any], device: Any, *, cpu_buffer_size: int = 4, device_buffer_size: int = 2
) -> IterDataset[Any]:
    """Move each element to a device or sharding, ahead of the consumer.

    `device` is what `feed` takes. Up to `device_buffer_size` elements wait on the device, and up to
    `cpu_buffer_size` on the way to it.
    """
    return _OnDevice(
        ds,
        as_place(device, None, others="raise"),
        as_int("cpu_buffer_size", cpu_buffer_size),
        as_int("device_buffer_size", device_buffer_size),
    )


@final
class _OnDevice(IterDataset[Any]):
    """Elements that are on their devices before they are asked for."""

    def __init__(
        self,
        parent: IterDataset[Any],
        place: Place,
        cpu_buffer_size: int,
        device_buffer_size: int,
    ) -> None:
        super().__init__(parent)
        self._place = place
        self._sizes = cpu_buffer_size, device_buffer_size

    @property
    def _element_spec(self) -> Any:
        return get_element_spec(self._parent)

    def __iter__(self) -> DatasetIterator[Any]:
        on_host, on_device = self._sizes
        parent: DatasetIterator[Any] = self._parent.__iter__()
        if not isinstance(parent, StreamIterator):  # which runs ahead by itself
            parent = ThreadPrefetchDatasetIterator(parent, on_host)
        return FeedIterator(parent, self._place, Last("keep", None, ""), on_device)
