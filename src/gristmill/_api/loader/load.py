"""`load`: a `DataLoader` with the usual sampler, in one call."""

from collections.abc import Sequence
from typing import Any, Literal

from gristmill._api.loader.foreign_arguments import OF_LOAD
from gristmill._api.loader.loader import DataLoader
from gristmill._api.plan_access import source_node
from gristmill._api.step_bookmarks import NUM_BOOKMARKS
from gristmill._base.argument_advice import advises
from gristmill._base.checks import as_list
from gristmill._data.sampling.samplers import IndexSampler
from gristmill._data.sampling.user_samplers import AnySampler
from gristmill._data.transforms.base import Batch, Transformation
from gristmill.errors import PlanError
from gristmill.options import NoSharding, ReadOptions, ShardOptions, SkipErrors, WorkerOptions
from gristmill.types import Element, RandomAccessDataSource


@advises("load", OF_LOAD)
def load(
    source: RandomAccessDataSource[Element],
    *,
    num_epochs: int | None = None,
    shuffle: bool = False,
    seed: int | None = None,
    sampler: AnySampler | None = None,
    shard_options: ShardOptions = NoSharding(),  # noqa: B008 - frozen
    transformations: Sequence[Transformation | Any] = (),
    batch_size: int | None = None,
    drop_remainder: bool = False,
    worker_count: int | None = 0,
    read_options: ReadOptions | None = None,
    on_error: Literal["raise"] | SkipErrors = "raise",
    worker_options: WorkerOptions | None = None,
    provenance: bool = False,
    num_bookmarks: int = NUM_BOOKMARKS,
) -> DataLoader:
    """Return a `DataLoader` with an `IndexSampler` over the whole source.

    >>> [batch.tolist() for batch in load(range(5), num_epochs=1, batch_size=2)]
    [[0, 1], [2, 3], [4]]

    Args:
        source: An object with `__len__` and `__getitem__`.
        num_epochs: The number of epochs. `None` means infinitely many.
        shuffle: Whether to shuffle the records, in each epoch differently.
        seed: The seed of the shuffle and of random transformations.
        sampler: Which records to read, as `DataLoader` takes it: a sampler, a list of indices, or a
            sampler of PyTorch. It has a shuffle, a seed and epochs of its own.
        shard_options: The shard of the source to read.
        transformations: Transformations, applied in order. A plain function is used as a map.
        batch_size: The number of elements of a batch. By default there are no batches.
        drop_remainder: Whether to drop a last batch with fewer elements.
        worker_count: The number of worker processes. With 0, this process computes everything.
            With `None`, the fastest number is found by measuring.
        read_options: How many threads read, and how far ahead of the consumer.
        on_error: `"raise"` to raise the errors of records, or `SkipErrors(budget)` to skip records
            that raise. The iterator lists them as `skipped`.
        worker_options: How workers are started, monitored and replaced.
        provenance: Whether each element gets the number of its record as one more leaf, as
            described for `DataLoader`.
        num_bookmarks: How many positions `at` and `from_step` may start from where steps must be
            counted, as described for `DataLoader`.

    Raises:
        PlanError: The source is empty, or the arguments contradict each other.
        PlanTypeError: An argument has the wrong type.
    """
    operations = as_list("transformations", transformations)
    num_records = source_node(source).length()
    if num_records == 0:
        raise PlanError("`source` is empty. Pass at least one record.")
    if batch_size is not None:
        operations.append(Batch(batch_size, drop_remainder))
    loader_shard: ShardOptions | None = None
    if sampler is None:
        sampler = IndexSampler(
            num_records=num_records,
            shard_options=shard_options,
            shuffle=shuffle,
            num_epochs=num_epochs,
            seed=seed,
        )
    else:
        if shuffle or seed is not None or num_epochs is not None:
            raise PlanError(
                "`sampler` comes with its own order, seed and number of epochs. Leave `shuffle`, "
                "`seed` and `num_epochs` out, or pass them to the sampler."
            )
        if not isinstance(shard_options, NoSharding):
            loader_shard = shard_options
    return DataLoader(
        data_source=source,
        sampler=sampler,
        shard_options=loader_shard,
        operations=operations,
        worker_count=worker_count,
        read_options=read_options,
        on_error=on_error,
        worker_options=worker_options,
        provenance=provenance,
        num_bookmarks=num_bookmarks,
    )
