"""Global batches that are distributed over shards, and resumed with another number of shards."""

from collections.abc import Mapping
from typing import Any

from gristmill._api.dataset.iter_dataset import IterDataset, PlannedIterDataset, stream_node
from gristmill._api.dataset.iterator import DatasetIterator, IteratorState, StreamIterator
from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.call_site import call_site
from gristmill._base.checks import as_int
from gristmill._checkpoint.gather import gather_states
from gristmill._data.sampling.shard_options import as_shard
from gristmill._plan.describe import describe
from gristmill._plan.sharding import cut_into_shards
from gristmill.errors import PlanError
from gristmill.options import MultiprocessingOptions, ReadOptions, ShardOptions


class ElasticIterator(PlannedIterDataset[Any]):
    """Yields this shard's fraction of global batches; a run can continue with other shards.

    Each shard yields batches of `global_batch_size / shard_count` elements. Elements that do not
    fill the last batch are dropped from a `MapDataset`, where all shards advance in step; of a
    stream, they are a smaller last batch. As in Grain it is both a dataset and its only iterator.

    If each record yields exactly one element, all shards have the same state. It restores all
    shards of a run with another number of shards or another batch size. Otherwise, such as after a
    filter, the shards advance independently: combine their states with
    `gristmill.checkpoint.gather_states`. Restoring from an Orbax checkpoint does that by itself.

    >>> from gristmill.options import ShardOptions
    >>> ds = MapDataset.range(12)
    >>> four = iter(ElasticIterator(ds, 4, ShardOptions(1, 4)))
    >>> next(four)
    array([1])
    >>> two = iter(ElasticIterator(ds, 4, ShardOptions(1, 2)))
    >>> two.set_state(four.get_state())
    >>> [batch.tolist() for batch in two]
    [[5, 7], [9, 11]]

    Args:
        ds: A dataset that is neither batched nor sharded. It may be filtered, mixed or packed.
        global_batch_size: The number of elements of a batch of all shards together, a multiple of
            the number of shards. For a stream it may be 0: elements are then not batched.
        shard_options: The shard of this process.
        read_options: How many threads read, and how far ahead of the consumer.
        multiprocessing_options: The worker processes. By default there are none.

    Raises:
        PlanError: `global_batch_size` is not a multiple of the number of shards, or a stream
            cannot be distributed over shards.
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
        is_stream = not isinstance(ds, MapDataset)
        size = as_int("global_batch_size", global_batch_size, minimum=0 if is_stream else 1)
        if size % shard.shard_count:
            raise PlanError(
                f"`global_batch_size` must be a multiple of the number of shards, "
                f"{shard.shard_count}, got {size}."
            )
        stream = ds.to_iter_dataset(read_options) if isinstance(ds, MapDataset) else ds
        whole = stream_node("ds", stream)
        node = cut_into_shards(whole, shard, site=call_site())
        batched = sharded = PlannedIterDataset[Any](node, (ds,))
        if size:
            batched = sharded.batch(size // shard.shard_count, drop_remainder=not is_stream)
        if multiprocessing_options is not None:
            batched = batched.mp_prefetch(multiprocessing_options)
        super().__init__(plan_of(batched), (sharded,))
        # Without the batches: with another number of shards they have another size.
        self._description = describe(node)
        self._shard = shard
        self._has_stream = is_stream
        self._iterator: DatasetIterator[Any] | None = None
        self._is_closed = False

    def __iter__(self) -> DatasetIterator[Any]:
        """Return the iterator. As in Grain, it is the same at each call."""
        if self._iterator is None:
            self._iterator = self._open()
        return self._iterator

    _runs_plan = __iter__

    def _open(self) -> DatasetIterator[Any]:
        return StreamIterator(
            self._node,
            self._pools,
            description=self._description,
            is_lockstep=self._node.is_dense,
        )

    @property
    def shard_options(self) -> ShardOptions:
        """The shard of this process."""
        return self._shard

    def __next__(self) -> Any:
        return next(iter(self))

    def get_state(self) -> IteratorState:
        """Return the position after the last batch that `__next__` returned."""
        return iter(self).get_state()

    def set_state(self, state: IteratorState) -> None:
        """Continue from a position, as in Grain also after `close`, with a new iterator.

        Args:
            state: A result of `get_state`, or a state of Grain's `ElasticIterator`.
        """
        if not self._is_closed:
            iter(self).set_state(state)
            return
        iterator = self._open()
        iterator.set_state(state)
        self._iterator, self._is_closed = iterator, False

    def state_dict(self) -> IteratorState:
        """Return the state, as PyTorch's stateful objects do."""
        return self.get_state()

    def load_state_dict(self, state_dict: IteratorState) -> None:
        """Continue from a result of `state_dict`.

        Args:
            state_dict: The state, of this or another iterator over an equal pipeline.
        """
        self.set_state(state_dict)

    def get_shard_states(self) -> dict[int, IteratorState]:
        """Return the state of this shard of a stream, by the index of the shard.

        Raises:
            NotImplementedError: The shards of a `MapDataset` have one state, that of `get_state`.
        """
        self._check_stream("get_shard_states")
        return {self._shard.shard_index: self.get_state()}

    def set_shard_states(self, shard_states: Mapping[Any, IteratorState]) -> None:
        """Continue from the state of this shard, or from those of all shards of an earlier run.

        Args:
            shard_states: Results of `get_shard_states`, of one shard or combined from all. JSON
                may have made strings of the indices.

        Raises:
            NotImplementedError: The shards of a `MapDataset` have one state, that of `get_state`.
        """
        self._check_stream("set_shard_states")
        states = [shard_states[index] for index in sorted(shard_states, key=int)]
        self.set_state(states[0] if len(states) == 1 else gather_states(states))

    def _check_stream(self, method: str) -> None:
        if not self._has_stream:
            raise NotImplementedError(
                f"{method} is only supported for IterDataset-based ElasticIterator. All shards of "
                "a MapDataset have the same state: use `get_state` and `set_state`."
            )

    def close(self) -> None:
        """Stop all background work. `get_state` still works, and `next` after `set_state`."""
        iter(self).close()
        self._is_closed = True
