"""Streams that combine several others, or change the order, number or batch size of one."""

from collections.abc import Sequence
from functools import partial
from typing import Any, TypeVar

from gristmill._api.dataset.element_spec import get_element_spec
from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset, stream_node
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_batch_size, as_bool, as_int, as_num_epochs, as_seed
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.combine_streams import InterleaveNode, ZipStreamNode
from gristmill._plan.nodes.stream import (
    CacheNode,
    LimitNode,
    RebatchNode,
    RepeatStreamNode,
    WindowShuffleStreamNode,
)

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ZipIterDataset(PlannedIterDataset[tuple[T, ...]]):
    """Yields tuples of one element of each stream.

    >>> short = MapDataset.range(2).to_iter_dataset()
    >>> long = MapDataset.range(7, 12).to_iter_dataset()
    >>> list(ZipIterDataset([short, long], strict=False))
    [(0, 7), (1, 8)]

    Args:
        parents: The streams to combine.
        strict: Whether it is an error if the streams do not end together. If not, the shortest one
            determines the end.

    Raises:
        PlanError: If there are no parents; or, with `strict`, when one of them ends before the
            others.
        PlanTypeError: If a parent is not an `IterDataset`.
    """

    def __init__(self, parents: Sequence[IterDataset[T]], *, strict: bool = True) -> None:
        streams = tuple(parents)
        node = ZipStreamNode(
            site=call_site(),
            inputs=tuple(stream_node("parents", parent) for parent in streams),
            strict=as_bool("strict", strict),
        )
        super().__init__(node, streams)


