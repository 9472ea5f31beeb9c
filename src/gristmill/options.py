"""Option classes: frozen dataclasses that check their values when they are created."""

import logging as _logging
import os as _os
from collections.abc import Callable as _Callable
from collections.abc import Mapping as _Mapping
from dataclasses import dataclass as _dataclass
from dataclasses import field as _field
from typing import Any as _Any

from gristmill._base.checks import as_amount as _as_amount
from gristmill._base.checks import as_bool as _as_bool
from gristmill._base.checks import as_int as _as_int
from gristmill._base.checks import as_seconds as _as_seconds
from gristmill._base.extras import load_extra as _load_extra
from gristmill._base.short_repr import short_repr as _short_repr
from gristmill.errors import PlanError as _PlanError
from gristmill.errors import PlanTypeError as _PlanTypeError

_logger = _logging.getLogger("gristmill")


__all__ = [
    "MultiprocessingOptions",
    "NoSharding",
    "RayOptions",
    "ReadOptions",
    "ShardByJaxProcess",
    "ShardOptions",
    "SkipErrors",
    "StorageOptions",
    "WorkerOptions",
]


@_dataclass(frozen=True)
class ShardOptions:
    """Which shard of the data this process loads.

    >>> ShardOptions(shard_index=0, shard_count=2)
    ShardOptions(shard_index=0, shard_count=2, drop_remainder=False)

    Args:
        shard_index: The index of the shard that this process loads, from 0 to `shard_count - 1`.
        shard_count: The number of shards that the data is split into.
        drop_remainder: Whether to drop the last records if the data does not divide evenly, so
            that all shards have the same length. By default, the first shards get one record more
            each.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If a value has the wrong type.
    """

    shard_index: int
    shard_count: int
    drop_remainder: bool = False

    def __post_init__(self) -> None:
        count = _as_int("shard_count", self.shard_count, minimum=1)
        phrase = f"Shard shard_index must be in [0, {count - 1}], as `shard_count` is {count}"
        index = _as_int("shard_index", self.shard_index, maximum=count - 1, phrase=phrase)
        dropped = _as_bool("drop_remainder", self.drop_remainder)
        _set_fields(self, shard_count=count, shard_index=index, drop_remainder=dropped)


class NoSharding(ShardOptions):
    """Every process loads all the data.

    >>> NoSharding()
    NoSharding(shard_index=0, shard_count=1, drop_remainder=False)
    """

    def __init__(self) -> None:
        super().__init__(shard_index=0, shard_count=1, drop_remainder=False)


class ShardByJaxProcess(ShardOptions):
    """One shard for each JAX process: shard `jax.process_index()` of `jax.process_count()`.

    Imports jax, and asks it for the two numbers, when it is created.

    >>> ShardByJaxProcess()  # on one host
    ShardByJaxProcess(shard_index=0, shard_count=1, drop_remainder=False)

    Args:
        drop_remainder: Whether to drop the last records if the data does not divide evenly.

    Raises:
        MissingExtraError: If jax is not installed.
    """

    def __init__(self, drop_remainder: bool = False) -> None:
        jax = _load_extra("jax", extra="jax", wanted_by="`ShardByJaxProcess`")
        super().__init__(
            shard_index=jax.process_index(),
            shard_count=jax.process_count(),
            drop_remainder=drop_remainder,
        )


@_dataclass(frozen=True)
class ReadOptions:
    """How many elements to prefetch, and with how many threads. Never changes the elements.

    With `num_threads=0` or `prefetch_buffer_size=0`, nothing runs in the background. Otherwise, a
    background thread makes the next elements while the consumer is busy with earlier ones.

    >>> ReadOptions(num_threads=0)
    ReadOptions(num_threads=0, prefetch_buffer_size=500)

    Args:
        num_threads: The maximum number of threads that read records at the same time.
        prefetch_buffer_size: The maximum number of prefetched records.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If a value has the wrong type.
    """

    num_threads: int = 16
    prefetch_buffer_size: int = 500

    def __post_init__(self) -> None:
        _set_fields(
            self,
            num_threads=_as_int(
                "num_threads", self.num_threads, phrase="num_threads must be non-negative"
            ),
            prefetch_buffer_size=_as_int(
                "prefetch_buffer_size",
                self.prefetch_buffer_size,
                phrase="prefetch_buffer_size must be non-negative",
            ),
        )
        if 0 < self.prefetch_buffer_size < self.num_threads:
            _logger.warning(
                "prefetch_buffer_size=%d is smaller than num_threads=%d, so at most %d threads "
                "read at the same time. Set `prefetch_buffer_size` to at least `num_threads`.",
                self.prefetch_buffer_size,
                self.num_threads,
                self.prefetch_buffer_size,
            )


