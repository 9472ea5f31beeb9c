"""Methods of `MapDataset` for unequal elements, parts of the data and caches, and shortcuts.

`MapDataset` itself has the methods of Grain; these are the ones that Grain does not have.
"""

import os
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from gristmill._api.dataset.base import Dataset, pair_with_index
from gristmill._api.dataset.builders.record_choice import (
    fold_nodes,
    split_nodes,
    warn_of_second_slice,
    weighted_node,
)
from gristmill._api.dataset.builders.steps import (
    batch_node,
    bucket_node,
    map_with_index_node,
    reject_absent_elements,
    slice_node,
    stored_node,
    unbatch_node,
)
from gristmill._base.argument_advice import advises
from gristmill._base.checks import as_int
from gristmill._data.batching.buckets import BucketByLength, LengthOf, RemainderMode
from gristmill._data.batching.pad import PadBatch
from gristmill._data.sampling.labels import Labels
from gristmill._plan.nodes.base import ENDLESS, Node

if TYPE_CHECKING:
    from gristmill._api.dataset.map_dataset import MapDataset

T_co = TypeVar("T_co", covariant=True)


class MapSteps(Dataset, Generic[T_co]):
    """The base class of `MapDataset`, with the steps that Grain does not have."""

    @abstractmethod
    def _then(self, node: Node) -> "MapDataset[Any]":
        """Return the dataset of a node over this one."""

    def _slice(self, sl: slice) -> "MapDataset[T_co]":
        """Return the dataset of the elements in a slice, and warn of slices that leak."""
        node = slice_node(self, sl)
        warn_of_second_slice(node)
        return self._then(node)

    def pad_batch(
        self, batch_size: int, *, drop_remainder: bool = False, **padding: Any
    ) -> "MapDataset[Any]":
        """Combine every `batch_size` elements, and pad arrays of unequal length.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.source([{"x": [1, 2, 3]}, {"x": [4]}]).pad_batch(2, add_mask=True)
        >>> ds[0]["x"].tolist(), ds[0]["x_mask"].tolist()
        ([[1, 2, 3], [4, 0, 0]], [[True, True, True], [True, False, False]])

        Args:
            batch_size: The number of elements of a batch, at least 1.
            drop_remainder: Whether to drop a last batch with fewer elements.
            **padding: The arguments of `PadBatch`: `leaves`, `length`, `multiple_of`, `value`,
                `side`, `add_lengths` and `add_mask`.

        Returns:
            A dataset of batches.

        Raises:
            PlanError: A filter precedes it. Call `to_iter_dataset()` before it.
        """
        reject_absent_elements(self, "pad_batch")
        return self._then(batch_node(self, batch_size, drop_remainder, PadBatch(**padding)))

    @advises(
        "MapDataset.bucket_by_length",
        {
            "lengths": "Pass the length of each record of the source, or call `to_iter_dataset()` "
            "before it: a stream measures its elements."
        },
    )
    def bucket_by_length(
        self,
        boundaries: Sequence[int],
        *,
        lengths: Sequence[int] | NDArray[np.integer[Any]],
        batch_sizes: int | Sequence[int] | None = None,
        max_tokens: int | None = None,
        length: LengthOf = None,
        remainder: RemainderMode = "keep",
        drop_longer: bool = False,
        pad: PadBatch = PadBatch(),  # noqa: B008 - frozen
        group_size: int = 1,
    ) -> "MapDataset[Any]":
        """Combine elements of similar length, padded to one of a few lengths.

        The batches of an epoch are planned from the lengths of all records, before a record is
        read. They are those that a stream of the elements would fill, in the same order, but they
        have random access: a state is a number, and any worker can compute any batch.

        With n processes, pass a multiple of n as `group_size`, and let each process take the slice
        `[process::n]`: then all of them have a batch of the same bucket, hence of the same shape,
        at each step.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.source([[1], [2, 2, 2], [3, 3], [4, 4, 4]])
        >>> batches = ds.bucket_by_length([2, 4], lengths=[1, 3, 2, 3], batch_sizes=2)
        >>> [batch.tolist() for batch in batches]
        [[[1, 0], [3, 3]], [[2, 2, 2, 0], [4, 4, 4, 0]]]

        Args:
            boundaries: The largest length of each bucket, increasing.
            lengths: The length of each record of the source, in the order of the source, whatever
                the order of this dataset. Steps before this one may shuffle, slice and map.
            batch_sizes: The number of elements of a batch, for all buckets or for each.
            max_tokens: Instead of `batch_sizes`: as many elements as fit into this many values,
                including padding.
            length: The key of the array to pad, or several keys. By default all arrays are padded.
            remainder: What to do at the end of an epoch with elements that fill no batch: "keep"
                them as smaller batches, "drop" them, or "pad" the batches with empty rows.
            drop_longer: Whether to drop elements that are longer than the last boundary. By default
                they are an error.
            pad: How to pad. By default the arrays at the keys in `length` are padded.
            group_size: How many consecutive batches are of the same bucket.

        Returns:
            A dataset of batches.

        Raises:
            PlanError: The lengths do not fit the dataset, or the dataset is infinite.
        """
        buckets = BucketByLength(
            boundaries,
            batch_sizes=batch_sizes,
            max_tokens=max_tokens,
            length=length,
            remainder=remainder,
            drop_longer=drop_longer,
            pad=pad,
        )
        reject_absent_elements(self, "bucket_by_length")
        return self._then(bucket_node(self, buckets, lengths, group_size))

    def unbatch(self) -> "MapDataset[Any]":
        """Replace each batch by its rows.

        Each batch has as many indices as a full batch has rows. Those of a smaller last batch are
        `None`, and iteration skips them.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(5).batch(2).map(lambda batch: batch * 10).unbatch()
        >>> [int(row) for row in ds]
        [0, 10, 20, 30, 40]

        Raises:
            PlanError: The number of rows of a batch is not known. Call `to_iter_dataset()` before.
        """
        return self._then(unbatch_node(self))

    def enumerate(self, start: int = 0) -> "MapDataset[tuple[int, T_co]]":
        """Pair each element with its index.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.source(["a", "b"]).enumerate(start=1))
        [(1, 'a'), (2, 'b')]

        Args:
            start: The number of the first element.

        Raises:
            PlanError: If `start` is negative.
        """
        first = as_int("start", start)
        return self._then(map_with_index_node(self, partial(pair_with_index, first)))

    def take(self, count: int) -> "MapDataset[T_co]":
        """Return the first `count` elements of each epoch, as `ds[:count]` does.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(5).take(2))
        [0, 1]

        Args:
            count: The maximum number of elements.

        Raises:
            PlanError: If `count` is negative.
        """
        return self._slice(slice(as_int("count", count, maximum=ENDLESS)))

    def skip(self, count: int) -> "MapDataset[T_co]":
        """Return all elements of each epoch but the first `count`, as `ds[count:]` does.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(5).skip(3))
        [3, 4]

        Args:
            count: The number of elements to leave out.

        Raises:
            PlanError: If `count` is negative.
        """
        return self._slice(slice(as_int("count", count, maximum=ENDLESS), None))

    def cache(
        self, path: str | os.PathLike[str] | None = None, *, max_bytes: int = 100 * 2**30
    ) -> "MapDataset[T_co]":
        """Keep each element once it is computed, on disk or in memory.

        The elements do not change. They are stored while a pipeline runs, and shared by its
        workers, by later epochs and, on disk, by other programs that read the same plan. The key of
        a cache on disk is a fingerprint of everything below it: the source (files by size and
        modification time, data in memory by content) and the user's functions (by their code, and
        the values they refer to). A change of any of these starts a new cache. What a function
        reads at run time, such as a file, is not part of the fingerprint.

        Call it before the steps that are random, which are computed in each epoch.

        >>> from gristmill import MapDataset
        >>> ds = MapDataset.range(4).map(lambda x: x * x).cache().shuffle(seed=0)
        >>> sorted(ds), sorted(ds)
        ([0, 1, 4, 9], [0, 1, 4, 9])

        Args:
            path: A folder for caches, which is created. By default, elements are in memory that all
                worker processes share, and that is freed with the dataset.
            max_bytes: The size limit of the folder, or of the memory. Elements for which there is
                no room are computed each time. Older caches in the folder are deleted if a new one
                needs the room, unless a program is using them.

        Returns:
            A dataset with the same elements.

        Raises:
            PlanError: A step below it yields other elements in each epoch, as `shuffle` and
                `random_map` do, or the fingerprint cannot be computed.
        """
        return self._then(stored_node(self, path, max_bytes))

    def split(
        self,
        fractions: Sequence[float],
        *,
        seed: int | None = None,
        stratify: Labels | None = None,
    ) -> "tuple[MapDataset[T_co], ...]":
        """Return disjoint datasets, which have the same elements in every epoch.

        Which elements belong to a part is a function of the seed and the length. The elements of a
        part are in a fixed random order; `shuffle` a part for another order in each epoch. A part
        needs no memory, unless `stratify` is given (4 bytes for each element of the dataset).

        >>> from gristmill import MapDataset
        >>> train, test = MapDataset.range(10).split([0.8, 0.2], seed=0)
        >>> list(train), list(test)
        ([0, 4, 6, 7, 8, 3, 1, 9], [5, 2])

        Args:
            fractions: A fraction of the elements for each part, which add up to 1; or the number of
                elements of each part, which add up to all.
            seed: The seed of the split. By default it is derived from `ds.seed()`.
            stratify: If given, each part has its share of every class, to within an element or two.
                The class of each element as an array or list, the key of a column, or a function of
                an element. With a key or a function, this call reads all elements; of a source with
                columns, only that column.

        Returns:
            A dataset for each part.

        Raises:
            PlanError: The fractions do not add up to 1, a part would be empty, there is no seed, or
                the dataset is shuffled, mixed or repeated already.
        """
        nodes = split_nodes(self, fractions, seed, stratify)
        return tuple(self._then(node) for node in nodes)

    def k_fold(
        self, k: int, i: int, *, seed: int | None = None, stratify: Labels | None = None
    ) -> "tuple[MapDataset[T_co], MapDataset[T_co]]":
        """Return all folds but one, to train on, and that fold, to test on.

        >>> from gristmill import MapDataset
        >>> for i in range(3):
        ...     train, test = MapDataset.range(6).k_fold(3, i, seed=0)
        ...     print(sorted(test))
        [0, 4]
        [1, 2]
        [3, 5]

        Args:
            k: The number of folds, at least 2.
            i: The fold to test on, from 0 to `k - 1`.
            seed: The seed of the folds: use the same one for all of them. By default it is derived
                from `ds.seed()`.
            stratify: If given, each fold has its share of every class; see `split`.

        Returns:
            The dataset of the other folds together, and that of fold `i`.

        Raises:
            PlanError: `k` is larger than the length, `i` is not below `k`, there is no seed, or the
                dataset is shuffled, mixed or repeated already.
        """
        others, fold = fold_nodes(self, k, i, seed, stratify)
        return self._then(others), self._then(fold)

    def sample(
        self,
        weights: Labels | None = None,
        *,
        balance: Labels | None = None,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int | None = None,
    ) -> "MapDataset[T_co]":
        """Draw elements at random in proportion to weights, other ones in each epoch.

        What is drawn is a function of the seed and the index. With replacement, a draw costs a
        binary search in the weights. Without, all draws of an epoch are computed at its first one:
        about 0.2 s for a million elements, with 8 bytes of memory for each draw.

        >>> from gristmill import MapDataset
        >>> list(MapDataset.range(3).sample([1, 0, 3], num_samples=8, seed=0))
        [2, 0, 2, 0, 2, 2, 2, 2]

        Args:
            weights: A weight of at least 0 for each element, as a list, an array, the key of a
                column, or a function of an element.
            balance: Instead of weights, the class of each element, in one of the same forms: each
                class is drawn as often as any other.
            num_samples: The number of draws in an epoch. By default the length; without
                replacement, the number of elements with a weight above 0.
            replacement: Whether an element can be drawn several times in an epoch.
            seed: The seed of this step. By default it is derived from `ds.seed()`.

        Returns:
            A dataset of `num_samples` elements.

        Raises:
            PlanError: A weight is negative or not finite, all are 0, `num_samples` is too large, or
                there is no seed.
        """
        node = weighted_node(
            self,
            weights,
            balance=balance,
            num_samples=num_samples,
            replacement=replacement,
            seed=seed,
        )
        return self._then(node)