class InterleaveIterDataset(PlannedIterDataset[T_co]):
    """Yields one element of each of `cycle_length` datasets in turn.

    When one of them ends, the next dataset that has not been opened takes its turn. The order is
    deterministic.

    >>> three = [MapDataset.range(0, 3), MapDataset.range(10, 11), MapDataset.range(20, 22)]
    >>> list(InterleaveIterDataset(three, cycle_length=2))
    [0, 10, 1, 2, 20, 21]

    Args:
        datasets: The datasets to interleave. They may be a `MapDataset` whose elements are
            datasets: each is then created when it is opened, and at most `cycle_length` are open
            at a time.
        cycle_length: The number of datasets that are open at a time, at least 1.
        num_make_iter_threads: Ignored; it exists for compatibility. In Grain, the threads that
            open datasets.
        make_iter_buffer_size: Ignored, as above. In Grain, how many datasets are opened early.
        iter_buffer_size: Ignored, as above. In Grain, how many elements of each are prefetched.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If an argument has the wrong type; of a dataset, when it is opened.
    """

    def __init__(
        self,
        datasets: Sequence[IterDataset[T_co] | MapDataset[T_co]] | MapDataset[Any],
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
        self._cycle_length = as_int("cycle_length", cycle_length, minimum=1)
        super().__init__(self._build_node(), ())

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> None:
        """Restrict this object to some of the datasets. Call it before iterating.

        Args:
            sl: The slice of `datasets` to keep.
            sequential_slice: Ignored; it exists for compatibility.
        """
        del sequential_slice
        self._datasets = self._datasets[sl]
        self._node = self._build_node()

    @property
    def _element_spec(self) -> Any:
        """The spec of the first dataset: all of them are assumed to be alike, as in Grain."""
        return get_element_spec(self._datasets[0]) if len(self._datasets) else super()._element_spec

    def _build_node(self) -> InterleaveNode:
        return InterleaveNode(
            site=self._site,
            node_at=partial(_node_at, self._datasets),
            count=len(self._datasets),
            cycle=self._cycle_length,
        )


class WindowShuffleIterDataset(PlannedIterDataset[T_co]):
    """Shuffles the elements within consecutive windows.

    It holds one window in memory. The order is a function of the seed and the number of the window.

    >>> stream = MapDataset.range(6).to_iter_dataset()
    >>> list(WindowShuffleIterDataset(stream, window_size=3, seed=1))
    [0, 2, 1, 4, 5, 3]

    Args:
        parent: The stream to shuffle.
        window_size: The number of elements of a window, at least 1.
        seed: The seed.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If an argument has the wrong type.
    """

    def __init__(self, parent: IterDataset[T_co], *, window_size: int, seed: int) -> None:
        node = WindowShuffleStreamNode(
            site=call_site(),
            parent=stream_node("parent", parent),
            window=as_int("window_size", window_size, minimum=1),
            seed=as_seed(seed),
        )
        super().__init__(node, (parent,))


class RebatchIterDataset(PlannedIterDataset[T_co]):
    """Changes the batch size of a stream of batches.

    The rows keep their order; a batch may contain rows of several batches of the parent.

    >>> batches = MapDataset.range(7).to_iter_dataset().batch(4)
    >>> [batch.tolist() for batch in RebatchIterDataset(batches, 3)]
    [[0, 1, 2], [3, 4, 5], [6]]

    Args:
        parent: A stream of batches: trees of arrays with a common first axis.
        batch_size: The number of rows of a batch, at least 1.
        drop_remainder: Whether to drop a last batch with fewer rows.

    Raises:
        PlanError: If `batch_size` is below 1.
        PlanTypeError: If an argument has the wrong type.
        BatchError: When a batch is read, if it has no rows, or its arrays have different numbers of
            them.
    """

    def __init__(
        self, parent: IterDataset[T_co], batch_size: int, drop_remainder: bool = False
    ) -> None:
        node = RebatchNode(
            site=call_site(),
            parent=stream_node("parent", parent),
            size=as_batch_size(batch_size),
            drop_remainder=as_bool("drop_remainder", drop_remainder),
        )
        super().__init__(node, (parent,))


class RepeatIterDataset(PlannedIterDataset[T_co]):
    """Repeats a stream. Every epoch is equal to the first.

    >>> list(RepeatIterDataset(MapDataset.range(2).to_iter_dataset(), 3))
    [0, 1, 0, 1, 0, 1]

    Args:
        parent: The stream to repeat.
        num_epochs: The number of epochs, at least 1. `None` means infinitely many.

    Raises:
        PlanError: If `num_epochs` is below 1.
        PlanTypeError: If an argument has the wrong type.
    """

    def __init__(self, parent: IterDataset[T_co], num_epochs: int | None = None) -> None:
        node = RepeatStreamNode(
            site=call_site(),
            parent=stream_node("parent", parent),
            num_epochs=as_num_epochs(num_epochs),
        )
        super().__init__(node, (parent,))


class LimitIterDataset(PlannedIterDataset[T_co]):
    """Yields the first `count` elements of a stream.

    >>> list(LimitIterDataset(MapDataset.range(5).to_iter_dataset(), 2))
    [0, 1]

    Args:
        parent: The stream to read.
        count: The maximum number of elements, at least 1.

    Raises:
        PlanError: If `count` is below 1.
        PlanTypeError: If `parent` is not an `IterDataset`, or `count` not an integer.
    """

    def __init__(self, parent: IterDataset[T_co], count: int) -> None:
        node = LimitNode(
            site=call_site(),
            parent=stream_node("parent", parent),
            count=as_int("count", count, minimum=1),
        )
        super().__init__(node, (parent,))


class CacheIterDataset(PlannedIterDataset[T_co]):
    """Stores the elements of a stream in memory, for when the stream is repeated.

    The first epoch computes the elements, later epochs yield the stored ones. They are not part of
    the state: after a restart they are computed again.

    >>> cached = CacheIterDataset(MapDataset.range(2).to_iter_dataset())
    >>> list(RepeatIterDataset(cached, 2))
    [0, 1, 0, 1]

    Args:
        parent: The stream to read. All its elements must fit into memory.

    Raises:
        PlanTypeError: If `parent` is not an `IterDataset`.
    """

    def __init__(self, parent: IterDataset[T_co]) -> None:
        node = CacheNode(site=call_site(), parent=stream_node("parent", parent))
        super().__init__(node, (parent,))


def _node_at(datasets: Any, index: int) -> Node | None:
    """Return the node of a dataset, or `None` if it is absent."""
    dataset = datasets[index]
    return None if dataset is None else stream_node("datasets", dataset)