@_dataclass(frozen=True)
class MultiprocessingOptions:
    """How many worker processes to use, and how far they prefetch. Never changes the elements.

    >>> MultiprocessingOptions(num_workers=2).per_worker_buffer_size
    1

    Args:
        num_workers: The number of worker processes. With 0, this process does all the work.
        per_worker_buffer_size: The number of elements that each worker prefetches.
        enable_profiling: Whether to log what the workers did, step by step, every minute and at the
            end: at level INFO of the logger `gristmill`. Without workers, nothing is logged.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If a value has the wrong type.
    """

    num_workers: int = 0
    per_worker_buffer_size: int = 1
    enable_profiling: bool = False

    def __post_init__(self) -> None:
        _set_fields(
            self,
            num_workers=_as_int("num_workers", self.num_workers),
            per_worker_buffer_size=_as_int("per_worker_buffer_size", self.per_worker_buffer_size),
            enable_profiling=_as_bool("enable_profiling", self.enable_profiling),
        )


@_dataclass(frozen=True, kw_only=True, repr=False)
class StorageOptions:
    """How to read files from remote stores. Never changes the data.

    A request that fails, times out or returns too few bytes is retried up to `num_retries` times.
    The wait before a retry doubles each time.

    >>> StorageOptions(cache_dir="/tmp/shards", cache_bytes=2**30).num_parallel
    32

    Args:
        num_parallel: The maximum number of requests at the same time.
        num_retries: How often one request is retried.
        timeout_s: The time limit of one request of a few megabytes, in seconds.
        read_ahead_bytes: How many bytes to prefetch of files that are read from front to back.
        cache_dir: A folder to cache downloaded data in, in its subfolder `gristmill-cache`; other
            files in it are left alone. Several processes may share it. By default
            nothing is cached, except for files of formats that can only be read from a local disk
            (ArrayRecord, SQLite): these go to `gristmill/files` in the user's cache folder.
        cache_bytes: The size limit of the cached data. The least recently used data is removed
            first.
        index_beside_data: Whether a new index of a local file is saved beside it, as
            `NAME.KIND.gristmill-index`, so that other readers of the file find it. By default it is
            saved in `gristmill/indexes` in the user's cache folder.
        filesystem: Options for fsspec: keys, endpoints, `{"anon": True}`. Not shown by `repr`.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If a value has the wrong type.
    """

    num_parallel: int = 32
    num_retries: int = 8
    timeout_s: float = 60.0
    read_ahead_bytes: int = 32 * 2**20
    cache_dir: str | _os.PathLike[str] | None = None
    cache_bytes: int = 16 * 2**30
    index_beside_data: bool = False
    filesystem: _Mapping[str, _Any] = _field(default_factory=dict[str, _Any], repr=False)

    def __repr__(self) -> str:
        return _short_repr(self)

    def __post_init__(self) -> None:
        folder: _Any = self.cache_dir
        if folder is not None and not isinstance(folder, str | _os.PathLike):
            raise _PlanTypeError(f"`cache_dir` must be a path, got {folder!r}.")
        options: _Any = self.filesystem
        if not isinstance(options, _Mapping):
            kind = type(options).__name__  # not the value: it may be a secret
            raise _PlanTypeError(f"`filesystem` must be a dict of fsspec options, got a `{kind}`.")
        _set_fields(
            self,
            num_parallel=_as_int("num_parallel", self.num_parallel, minimum=1),
            num_retries=_as_int("num_retries", self.num_retries),
            timeout_s=_as_seconds("timeout_s", self.timeout_s),
            read_ahead_bytes=_as_int("read_ahead_bytes", self.read_ahead_bytes),
            cache_dir=None if self.cache_dir is None else _os.path.expanduser(self.cache_dir),
            cache_bytes=_as_int("cache_bytes", self.cache_bytes),
            index_beside_data=_as_bool("index_beside_data", self.index_beside_data),
            filesystem=dict(self.filesystem),
        )


