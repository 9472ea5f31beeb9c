"""Frozen option values, checked when they are made."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gristmill._check import as_bool, as_int, as_kind, as_seconds, is_grains
from gristmill._extras import load_extra
from gristmill.errors import PlanError, PlanTypeError


@dataclass(frozen=True)
class ShardOptions:
    """Which part of the data this process loads: shard `shard_index` of `shard_count`.

    Where the data do not divide evenly, `drop_remainder` leaves the remainder out, so that all
    shards are equally long; otherwise the first shards get one record more each.

    >>> ShardOptions(shard_index=0, shard_count=2)
    ShardOptions(shard_index=0, shard_count=2, drop_remainder=False)
    """

    shard_index: int
    shard_count: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        count = as_int("shard_count", self.shard_count, minimum=1)
        index = as_int("shard_index", self.shard_index)
        if index >= count:
            raise PlanError(
                f"`shard_index` must be in [0, {count}), as `shard_count` is {count}, got {index}."
            )
        dropped = as_bool("drop_remainder", self.drop_remainder)
        _settle(self, shard_count=count, shard_index=index, drop_remainder=dropped)


def as_shard(name: str, value: object) -> ShardOptions:
    """Take shard options, ours or Grain's, and say what there is to choose from.

    >>> as_shard("shard_options", ShardOptions(0, 2)).shard_count
    2
    """
    if is_grains(value, "ShardOptions"):
        theirs: Any = value
        if is_grains(value, "NoSharding"):
            return NoSharding()
        if is_grains(value, "ShardByJaxProcess"):
            return ShardByJaxProcess(theirs.drop_remainder)
        return ShardOptions(theirs.shard_index, theirs.shard_count, theirs.drop_remainder)
    remedy = "Pass `NoSharding()`, `ShardByJaxProcess()` or `ShardOptions(index, count)`."
    return as_kind(name, value, ShardOptions, remedy=remedy)


class NoSharding(ShardOptions):
    """Every process loads all the data.

    >>> NoSharding()
    NoSharding(shard_index=0, shard_count=1, drop_remainder=False)
    """

    def __init__(self) -> None:
        super().__init__(shard_index=0, shard_count=1, drop_remainder=False)


class ShardByJaxProcess(ShardOptions):
    """One shard for each JAX process: `jax.process_index()` of `jax.process_count()`."""

    def __init__(self, drop_remainder: bool = False) -> None:
        jax = load_extra("jax", extra="jax", wanted_by="`ShardByJaxProcess`")
        super().__init__(
            shard_index=jax.process_index(),
            shard_count=jax.process_count(),
            drop_remainder=drop_remainder,
        )


@dataclass(frozen=True)
class ReadOptions:
    """How far and how wide to read ahead of the consumer. Never changes what is read.

    With `num_threads=0` or `prefetch_buffer_size=0` nothing ever runs in the background. Otherwise
    a thread makes the next elements while the consumer is busy with others.

    >>> ReadOptions(num_threads=0)
    ReadOptions(num_threads=0, prefetch_buffer_size=500)
    """

    num_threads: int = 16
    prefetch_buffer_size: int = 500

    def __post_init__(self) -> None:
        _settle(
            self,
            num_threads=as_int("num_threads", self.num_threads),
            prefetch_buffer_size=as_int("prefetch_buffer_size", self.prefetch_buffer_size),
        )


@dataclass(frozen=True)
class MultiprocessingOptions:
    """How many worker processes, and how far each runs ahead. Never changes what they make.

    >>> MultiprocessingOptions(num_workers=2).per_worker_buffer_size
    1
    """

    num_workers: int = 0
    per_worker_buffer_size: int = 1
    enable_profiling: bool = False

    def __post_init__(self) -> None:
        _settle(
            self,
            num_workers=as_int("num_workers", self.num_workers),
            per_worker_buffer_size=as_int("per_worker_buffer_size", self.per_worker_buffer_size),
            enable_profiling=as_bool("enable_profiling", self.enable_profiling),
        )


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """How files are read that are not on this machine. Never changes what is read.

    What a store does not give, gives too late or cuts short is asked for again, each time after
    twice as long a pause, up to `num_retries` times.

    >>> StorageOptions(cache_dir="/tmp/shards", cache_bytes=2**30).num_parallel
    32

    Args:
        num_parallel: How many requests are under way at the same time.
        num_retries: How often one request is made again.
        timeout_s: How long one request of a few megabytes may take.
        read_ahead_bytes: How far files that are read from front to back are read ahead.
        cache_dir: A folder for what was read, which any number of processes may share. By default
            nothing is kept, but for files that can be read on this machine alone (ArrayRecord,
            SQLite): these go to `gristmill/files` in the user's cache folder.
        cache_bytes: How much may be in that folder; what was not used for longest goes first.
        filesystem: What fsspec gets: keys, endpoints, `{"anon": True}`.
    """

    num_parallel: int = 32
    num_retries: int = 8
    timeout_s: float = 60.0
    read_ahead_bytes: int = 32 * 2**20
    cache_dir: str | os.PathLike[str] | None = None
    cache_bytes: int = 16 * 2**30
    filesystem: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def __post_init__(self) -> None:
        folder: Any = self.cache_dir
        if folder is not None and not isinstance(folder, str | os.PathLike):
            raise PlanTypeError(f"`cache_dir` must be a path, got {folder!r}.")
        options: Any = self.filesystem
        if not isinstance(options, Mapping):
            raise PlanTypeError(
                f"`filesystem` must be a dict of fsspec's options, got {options!r}."
            )
        _settle(
            self,
            num_parallel=as_int("num_parallel", self.num_parallel, minimum=1),
            num_retries=as_int("num_retries", self.num_retries),
            timeout_s=as_seconds("timeout_s", self.timeout_s),
            read_ahead_bytes=as_int("read_ahead_bytes", self.read_ahead_bytes),
            cache_dir=None if self.cache_dir is None else os.path.expanduser(self.cache_dir),
            cache_bytes=as_int("cache_bytes", self.cache_bytes),
            filesystem=dict(self.filesystem),
        )


@dataclass(frozen=True, kw_only=True)
class WorkerOptions:
    """How worker processes are started, watched and replaced. Never changes what they make.

    A worker that dies is replaced, and what it was at is computed again. A record that kills its
    worker three times ends the run with an error that names it.

    >>> WorkerOptions(block_timeout_s=60).max_restarts
    20

    Args:
        worker_init_fn: Called in each worker before anything else, with its number and how many
            workers there are.
        max_restarts: How many dead workers are replaced in the life of an iterator.
        block_timeout_s: A worker that takes longer than this for one batch, or for a few
            milliseconds' worth of small elements, counts as dead. By default there is no limit.
        memory_budget_bytes: How much shared memory the elements that are made ahead may take. By
            default that is two blocks for each worker, and up to 128 MB while others go on
            without a slow record.
    """

    worker_init_fn: Callable[[int, int], Any] | None = None
    max_restarts: int = 20
    block_timeout_s: float | None = None
    memory_budget_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.worker_init_fn is not None and not callable(self.worker_init_fn):
            raise PlanTypeError(
                f"`worker_init_fn` must be a function, got {self.worker_init_fn!r}."
            )
        _settle(self, max_restarts=as_int("max_restarts", self.max_restarts))
        if self.block_timeout_s is not None:
            seconds = as_seconds("block_timeout_s", self.block_timeout_s)
            _settle(self, block_timeout_s=seconds)
        if self.memory_budget_bytes is not None:
            budget = as_int("memory_budget_bytes", self.memory_budget_bytes, minimum=1)
            _settle(self, memory_budget_bytes=budget)


@dataclass(frozen=True)
class SkipErrors:
    """Leave out records that raise, but not more than `budget` of them.

    A record counts as bad when reading it raises, or a step below the first batch. Every one that
    is left out is logged, listed in `iterator.skipped`, and part of the state. The one beyond the
    budget raises.

    >>> SkipErrors(budget=10)
    SkipErrors(budget=10)
    """

    budget: int

    def __post_init__(self) -> None:
        _settle(self, budget=as_int("budget", self.budget))


def _settle(options: object, **checked: object) -> None:
    """Put checked values, NumPy's integers made plain, in place of what was given."""
    for name, value in checked.items():
        object.__setattr__(options, name, value)
