"""Methods of `IterDataset` that depend on the order of the stream, and batches of unequal elements.

`IterDataset` itself has the methods of Grain; these are the ones that Grain does not have.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gristmill._api.dataset.base import Dataset, pair_with_index, resolve_seed
from gristmill._api.dataset.builders.steps import batch_node, counted_map_node
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_int, as_num_epochs, as_seed
from gristmill._data.batching.buckets import BucketByLength, LengthOf, RemainderMode
from gristmill._data.batching.pad import PadBatch
from gristmill._data.transforms.stream_operations import Scan, Unbatch, Window
from gristmill._plan.nodes.base import Node
from gristmill._plan.nodes.stream import LimitNode, RepeatStreamNode, WindowShuffleStreamNode
from gristmill._plan.nodes.stream_steps import SkipNode
from gristmill._plan.stream_operations import StreamOperation, with_stream_operation
from gristmill.errors import PlanError

if TYPE_CHECKING:
    from gristmill._api.dataset.iter_dataset import IterDataset

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S")
C = TypeVar("C")


class StreamSteps(Dataset, Generic[T_co]):
    """The base class of `IterDataset`, with the steps that Grain does not have."""

    _is_stream = True

    @abstractmethod
    def _then(self, node: Node) -> "IterDataset[Any]":
        """Return the stream of a node over this one."""

    def _with_operation(self, operation: StreamOperation) -> "IterDataset[Any]":
        return self._then(with_stream_operation(plan_of(self), operation, site=call_site()))

    def pad_batch(
        self, batch_size: int, *, drop_remainder: bool = False, **padding: Any
    ) -> "IterDataset[Any]":
        """Combine every `batch_size` elements, and pad arrays of unequal length.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.source([[1, 2, 3], [4], [5, 6]]).to_iter_dataset()
        >>> [batch.tolist() for batch in ds.pad_batch(2, value=-1)]
        [[[1, 2, 3], [4, -1, -1]], [[5, 6]]]

        Args:
            batch_size: The number of elements of a batch, at least 1.
            drop_remainder: Whether to drop a last batch with fewer elements.
            **padding: The arguments of `PadBatch`: `leaves`, `length`, `multiple_of`, `value`,
                `side`, `add_lengths` and `add_mask`.

        Returns:
            A stream of batches.
        """
        return self._then(batch_node(self, batch_size, drop_remainder, PadBatch(**padding)))

    def bucket_by_length(
        self,
        boundaries: Sequence[int],
        *,
        batch_sizes: int | Sequence[int] | None = None,
        max_tokens: int | None = None,
        length: LengthOf = None,
        remainder: RemainderMode = "keep",
        drop_longer: bool = False,
        pad: PadBatch = PadBatch(),  # noqa: B008 - frozen
    ) -> "IterDataset[Any]":
        """Combine elements of similar length, padded to one of a few lengths.

        A batch is yielded as soon as its bucket is full. The state contains the positions of the
        elements in the buckets. With several processes, each fills its own buckets: where the
        lengths are known, use `MapDataset.bucket_by_length`, with which all take the same bucket.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.source([[1], [2, 2, 2], [3, 3], [4, 4, 4]]).to_iter_dataset()
        >>> for batch in ds.bucket_by_length([2, 4], batch_sizes=2):
        ...     print(batch.tolist())
        [[1, 0], [3, 3]]
        [[2, 2, 2, 0], [4, 4, 4, 0]]

        Args:
            boundaries: The largest length of each bucket, increasing.
            batch_sizes: The number of elements of a batch, for all buckets or for each.
            max_tokens: Instead of `batch_sizes`: as many elements as fit into this many values,
                including padding.
            length: The key of the array whose length counts, several keys, of which the longest
                array counts, or a function of the element. By default, elements are arrays.
            remainder: What to do at the end with elements that fill no batch: "keep" them as
                smaller batches, "drop" them, or "pad" the batches with empty rows.
            drop_longer: Whether to drop elements that are longer than the last boundary. By default
                they are an error.
            pad: How to pad. By default the arrays at the keys in `length` are padded.

        Returns:
            A stream of batches.
        """
        operation = BucketByLength(
            boundaries,
            batch_sizes=batch_sizes,
            max_tokens=max_tokens,
            length=length,
            remainder=remainder,
            drop_longer=drop_longer,
            pad=pad,
        )
        return self._with_operation(operation)

    def unbatch(self) -> "IterDataset[Any]":
        """Replace each batch by its rows.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(5).to_iter_dataset().batch(2).map(lambda batch: batch * 10)
        >>> [int(row) for row in ds.unbatch()]
        [0, 10, 20, 30, 40]
        """
        return self._with_operation(Unbatch())

    def window(
        self,
        size: int,
        stride: int | None = None,
        *,
        drop_remainder: bool = False,
        batch_fn: Callable[[Sequence[T_co]], Any] | None = None,
    ) -> "IterDataset[Any]":
        """Combine `size` consecutive elements, from every `stride`-th element on.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(6).to_iter_dataset()
        >>> [window.tolist() for window in ds.window(3, stride=2)]
        [[0, 1, 2], [2, 3, 4], [4, 5]]

        Args:
            size: The number of elements of a window, at least 1.
            stride: The distance between the starts of two windows. By default `size`, so that
                windows do not overlap.
            drop_remainder: Whether to drop a last, smaller window of elements that are in no other.
            batch_fn: A function from a list of elements to a window, instead of stacking.

        Returns:
            A stream of windows.
        """
        return self._with_operation(Window(size, stride, drop_remainder, batch_fn))

    def enumerate(self, start: int = 0) -> "IterDataset[tuple[int, T_co]]":
        """Pair each element with its number in the stream.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.source(["a", "b"]).to_iter_dataset().enumerate(start=1))
        [(1, 'a'), (2, 'b')]

        Args:
            start: The number of the first element.

        Raises:
            PlanError: If `start` is negative.
        """
        first = as_int("start", start)
        return self._then(counted_map_node(self, partial(pair_with_index, first)))

    def scan(self, function: Callable[[C, T_co], tuple[C, S]], initial: C) -> "IterDataset[S]":
        """Map each element together with a value that is carried from one element to the next.

        The carried value is part of the state, so it must be a number, a string, an array, or a
        dict, list or tuple of such values.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(1, 5).to_iter_dataset()
        >>> list(ds.scan(lambda total, x: (total + x, total + x), 0))
        [1, 3, 6, 10]

        Args:
            function: A function of the carried value and an element, which returns the next carried
                value and an output. It must be deterministic.
            initial: The first carried value.

        Returns:
            A stream of the outputs.
        """
        return self._with_operation(Scan(function, initial))

    def take(self, count: int) -> "IterDataset[T_co]":
        """Return the first `count` elements.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(5).to_iter_dataset().take(2))
        [0, 1]

        Args:
            count: The maximum number of elements.

        Raises:
            PlanError: If `count` is negative.
        """
        number = as_int("count", count)
        return self._then(LimitNode(site=call_site(), parent=plan_of(self), count=number))

    def skip(self, count: int) -> "IterDataset[T_co]":
        """Return all elements but the first `count`, which are computed and dropped.

        `skip` of a `MapDataset` does not compute them.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(5).to_iter_dataset().skip(3))
        [3, 4]

        Args:
            count: The number of elements to leave out.

        Raises:
            PlanError: If `count` is negative.
        """
        number = as_int("count", count)
        return self._then(SkipNode(site=call_site(), parent=plan_of(self), count=number))

    def repeat(self, num_epochs: int | None = None) -> "IterDataset[T_co]":
        """Repeat the stream. Every epoch is equal to the first.

        `repeat` of a `MapDataset` reshuffles each epoch.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(2).to_iter_dataset().repeat(2))
        [0, 1, 0, 1]

        Args:
            num_epochs: The number of epochs, at least 1. `None` means infinitely many.

        Raises:
            PlanError: If `num_epochs` is below 1.
        """
        epochs = as_num_epochs(num_epochs)
        node = RepeatStreamNode(site=call_site(), parent=plan_of(self), num_epochs=epochs)
        return self._then(node)

    def shuffle(
        self, buffer_size: int | None = None, *, seed: int | None = None
    ) -> "IterDataset[T_co]":
        """Shuffle the elements within consecutive windows of `buffer_size` elements.

        It holds one window in memory; the state is a position. `shuffle` of a `MapDataset` mixes
        all elements and needs no memory, so prefer that where the data has random access.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(6).to_iter_dataset().shuffle(3, seed=1))
        [0, 2, 1, 4, 5, 3]

        Args:
            buffer_size: The number of elements of a window.
            seed: The seed of this step. By default it is derived from `ds.seed()`.

        Raises:
            PlanError: There is no buffer size or no seed.
        """
        if buffer_size is None:
            raise PlanError(
                "`IterDataset.shuffle` needs the size of a buffer: `shuffle(1000, seed=...)` "
                "shuffles every 1000 elements. To shuffle all elements, shuffle the `MapDataset` "
                "before `to_iter_dataset()`."
            )
        node = WindowShuffleStreamNode(
            site=call_site(),
            parent=plan_of(self),
            window=as_int("buffer_size", buffer_size, minimum=1),
            seed=as_seed(resolve_seed(self, seed, method="shuffle")),
        )
        return self._then(node)
