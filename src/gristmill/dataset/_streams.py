"""Datasets that make a stream of several, or of one in another order, number or size."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from gristmill._check import as_bool, as_int, as_seed
from gristmill._site import call_site
from gristmill.dataset._iter import IterDataset, PlannedIterDataset, stream_node
from gristmill.dataset._map import MapDataset
from gristmill.plan import (
    CacheNode,
    InterleaveNode,
    LimitNode,
    Node,
    RebatchNode,
    RepeatStreamNode,
    WindowShuffleStreamNode,
    ZipStreamNode,
)

T = TypeVar("T")


class ZipIterDataset(PlannedIterDataset[Any]):
    """Tuples of one element of each; if not `strict`, the shortest ends it without complaint.

    >>> few, many = MapDataset.range(2).to_iter_dataset(), MapDataset.range(7, 12).to_iter_dataset()
    >>> list(ZipIterDataset([few, many], strict=False))
    [(0, 7), (1, 8)]
    """

    def __init__(self, parents: Sequence[IterDataset[Any]], *, strict: bool = True) -> None:
        several = tuple(parents)
        node = ZipStreamNode(
            site=call_site(),
            parents=tuple(stream_node("parents", parent) for parent in several),
            strict=as_bool("strict", strict),
        )
        super().__init__(node, several)


class InterleaveIterDataset(PlannedIterDataset[T]):
    """One element of each of `cycle_length` datasets in turn; where one ends, the next begins.

    >>> three = [MapDataset.range(0, 3), MapDataset.range(10, 11), MapDataset.range(20, 22)]
    >>> list(InterleaveIterDataset(three, cycle_length=2))
    [0, 10, 1, 2, 20, 21]

    `datasets` may be a `MapDataset` of datasets: each is made when its turn comes, and at most
    `cycle_length` of them are open at a time. The other arguments, by which Grain sizes the threads
    that do so, have nothing to change here.
    """

    def __init__(
        self,
        datasets: Sequence[IterDataset[T] | MapDataset[T]] | MapDataset[Any],
        *,
        cycle_length: int,
        num_make_iter_threads: int = 1,
        make_iter_buffer_size: int = 1,
        iter_buffer_size: int = 1,
    ) -> None:
        as_int("num_make_iter_threads", num_make_iter_threads)
        as_int("make_iter_buffer_size", make_iter_buffer_size)
        as_int("iter_buffer_size", iter_buffer_size)
        self._datasets: Any = datasets
        self._site = call_site()
        self._cycle = as_int("cycle_length", cycle_length, minimum=1)
        super().__init__(self._plan(), ())

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Keep only some of the datasets. It changes this object: call it before it is used."""
        del sequential_slice  # how Grain deals records to workers: nothing to change here
        self._datasets = self._datasets[sl]
        self._node = self._plan()

    def _plan(self) -> InterleaveNode:
        return InterleaveNode(
            site=self._site,
            parents=(),
            node_at=partial(_node_at, self._datasets),
            count=len(self._datasets),
            cycle=self._cycle,
        )


class WindowShuffleIterDataset(PlannedIterDataset[T]):
    """Each `window_size` elements in another order.

    >>> stream = MapDataset.range(6).to_iter_dataset()
    >>> list(WindowShuffleIterDataset(stream, window_size=3, seed=1))
    [0, 2, 1, 4, 5, 3]
    """

    def __init__(self, parent: IterDataset[T], *, window_size: int, seed: int) -> None:
        node = WindowShuffleStreamNode(
            site=call_site(),
            parents=(stream_node("parent", parent),),
            window=as_int("window_size", window_size, minimum=1),
            seed=as_seed(seed),
        )
        super().__init__(node, (parent,))


class RebatchIterDataset(PlannedIterDataset[Any]):
    """The rows of batches in batches of another size.

    >>> batches = MapDataset.range(7).to_iter_dataset().batch(4)
    >>> [batch.tolist() for batch in RebatchIterDataset(batches, 3)]
    [[0, 1, 2], [3, 4, 5], [6]]
    """

    def __init__(
        self, parent: IterDataset[Any], batch_size: int, drop_remainder: bool = False
    ) -> None:
        node = RebatchNode(
            site=call_site(),
            parents=(stream_node("parent", parent),),
            size=as_int("batch_size", batch_size, minimum=1),
            drop_remainder=as_bool("drop_remainder", drop_remainder),
        )
        super().__init__(node, (parent,))


class RepeatIterDataset(PlannedIterDataset[T]):
    """The same elements `num_epochs` times, or again and again. Every epoch is like the first.

    >>> list(RepeatIterDataset(MapDataset.range(2).to_iter_dataset(), 3))
    [0, 1, 0, 1, 0, 1]
    """

    def __init__(self, parent: IterDataset[T], num_epochs: int | None = None) -> None:
        node = RepeatStreamNode(
            site=call_site(),
            parents=(stream_node("parent", parent),),
            num_epochs=None if num_epochs is None else as_int("num_epochs", num_epochs, minimum=1),
        )
        super().__init__(node, (parent,))


class LimitIterDataset(PlannedIterDataset[T]):
    """The first `count` elements.

    >>> list(LimitIterDataset(MapDataset.range(5).to_iter_dataset(), 2))
    [0, 1]
    """

    def __init__(self, parent: IterDataset[T], count: int) -> None:
        node = LimitNode(
            site=call_site(),
            parents=(stream_node("parent", parent),),
            count=as_int("count", count, minimum=1),
        )
        super().__init__(node, (parent,))


class CacheIterDataset(PlannedIterDataset[T]):
    """The elements as they are, kept in memory for when the stream is repeated.

    >>> cached = CacheIterDataset(MapDataset.range(2).to_iter_dataset())
    >>> list(RepeatIterDataset(cached, 2))
    [0, 1, 0, 1]
    """

    def __init__(self, parent: IterDataset[T]) -> None:
        node = CacheNode(site=call_site(), parents=(stream_node("parent", parent),))
        super().__init__(node, (parent,))


def _node_at(datasets: Any, number: int) -> Node | None:
    dataset = datasets[number]
    return None if dataset is None else stream_node("datasets", dataset)