@_dataclass(frozen=True, kw_only=True, repr=False)
class WorkerOptions:
    """How worker processes are started, monitored and restarted. Never changes the elements.

    A worker that dies is replaced, and its unfinished elements are computed again. A record that
    kills its worker three times ends the run with an error that names the record.

    >>> WorkerOptions(block_timeout_s=60).max_restarts
    20

    Args:
        worker_init_fn: Called in each worker before anything else, with the index of the worker
            and the number of workers.
        max_restarts: How many dead workers are replaced during the life of an iterator.
        block_timeout_s: A worker that takes longer than this for one batch, or for a few
            milliseconds' worth of small elements, is treated as dead. By default there is no
            limit.
        memory_budget_bytes: How much shared memory prefetched elements may use. The default is two
            blocks per worker, and up to 128 MB while other workers continue past a slow record.
            Elements that you keep come on top of that, and freed blocks that a worker keeps for
            its next ones.
        idle_timeout_s: Workers that no iterator uses end after this many seconds. Until then, the
            next iterator of the same loader or dataset takes them over. With 0, they end with
            their iterator. An iterator that is not used for that long (60 seconds if it is 0)
            returns its workers, and continues with others when it is used again.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If a value has the wrong type.
    """

    worker_init_fn: _Callable[[int, int], _Any] | None = None
    max_restarts: int = 20
    block_timeout_s: float | None = None
    memory_budget_bytes: int | None = None
    idle_timeout_s: float = 60.0

    def __repr__(self) -> str:
        return _short_repr(self)

    def __post_init__(self) -> None:
        if self.worker_init_fn is not None and not callable(self.worker_init_fn):
            raise _PlanTypeError(
                f"`worker_init_fn` must be a function, got {self.worker_init_fn!r}."
            )
        _set_fields(self, max_restarts=_as_int("max_restarts", self.max_restarts))
        if self.block_timeout_s is not None:
            seconds = _as_seconds("block_timeout_s", self.block_timeout_s)
            _set_fields(self, block_timeout_s=seconds)
        if self.memory_budget_bytes is not None:
            budget = _as_int("memory_budget_bytes", self.memory_budget_bytes, minimum=1)
            _set_fields(self, memory_budget_bytes=budget)
        idle_s = _as_seconds("idle_timeout_s", self.idle_timeout_s, allow_zero=True)
        _set_fields(self, idle_timeout_s=idle_s)


