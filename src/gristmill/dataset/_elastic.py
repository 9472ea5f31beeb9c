"""A dataset that is dealt to shards, and whose states go on with any other number of them."""

from typing import Any

from gristmill._check import as_int
from gristmill._site import call_site
from gristmill.dataset._iter import IterDataset, PlannedIterDataset, stream_node
from gristmill.dataset._iterator import DatasetIterator, StreamIterator
from gristmill.dataset._map import MapDataset
from gristmill.errors import PlanError
from gristmill.options import MultiprocessingOptions, ReadOptions, ShardOptions, as_shard
from gristmill.plan import cut_into_shards, describe


class ElasticIterator(PlannedIterDataset[Any]):
    """A shard's part of global batches, from a dataset that is neither batched nor sharded.

    `ds` may be any dataset: filtered, mixed, packed. Each shard gives batches of
    `global_batch_size / shard_count` elements; what does not fill the last one is left out.

    Where each record gives one element, all shards have the same state, and any of them restores
    all shards of a run with another number of shards or another batch size. Otherwise each shard
    goes at its own pace: gather the states of all with `gristmill.checkpoint.gather_states`, which
    restoring from an Orbax checkpoint does by itself.

    >>> from gristmill.options import ShardOptions
    >>> ds = MapDataset.range(12)
    >>> four = iter(ElasticIterator(ds, 4, ShardOptions(1, 4)))
    >>> next(four)
    array([1])
    >>> two = iter(ElasticIterator(ds, 4, ShardOptions(1, 2)))
    >>> two.set_state(four.get_state())
    >>> [batch.tolist() for batch in two]
    [[5, 7], [9, 11]]
    """

    def __init__(
        self,
        ds: MapDataset[Any] | IterDataset[Any],
        global_batch_size: int,
        shard_options: ShardOptions,
        *,
        read_options: ReadOptions = ReadOptions(),  # noqa: B008 - frozen
        multiprocessing_options: MultiprocessingOptions | None = None,
    ) -> None:
        shard = as_shard("shard_options", shard_options)
        size = as_int("global_batch_size", global_batch_size, minimum=1)
        if size % shard.shard_count:
            raise PlanError(
                f"`global_batch_size` {size} does not divide into {shard.shard_count} shards. Pass "
                "a multiple of their number."
            )
        stream = ds.to_iter_dataset(read_options) if isinstance(ds, MapDataset) else ds
        node = cut_into_shards(stream_node("ds", stream), shard, site=call_site())
        whole = PlannedIterDataset[Any](node, (ds,))
        batched: IterDataset[Any] = whole.batch(size // shard.shard_count, drop_remainder=True)
        if multiprocessing_options is not None:
            batched = batched.mp_prefetch(multiprocessing_options)
        super().__init__(batched.node, (whole,))
        # The batches of another number of shards are of another size.
        self._words = describe(node)
        self._own: DatasetIterator[Any] | None = None

    def __iter__(self) -> DatasetIterator[Any]:
        """Give the one iterator: as in Grain, it is the same each time."""
        if self._own is None:
            is_lockstep = self.node.is_dense
            self._own = StreamIterator(self.node, words=self._words, is_lockstep=is_lockstep)
        return self._own

    def __next__(self) -> Any:
        return next(iter(self))

    def get_state(self) -> dict[str, Any]:
        """Give the state of the iterator."""
        return iter(self).get_state()

    def set_state(self, state: dict[str, Any]) -> None:
        """Let the iterator go on from a state, which may be one of Grain's `ElasticIterator`."""
        iter(self).set_state(state)

    def close(self) -> None:
        """End what the iterator has running."""
        if self._own is not None:
            self._own.close()