@_dataclass(frozen=True, kw_only=True, repr=False)
class RayOptions(WorkerOptions):
    """Compute on a Ray cluster instead of in worker processes. Never changes the elements.

    Pass it as `DataLoader(worker_count=16, worker_options=RayOptions())`, or to `mp_prefetch` of a
    dataset. Each worker is a Ray actor. An actor that dies or is late costs no record: its elements
    are computed by another one. All arguments of `WorkerOptions` work here, too.

    >>> RayOptions(num_workers=16, resources={"preprocessing": 1}).num_cpus
    1.0

    Args:
        num_workers: The number of actors. With `None`, it is `worker_count` of the loader; if that
            is `None`, too, or there is none, it follows the cluster and the need: actors are added
            while the consumer waits, and released when it does not.
        address: The address of the cluster, such as `"10.0.0.1:6379"`. With `None`, the cluster
            that this process is connected to; else the one in `RAY_ADDRESS`, or the one that `ray
            start` has started on this machine; else a local one is started.
        num_cpus: The number of CPUs that each actor reserves.
        resources: Further resources that each actor reserves, by name. A resource that only some
            machines have keeps the actors away from the others, such as hosts of accelerators.
        runtime_env: A runtime environment of Ray, for modules that the machines do not have, such
            as `{"working_dir": "."}`. Not shown by `repr`.
        min_workers: The smallest number of actors if that follows the need.
        max_workers: The largest number of actors if that follows the need. By default as many as
            the cluster has room for.
        start_timeout_s: How long to wait for a cluster to respond, and for room for the first
            actor. Increase it for a cluster that starts machines on demand.
        shared_pool: The name of a pool of actors that several processes share. All of them have to
            read the same pipeline. Each block is computed once for all of them.
        shared_pool_bytes: How much memory blocks of a shared pool may use while some process still
            needs them. Beyond it, the block that is needed last is dropped, and computed again.

    Raises:
        PlanError: If a value is out of bounds, or `address` is one of Ray Client.
        PlanTypeError: If a value has the wrong type.
    """

    num_workers: int | None = None
    address: str | None = None
    num_cpus: float = 1.0
    resources: _Mapping[str, float] = _field(default_factory=dict[str, float], hash=False)
    runtime_env: _Mapping[str, _Any] | None = _field(default=None, hash=False, repr=False)
    min_workers: int = 1
    max_workers: int | None = None
    start_timeout_s: float = 10.0
    shared_pool: str | None = None
    shared_pool_bytes: int = 2**30

    def __repr__(self) -> str:
        return _short_repr(self)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_workers is not None:
            _set_fields(self, num_workers=_as_int("num_workers", self.num_workers, minimum=1))
        for name in ("address", "shared_pool"):
            value: _Any = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value):
                raise _PlanTypeError(f"`{name}` must be a string, got {value!r}.")
        if self.address is not None and self.address.startswith("ray://"):
            raise _PlanError(
                f"`address` is {self.address!r}, but Ray Client is not supported. Run the program "
                "on a machine of the cluster, and pass the address of its head, such as "
                '"10.0.0.1:6379".'
            )
        for name in ("resources", "runtime_env"):
            mapping: _Any = getattr(self, name)
            if mapping is not None and not isinstance(mapping, _Mapping):
                raise _PlanTypeError(f"`{name}` must be a dict, got {mapping!r}.")
        amounts = {
            name: _as_amount(f'resources["{name}"]', amount)
            for name, amount in self.resources.items()
        }
        _set_fields(
            self,
            num_cpus=_as_amount("num_cpus", self.num_cpus),
            resources=amounts,
            runtime_env=None if self.runtime_env is None else dict(self.runtime_env),
            min_workers=_as_int("min_workers", self.min_workers, minimum=1),
            start_timeout_s=_as_seconds("start_timeout_s", self.start_timeout_s),
            shared_pool_bytes=_as_int("shared_pool_bytes", self.shared_pool_bytes, minimum=1),
        )
        if self.max_workers is not None:
            most = _as_int("max_workers", self.max_workers, minimum=1)
            if most < self.min_workers:
                raise _PlanError(
                    f"`max_workers` must be at least `min_workers`, which is {self.min_workers}, "
                    f"got {most}."
                )
            _set_fields(self, max_workers=most)


@_dataclass(frozen=True)
class SkipErrors:
    """Skip records that raise an exception, up to a limit.

    A record is skipped if reading it raises, or if a transform before the first batch raises for
    it. Every skipped record is logged, listed in `iterator.skipped`, and part of the state. The
    first error after `budget` records have been skipped is raised. So is each error of a batch, and
    of a transform after it, because all records of the batch would be lost.

    A stream fills its batches with the next records. A batch made on a `MapDataset` is smaller by
    its bad records.

    >>> SkipErrors(budget=10)
    SkipErrors(budget=10)

    Args:
        budget: The maximum number of records to skip.

    Raises:
        PlanError: If a value is out of bounds.
        PlanTypeError: If a value has the wrong type.
    """

    budget: int

    def __post_init__(self) -> None:
        _set_fields(self, budget=_as_int("budget", self.budget))


def _set_fields(options: object, **checked: object) -> None:
    """Replace the fields of a frozen dataclass by checked values, such as plain Python integers."""
    for name, value in checked.items():
        object.__setattr__(options, name, value)
